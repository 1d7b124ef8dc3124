import type { Tx } from '../db/pool.ts';
import { advanceDataset, type Dataset, rowsAt } from './dataset.ts';
import { arrayText, findPruned } from './payloads.ts';
import { findPruneTimes } from './prune-times.ts';

/**
 * Makes tombstones of the live records of a locked dataset at `seqs`: each moves to the next position, in the order
 * given, and keeps the payload it had last. One that is pruned stays so, and when it was pruned is written on it, since
 * no receipt names its new position. Answers their ids, in that order.
 *
 * One statement a table, however many there are, and one index probe a row: see `rowsAt`.
 */
export async function buryRecords(
  tx: Tx,
  by: { dataset: Dataset; seqs: readonly number[] },
): Promise<string[]> {
  const { dataset, seqs } = by;
  if (seqs.length === 0) return [];
  const { firstSeq, modifiedAt } = await advanceDataset(tx, dataset.id, {
    seqs: seqs.length,
    records: -seqs.length,
    deleted: seqs.length,
  });
  const times = await findTimes(tx, dataset, seqs);
  const moved = await tx.query<{ id: string; seq: number }>(
    `update record
     set
       seq = $2::bigint + part.at - 1,
       last_modified_at = $5::timestamptz,
       deleted_at = $5::timestamptz,
       pruned_at = part.pruned_at at time zone 'UTC'
     from (
       select row_id, pruned_at, at
       from unnest($3::bigint[], $4::timestamp[]) with ordinality as asked (seq, pruned_at, at)
       ${rowsAt('record')}
     ) as part
     where record.ctid = part.row_id
     returning external_id as id, record.seq`,
    [
      dataset.id,
      firstSeq,
      arrayText(seqs),
      times.size === 0 ? null : seqs.map((seq) => times.get(seq) ?? null),
      modifiedAt,
    ],
  );
  await tx.query(
    `update payload
     set seq = $2::bigint + part.at - 1
     from (
       select row_id, at
       from unnest($3::bigint[]) with ordinality as asked (seq, at)
       ${rowsAt('payload')}
     ) as part
     where payload.ctid = part.row_id`,
    [dataset.id, firstSeq, arrayText(seqs)],
  );
  return moved.sort((a, b) => a.seq - b.seq).map(({ id }) => id);
}

/** When the pruned ones among live records were pruned. */
async function findTimes(
  tx: Tx,
  dataset: Dataset,
  seqs: readonly number[],
): Promise<ReadonlyMap<number, string>> {
  if (dataset.pruned === 0) return new Map();
  const pruned = await findPruned(tx, { datasetId: dataset.id, seqs });
  if (pruned.size === 0) return new Map();
  return findPruneTimes(tx, { datasetId: dataset.id, seqs: [...pruned] });
}
