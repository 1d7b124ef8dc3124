import type { Tx } from '../db/pool.ts';

/**
 * When the payloads at these positions, at which none stands, were pruned: the latest receipt that holds a position
 * says. In UTC to the microsecond, as text without a zone. Receipts are read once, however many ranges they have:
 * a look-up in SQL unpacks a receipt for each position, and took 0.9 ms for one of 10,000 ranges.
 */
export async function findPruneTimes(
  tx: Tx,
  at: { datasetId: number; seqs: readonly number[] },
): Promise<Map<number, string>> {
  const seqs = [...at.seqs].sort((a, b) => a - b);
  const times = new Map<number, string>();
  // The box names the dataset too: a condition on the column beside it would lead the planner to the index that has
  // all receipts of the dataset.
  const receipts = await tx.query<{ prunedAt: string; seqs: string }>(
    `select
       (pruned_at at time zone 'UTC')::text as "prunedAt",
       (seqs * int8multirange(int8range($2, $3, '[]')))::text as seqs
     from prune
     where
       box(point(dataset_id, lower(seqs)), point(dataset_id, upper(seqs)))
         && box(point($1::bigint, $2::bigint), point($1::bigint, $3::bigint))
       and seqs && int8range($2, $3, '[]')
     order by id`,
    [at.datasetId, seqs[0] ?? 0, seqs.at(-1) ?? 0],
  );
  for (const receipt of receipts) {
    let next = 0;
    // `{[1,5),[7,8)}`: ranges in order, as positions are here, so both are walked once.
    for (const [, start, end] of receipt.seqs.matchAll(/\[(\d+),(\d+)\)/g)) {
      while ((seqs[next] ?? Number.POSITIVE_INFINITY) < Number(start)) next += 1;
      for (; (seqs[next] ?? Number.POSITIVE_INFINITY) < Number(end); next += 1) {
        times.set(seqs[next] as number, receipt.prunedAt);
      }
    }
  }
  return times;
}
