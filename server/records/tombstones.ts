import type { Tx } from '../db/pool.ts';
import { advanceDataset, type Dataset } from './dataset.ts';
import { arrayText } from './payloads.ts';

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
    const some = arrayText(seqs.slice(start, start + chunk));
    await tx.query(
      `update record
       set
         seq = $2::bigint + array_position($3::bigint[], seq) - 1,
         last_modified_at = $4::timestamptz,
         deleted_at = $4::timestamptz,
         pruned_at = case
           when (select true from payload where payload.dataset_id = $1 and payload.seq = record.seq) is null
           then (${lastReceipt})
         end
       where dataset_id = $1 and seq = any($3::bigint[])`,
      [dataset.id, firstSeq + start, some, modifiedAt],
    );
    await tx.query(
      `update payload
       set seq = $2::bigint + array_position($3::bigint[], seq) - 1
       where dataset_id = $1 and seq = any($3::bigint[])`,
      [dataset.id, firstSeq + start, some],
    );
  }
}

/** When the payload at a record's position went. `offset 0` keeps the planner from walking all receipts backwards. */
const lastReceipt = `
  select held.pruned_at
  from (
    select prune.id, prune.pruned_at
    from prune
    where
      box(point(prune.dataset_id, lower(prune.seqs)), point(prune.dataset_id, upper(prune.seqs)))
        && box(point(record.dataset_id, record.seq), point(record.dataset_id, record.seq))
      and prune.seqs @> record.seq
    offset 0
  ) as held
  order by held.id desc
  limit 1`;
