import { setTimeout as sleep } from 'node:timers/promises';
import type { Db, Queryable } from '../db/pool.ts';
import type { Vault } from '../vault.ts';
import { listMasterKeys, proveForRotation } from './master-keys.ts';
import { pagesOfDataKeys, registerMasterKey } from './store.ts';

/** Keys rewrapped in one statement, which takes a few milliseconds. A deletion may wait for it. */
const batch = 200;
const pauseMs = 100;

type Progress = { rewrapped: number; total: number };

/** Counts the data keys of all master keys other than the first one of the ring, by the ID of the master key. */
export async function countOthers(db: Queryable, vault: Vault): Promise<Map<string, number>> {
  const [sealing] = vault.masterKeys;
  const others = (await listMasterKeys(db)).filter(({ id, dataKeys }) => id !== sealing.id && dataKeys > 0);
  return new Map(others.map(({ id, dataKeys }) => [id, dataKeys]));
}

/**
 * Wraps all data keys again, with the first master key of the ring; returns how many it wrapped.
 *
 * The sealed data are not touched, so a process with both master keys can read everything at each moment. No progress
 * is stored: the rotation takes the keys that are left, also after it was killed, and beside another rotation. A key
 * that is being destroyed, or that another process has wrapped meanwhile, is skipped and checked again, until
 * `patienceMs` pass without any progress. Throws as `proveForRotation` does.
 */
export async function rotateDataKeys(
  db: Db,
  given: { vault: Vault; patienceMs?: number; onProgress?: (progress: Progress) => void },
): Promise<number> {
  const { vault, patienceMs = 10_000, onProgress = () => {} } = given;
  await proveForRotation(db, vault.masterKeys);
  await registerMasterKey(db, vault.masterKeys[0]);
  let rewrapped = 0;
  let giveUpAt = performance.now() + patienceMs;
  for (;;) {
    const others = await countOthers(db, vault);
    const left = [...others.values()].reduce((sum, count) => sum + count, 0);
    if (left === 0) return rewrapped;
    const total = rewrapped + left;
    onProgress({ rewrapped, total });
    for (const id of others.keys()) {
      for await (const rows of pagesOfDataKeys(db, { size: batch, masterKey: id })) {
        const count = await swap(db, { vault, rows });
        rewrapped += count;
        if (count > 0) giveUpAt = performance.now() + patienceMs;
        onProgress({ rewrapped, total: Math.max(total, rewrapped) });
      }
    }
    if (performance.now() >= giveUpAt) return rewrapped;
    await sleep(pauseMs);
  }
}

/**
 * Replaces the wrapped form of each key that is unchanged. Skips locked rows, so that the rotation and a deletion of
 * many connections cannot deadlock.
 */
async function swap(
  db: Db,
  { vault, rows }: { vault: Vault; rows: readonly { id: string; wrapped: Buffer }[] },
): Promise<number> {
  const swapped = await db.query(
    `with sealing as (
       select id
       from master_key
       where id = $1 and retired_at is null
       for key share
     ),
     given as (
       select * from unnest($2::uuid[], $3::bytea[], $4::bytea[]) as given (id, old, young)
     ),
     held as (
       select data_key.id, given.young
       from data_key
       join given on given.id = data_key.id and given.old = data_key.wrapped
       order by data_key.id
       for no key update of data_key skip locked
     )
     update data_key
     set master_key = sealing.id, wrapped = held.young
     from held, sealing
     where data_key.id = held.id
     returning data_key.id`,
    [
      vault.masterKeys[0].id,
      rows.map(({ id }) => id),
      rows.map(({ wrapped }) => wrapped),
      rows.map(({ wrapped }) => vault.rewrap(wrapped)),
    ],
  );
  return swapped.length;
}
