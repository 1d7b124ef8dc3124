/**
 * The rows of a dataset from before it was emptied, and the marks of a delete tracking that was closed.
 *
 * A dataset is emptied by an update of its row, whatever its size. Its former records, payloads and receipts stay in the
 * tables, up to the position `emptied_seq`, until steps of bounded length have removed them: before the next write, or by
 * the job of `retention/destroy.ts`. Readers skip them, and no write sees them. In the same way a tracking is closed:
 * without an open one all marks are former ones. A process that is killed between two steps leaves the rest to the next one.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Db, recordsDb, type Tx } from '../db/pool.ts';
import { inDataset, lockDataset } from './dataset.ts';

/** The maximum number of rows removed in one transaction: far less than a tenth of a second of work. */
export const chunk = 500;

/** Removes the rows from before a dataset was emptied, in steps. `signal` stops it after the current step. */
export async function removeLeftovers(
  db: Db,
  datasetId: number,
  { signal }: { signal?: AbortSignal | undefined } = {},
): Promise<void> {
  const records = recordsDb(db, datasetId);
  while (!signal?.aborted && (await records.transaction((tx) => removeSome(tx, datasetId)))) await nextTurn();
}

/** Returns whether there may be more. */
async function removeSome(tx: Tx, datasetId: number): Promise<boolean> {
  const dataset = await lockDataset(tx, datasetId);
  if (!dataset?.hasLeftovers) return false;
  if (dataset.trackedFrom === null && (await removeMarks(tx, datasetId)).mayHaveMore) return true;
  for (const [table, until, order] of leftovers) {
    if (dataset.emptiedSeq === 0) break;
    const gone = await removeRows(tx, { datasetId, table, until: [until, dataset.emptiedSeq], order });
    if (gone > 0) return true;
  }
  await tx.query('update dataset set has_leftovers = false where id = $1', [datasetId]);
  return false;
}

/** Removes marks of a locked dataset: as many as one transaction may. */
export async function removeMarks(tx: Tx, datasetId: number): Promise<{ mayHaveMore: boolean }> {
  const until = ['id', Number.MAX_SAFE_INTEGER] as const;
  const gone = await removeRows(tx, { datasetId, table: 'tracked', until, order: 'id' });
  return { mayHaveMore: gone === chunk };
}

/** Removes the first rows whose value is at most the given one, and returns how many. */
async function removeRows(
  tx: Tx,
  of: { datasetId: number; table: string; until: readonly [value: string, last: number]; order: string },
): Promise<number> {
  const { table, until, order } = of;
  const [gone] = await tx.query<{ count: number }>(
    `with gone as (
       delete from ${table}
       using (
         select ctid as row_id
         from ${table}
         where dataset_id = $1 and ${until[0]} <= $2
         order by ${order}
         limit $3
       ) as part
       where ${table}.ctid = part.row_id and ${table}.${inDataset}
       returning 1
     )
     select count(*) as count from gone`,
    [of.datasetId, until[1], chunk],
  );
  return gone?.count ?? 0;
}

/** The tables, the last position of a row, and the order of an index. */
const leftovers = [
  ['payload', 'seq', 'seq'],
  ['record', 'seq', 'seq'],
  ['prune', 'upper(seqs) - 1', 'id'],
] as const;

/** The datasets that have such rows. */
export async function listWithLeftovers(db: Db): Promise<number[]> {
  const rows = await db.query<{ id: number }>('select id from dataset where has_leftovers order by id');
  return rows.map(({ id }) => id);
}
