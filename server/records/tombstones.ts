import type { Tx } from '../db/pool.ts';
import { advanceDataset, type Dataset } from './dataset.ts';
import { arrayText, findPruned } from './payloads.ts';
import { findPruneTimes } from './prune-times.ts';

/** Rows moved by one statement: `array_position` looks through so many. */
const chunk = 1000;

/**
 * Makes tombstones of the live records of a locked dataset at `seqs`: each moves to the next position, in the order
 * given, and keeps the payload it had last. One that is pruned stays so, and when it was pruned is written on it, since
 * no receipt names its new position.
 */
export async function buryRecords(tx: Tx, by: { dataset: Dataset; seqs: readonly number[] }): Promise<void> {
  const { dataset, seqs } = by;
  if (seqs.length === 0) return;
  const { firstSeq, modifiedAt } = await advanceDataset(tx, dataset.id, {
    seqs: seqs.length,
    records: -seqs.length,
    deleted: seqs.length,
  });
  for (let start = 0; start < seqs.length; start += chunk) {
    const some = seqs.slice(start, start + chunk);
    const times = await findTimes(tx, dataset, some);
    await tx.query(
      `update record
       set
         seq = $2::bigint + array_position($3::bigint[], seq) - 1,
         last_modified_at = $4::timestamptz,
         deleted_at = $4::timestamptz,
         pruned_at = ($5::timestamp[])[array_position($3::bigint[], seq)] at time zone 'UTC'
       where dataset_id = $1 and seq = any($3::bigint[])`,
      [dataset.id, firstSeq + start, arrayText(some), modifiedAt, some.map((seq) => times.get(seq) ?? null)],
    );
    await tx.query(
      `update payload
       set seq = $2::bigint + array_position($3::bigint[], seq) - 1
       where dataset_id = $1 and seq = any($3::bigint[])`,
      [dataset.id, firstSeq + start, arrayText(some)],
    );
  }
}

/** When the pruned ones among live records were pruned. */
async function findTimes(tx: Tx, dataset: Dataset, seqs: readonly number[]): Promise<Map<number, string>> {
  if (dataset.pruned === 0) return new Map();
  const pruned = await findPruned(tx, { datasetId: dataset.id, seqs });
  if (pruned.size === 0) return new Map();
  return findPruneTimes(tx, { datasetId: dataset.id, seqs: [...pruned] });
}
