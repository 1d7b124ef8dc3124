import { timingSafeEqual } from 'node:crypto';
import type { MasterKey } from '../config.ts';
import type { Queryable, Tx } from '../db/pool.ts';
import { proofOf } from '../vault.ts';
import { registerMasterKey } from './store.ts';

/** Which master keys a database knows, and which may wrap. */

/** Whether anything in this database was sealed, by whichever master key. */
export async function isSealed(db: Queryable): Promise<boolean> {
  return (await db.query('select from master_key limit 1')).length > 0;
}

export type KnownMasterKey = {
  id: string;
  dataKeys: number;
  createdAt: Date;
  retiredAt: Date | undefined;
};

/** All master keys that this database was ever used with, the oldest first. */
export async function listMasterKeys(db: Queryable): Promise<KnownMasterKey[]> {
  const rows = await db.query<Omit<KnownMasterKey, 'retiredAt'> & { retiredAt: Date | null }>(
    `select
       id, created_at as "createdAt", retired_at as "retiredAt",
       (select count(*) from data_key where data_key.master_key = master_key.id) as "dataKeys"
     from master_key
     order by created_at, id`,
  );
  return rows.map((row) => ({ ...row, retiredAt: row.retiredAt ?? undefined }));
}

/**
 * Compares the ring with the keys that this database knows, and notes the one that wraps now. Throws, naming the id,
 * where one that may have wrapped something is missing, or where one differs: a service that cannot read its own data
 * must not start.
 */
export async function proveKeyRing(db: Queryable, masterKeys: readonly MasterKey[]): Promise<void> {
  const known = await db.query<{ id: string; proof: Buffer; retiredAt: Date | null }>(
    'select id, proof, retired_at as "retiredAt" from master_key order by id',
  );
  proveBytes(known, masterKeys);
  for (const { id, retiredAt } of known) {
    if (retiredAt === null && !masterKeys.some((key) => key.id === id))
      throw new Error(
        `The master key "${id}" is missing: this database holds data it wrapped. Put it back behind the first ` +
          'one; "trellis keys rotate" says when it may be dropped.',
      );
  }
  const [sealing] = masterKeys;
  if (sealing) await registerMasterKey(db, sealing);
}

/**
 * As `proveKeyRing`, for a rotation: a key that wraps nothing may be missing. Throws too where the first one is retired.
 */
export async function proveForRotation(
  db: Queryable,
  masterKeys: readonly [MasterKey, ...MasterKey[]],
): Promise<void> {
  const known = await db.query<{ id: string; proof: Buffer; isRetired: boolean; isUsed: boolean }>(
    `select
       id, proof, retired_at is not null as "isRetired",
       exists (select from data_key where data_key.master_key = master_key.id) as "isUsed"
     from master_key
     order by id`,
  );
  proveBytes(known, masterKeys);
  const [sealing] = masterKeys;
  for (const { id, isRetired, isUsed } of known) {
    if (isUsed && !masterKeys.some((key) => key.id === id))
      throw new Error(`The master key "${id}" is missing: this database holds data it wrapped.`);
    if (isRetired && id === sealing.id)
      throw new Error(`The master key "${id}" is retired for good. Put another one first.`);
  }
  await registerMasterKey(db, sealing);
}

function proveBytes(known: readonly { id: string; proof: Buffer }[], masterKeys: readonly MasterKey[]): void {
  for (const { id, proof } of known) {
    const key = masterKeys.find((candidate) => candidate.id === id);
    if (key && !timingSafeEqual(proofOf(key), proof))
      throw new Error(`The master key "${id}" is not the one used before.`);
  }
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
