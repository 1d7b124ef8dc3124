import { timingSafeEqual } from 'node:crypto';
import type { MasterKey } from '../config/config.ts';
import type { Queryable, Tx } from '../db/pool.ts';
import { proofOf } from '../vault.ts';

/** Which master keys a database knows, and which may wrap. */

/** Whether anything in this database was sealed, by whichever master key. */
export async function isSealed(db: Queryable): Promise<boolean> {
  return (await db.query('select from master_key limit 1')).length > 0;
}

type KnownMasterKey = {
  id: string;
  /** As `proofOf` gives it. */
  proof: Buffer;
  dataKeys: number;
  createdAt: Date;
  retiredAt: Date | undefined;
};

/** All master keys that this database was ever used with, the oldest first. */
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

/** Whether these are the bytes that the database knows under the id. */
export function isSameKey({ proof }: Pick<KnownMasterKey, 'proof'>, given: MasterKey): boolean {
  return timingSafeEqual(proofOf(given), proof);
}

/**
 * Compares the ring with the keys that this database knows. Throws, naming the id, where one that may have wrapped
 * something is missing, or where one differs: a service that cannot read its own data must not start. Notes nothing: the
 * first key counts as used when it wraps, or when the service has started (`registerMasterKey`).
 */
export async function proveKeyRing(db: Queryable, masterKeys: readonly MasterKey[]): Promise<void> {
  const known = await listMasterKeys(db);
  proveRing(known, { masterKeys, isNeeded: ({ retiredAt }) => retiredAt === undefined });
}

/** As `proveKeyRing`, but that it reads no counts and answers what it would throw: cheap enough to be asked every second. */
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
 * As `proveKeyRing`, for a rotation: a key that wraps nothing may be missing. Throws too where the first one is retired.
 */
export async function proveForRotation(
  db: Queryable,
  masterKeys: readonly [MasterKey, ...MasterKey[]],
): Promise<void> {
  const known = await listMasterKeys(db);
  proveRing(known, { masterKeys, isNeeded: ({ dataKeys }) => dataKeys > 0 });
  const [sealing] = masterKeys;
  if (known.some(({ id, retiredAt }) => id === sealing.id && retiredAt !== undefined))
    throw new Error(`The master key "${sealing.id}" is retired for good. Put another one first.`);
}

/**
 * Throws where a key that came into use after the first one of the ring is not retired: the list is in the order from
 * before a rotation, and to go by it would retire the new key for good.
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
    `The master key "${younger.id}" came into use after "${sealing.id}". Put it first; or, to go back to ` +
      `"${sealing.id}" and retire "${younger.id}" for good, say --back.`,
  );
}

/**
 * Throws where the first key of the ring was never used: no service has started with it in front, and nothing was wrapped
 * with it. Those that run may not have it then, and could read nothing that it wraps. It is proof of one node at most,
 * not of all.
 */
export async function proveStarted(
  db: Queryable,
  masterKeys: readonly [MasterKey, ...MasterKey[]],
): Promise<void> {
  const known = await listMasterKeys(db);
  const [sealing] = masterKeys;
  if (known.length === 0 || known.some(({ id }) => id === sealing.id)) return;
  throw new Error(
    `No service has started with the master key "${sealing.id}" in front yet: one that runs without it could read ` +
      'nothing any more. Restart every node with these keys first.',
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
      return new Error(`The master key "${key.id}" is not the one used before.`);
    if (!given && isNeeded(key))
      return new Error(
        `The master key "${key.id}" is missing: this database holds data it wrapped. Put it back behind the first ` +
          'one; "trellis keys rotate" says when it may be dropped.',
      );
  }
  return undefined;
}

/**
 * Retires a master key if it wraps nothing, for good: no node wraps with it from now on, whatever its settings. False
 * where it still wraps, or was retired before.
 */
export async function retireMasterKey(tx: Tx, id: string): Promise<boolean> {
  // Waits for those who are about to wrap with it. A statement of its own, so that the next one sees what they did.
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
