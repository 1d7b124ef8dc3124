import { timingSafeEqual } from 'node:crypto';
import type { MasterKey } from '../config/config.ts';
import type { Queryable, Tx } from '../db/pool.ts';
import { proofOf } from '../vault.ts';

/** The master keys that a database was used with, and which of them may wrap. */

/** Whether the database has data that any master key sealed. */
export async function isSealed(db: Queryable): Promise<boolean> {
  return (await db.query('select from master_key limit 1')).length > 0;
}

type KnownMasterKey = {
  id: string;
  /** The result of `proofOf`. */
  proof: Buffer;
  dataKeys: number;
  createdAt: Date;
  retiredAt: Date | undefined;
};

/** All master keys that the database was ever used with, oldest first. */
export async function listMasterKeys(db: Queryable): Promise<KnownMasterKey[]> {
  const rows = await db.query<Omit<KnownMasterKey, 'retiredAt'> & { retiredAt: Date | null }>(
    `select
       id, proof, created_at as "createdAt", retired_at as "retiredAt",
       (select count(*) from data_key where data_key.master_key = master_key.id) as "dataKeys"
     from master_key
     order by created_at, id`,
  );
  return rows.map((row) => ({ ...row, retiredAt: row.retiredAt ?? undefined }));
}

/** Whether the given key has the bytes that the database has registered under its ID. */
export function isSameKey({ proof }: Pick<KnownMasterKey, 'proof'>, given: MasterKey): boolean {
  return timingSafeEqual(proofOf(given), proof);
}

/**
 * Compares the ring with the registered keys. Throws, with the ID, if a key that may have wrapped data is missing or
 * differs: a service that cannot read its data must not start. Writes nothing: the first key is registered when it
 * wraps, or when the service has started (`registerMasterKey`).
 */
export async function proveKeyRing(db: Queryable, masterKeys: readonly MasterKey[]): Promise<void> {
  const known = await listMasterKeys(db);
  proveRing(known, { masterKeys, isNeeded: ({ retiredAt }) => retiredAt === undefined });
}

/** As `proveKeyRing`, but returns the error and reads no counts, so that it can run each second. */
export async function findKeyFault(
  db: Queryable,
  masterKeys: readonly MasterKey[],
): Promise<Error | undefined> {
  const known = await db.query<RingKey & { isRetired: boolean }>(
    'select id, proof, retired_at is not null as "isRetired" from master_key order by created_at, id',
  );
  return ringFault(known, { masterKeys, isNeeded: ({ isRetired }) => !isRetired });
}

/**
 * As `proveKeyRing`, for a rotation: a key that wraps nothing may be missing. Also throws if the first key is
 * retired.
 */
export async function proveForRotation(
  db: Queryable,
  masterKeys: readonly [MasterKey, ...MasterKey[]],
): Promise<void> {
  const known = await listMasterKeys(db);
  proveRing(known, { masterKeys, isNeeded: ({ dataKeys }) => dataKeys > 0 });
  const [sealing] = masterKeys;
  if (known.some(({ id, retiredAt }) => id === sealing.id && retiredAt !== undefined))
    throw new Error(`The master key "${sealing.id}" is permanently retired. Put another key first.`);
}

/**
 * Throws if a key that came into use after the first key of the ring is not retired: the list still has the order
 * from before a rotation, and would retire the new key permanently.
 */
export async function proveOrder(
  db: Queryable,
  masterKeys: readonly [MasterKey, ...MasterKey[]],
): Promise<void> {
  const known = await listMasterKeys(db);
  const [sealing] = masterKeys;
  const since = known.find(({ id }) => id === sealing.id)?.createdAt;
  const younger = known.find(
    ({ createdAt, retiredAt }) => since !== undefined && createdAt > since && retiredAt === undefined,
  );
  if (younger === undefined) return;
  throw new Error(
    `The master key "${younger.id}" was first used after "${sealing.id}". Put "${younger.id}" first, or use --back to ` +
      `return to "${sealing.id}" and permanently retire "${younger.id}".`,
  );
}

/**
 * Throws if the first key of the ring was never used: no service has started with it in first place, and it wrapped
 * nothing. Running nodes may lack it and could not read what it wraps. A used key proves that one node has it, not
 * all nodes.
 */
export async function proveStarted(
  db: Queryable,
  masterKeys: readonly [MasterKey, ...MasterKey[]],
): Promise<void> {
  const known = await listMasterKeys(db);
  const [sealing] = masterKeys;
  if (known.length === 0 || known.some(({ id }) => id === sealing.id)) return;
  throw new Error(
    `No node was started with "${sealing.id}" as the first master key yet. A running node without this key could no ` +
      'longer read the data. Restart all nodes with these keys first.',
  );
}

type RingKey = Pick<KnownMasterKey, 'id' | 'proof'>;
type Ring<Known> = { masterKeys: readonly MasterKey[]; isNeeded: (key: Known) => boolean };

function proveRing<Known extends RingKey>(known: readonly Known[], ring: Ring<Known>): void {
  const fault = ringFault(known, ring);
  if (fault !== undefined) throw fault;
}

function ringFault<Known extends RingKey>(
  known: readonly Known[],
  { masterKeys, isNeeded }: Ring<Known>,
): Error | undefined {
  for (const key of known) {
    const given = masterKeys.find(({ id }) => id === key.id);
    if (given && !isSameKey(key, given))
      return new Error(`The master key "${key.id}" is not the key that was used before.`);
    if (!given && isNeeded(key))
      return new Error(
        `The master key "${key.id}" is missing: it wraps data keys of this database. Add it again after the first ` +
          'key; "trellis keys rotate" prints when it can be removed.',
      );
  }
  return undefined;
}

/**
 * Permanently retires a master key that wraps nothing: no node wraps with it from now on, whatever its settings.
 * False if it still wraps, or was already retired.
 */
export async function retireMasterKey(tx: Tx, id: string): Promise<boolean> {
  // Waits for transactions that wrap with it. A separate statement, so that the next one sees their commits.
  await tx.query('select from master_key where id = $1 for update', [id]);
  const retired = await tx.query(
    `update master_key
     set retired_at = now()
     where id = $1
       and retired_at is null
       and not exists (select from data_key where master_key = $1)
     returning id`,
    [id],
  );
  return retired.length === 1;
}
