import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Db, Tx } from '../db/pool.ts';
import { inDataset, type LockedDataset, lockDataset } from './dataset.ts';
import { lockForWrite } from './datasets.ts';

/**
 * The rows of a dataset from before it was emptied.
 *
 * A dataset is emptied by an update of its row, whatever its size. Its former records, payloads and receipts stay in the
 * tables, up to the position `emptied_seq`, until steps of bounded length have removed them: before the next write, or by
 * the job of `retention/destroy.ts`. Readers skip them, and no write sees them. A process that is killed between two steps
 * leaves the rest to the next one.
 */

/** The maximum number of rows removed in one transaction: far less than a tenth of a second of work. */
const chunk = 500;

/**
 * A transaction that writes to a dataset, which `lockForWrite` locks. First removes what is left from before the dataset
 * was emptied, without holding the lock between two steps.
 */
export async function writeTransaction<T>(
  db: Db,
  at: { connection: number; datasetId: number },
  work: (tx: Tx, dataset: LockedDataset) => Promise<T>,
): Promise<T> {
  for (;;) {
    const written = await db.transaction(async (tx) => {
      const dataset = await lockForWrite(tx, at);
      return dataset.hasLeftovers ? undefined : { result: await work(tx, dataset) };
    });
    if (written !== undefined) return written.result;
    await removeLeftovers(db, at.datasetId);
  }
}

/** Removes the rows from before a dataset was emptied, in steps. `signal` stops it after the current step. */
export async function removeLeftovers(
  db: Db,
  datasetId: number,
  { signal }: { signal?: AbortSignal | undefined } = {},
): Promise<void> {
  while (!signal?.aborted && (await db.transaction((tx) => removeSome(tx, datasetId)))) await nextTurn();
}

/** Returns whether there may be more. */
async function removeSome(tx: Tx, datasetId: number): Promise<boolean> {
  const dataset = await lockDataset(tx, datasetId);
  if (!dataset?.hasLeftovers) return false;
  for (const [table, until, order] of leftovers) {
    const [gone] = await tx.query<{ count: number }>(
      `with gone as (
         delete from ${table}
         using (
           select ctid as row_id
           from ${table}
           where dataset_id = $1 and ${until} <= $2
           order by ${order}
           limit $3
         ) as part
         where ${table}.ctid = part.row_id and ${table}.${inDataset}
         returning 1
       )
       select count(*) as count from gone`,
      [datasetId, dataset.emptiedSeq, chunk],
    );
    if ((gone?.count ?? 0) > 0) return true;
  }
  await tx.query('update dataset set has_leftovers = false where id = $1', [datasetId]);
  return false;
}

/** The tables, the last position of a row, and the order of an index. */
const leftovers = [
  ['payload', 'seq', 'seq'],
  ['record', 'seq', 'seq'],
  ['prune', 'upper(seqs) - 1', 'id'],
] as const;

/** The datasets that were emptied and have rows from before. */
export async function listWithLeftovers(db: Db): Promise<number[]> {
  const rows = await db.query<{ id: number }>('select id from dataset where has_leftovers order by id');
  return rows.map(({ id }) => id);
}
