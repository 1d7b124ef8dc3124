/** Master keys: whether those of the settings open what the database holds. */
import type { MasterKey } from '../config/config.ts';
import { findKeyFault, listMasterKeys } from '../data-keys/master-keys.ts';
import { type Db, first } from '../db/pool.ts';
import { type Check, fail, ok, type Verdict, warn } from './check.ts';

/** `masterKeys` is undefined where neither the settings nor DATA_DIR have any. */
export function keyChecks(db: Db, masterKeys: readonly MasterKey[] | undefined): Check[] {
  return [{ name: 'key-ring', run: () => judgeKeyRing(db, masterKeys) }];
}

export async function judgeKeyRing(db: Db, masterKeys: readonly MasterKey[] | undefined): Promise<Verdict> {
  const found = first(
    await db.query<{ there: boolean }>(`select to_regclass('master_key') is not null as there`),
  );
  if (found?.there !== true) return ok('The database holds nothing sealed yet.');
  const known = await listMasterKeys(db);
  if (known.length === 0) return ok('The database holds nothing sealed yet.');
  if (masterKeys === undefined)
    return fail(
      'There are no master keys, and the database was sealed with some.',
      'Set TRELLIS_ENCRYPTION_KEYS, or put DATA_DIR/master.key back from its backup. Nothing sealed can be read without them.',
    );
  const fault = await findKeyFault(db, masterKeys);
  if (fault !== undefined)
    return fail(fault.message, 'Give every node the same keys as before, the one that seals first.');
  const [sealing] = masterKeys;
  const retired = known.find(({ id, retiredAt }) => id === sealing?.id && retiredAt !== undefined);
  if (retired !== undefined)
    return warn(
      `The first master key, "${retired.id}", is retired.`,
      'Put the one in front that seals; "trellis keys list" names it.',
    );
  const droppable = known.filter(
    ({ id, retiredAt }) => retiredAt !== undefined && masterKeys.some((given) => given.id === id),
  );
  if (droppable.length > 0)
    return ok(
      `The keys open what the database holds; ${droppable.map(({ id }) => id).join(', ')} may be dropped.`,
    );
  return ok('The keys open what the database holds.');
}
