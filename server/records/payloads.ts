import { CopyRows } from '../db/copy.ts';
import { first, type Tx } from '../db/pool.ts';

/** SQL of the table `payload`; every function here needs the dataset's lock. */

/** Bytes of one COPY: what a save holds of its payloads a second time. */
const copyBytes = 1_280 * 1024;

/**
 * Writes payload rows, by COPY: as parameters of a statement bodies would go as hex text or be cut from one another by
 * the server, and each row be logged by itself.
 */
export async function insertPayloads(
  tx: Tx,
  rows: { datasetId: number; seqs: readonly number[]; bodies: readonly Buffer[] },
): Promise<void> {
  const sizes = rows.bodies.map((body) => body.length + 30);
  const size = sizes.reduce((sum, bytes) => sum + bytes, 64);
  const copy = new CopyRows(Math.min(size, copyBytes + Math.max(...sizes)));
  let filled = 0;
  for (const [index, body] of rows.bodies.entries()) {
    copy
      .row(3)
      .int8(rows.datasetId)
      .int8(rows.seqs[index] as number)
      .bytes(body);
    filled += sizes[index] as number;
    if (filled < copyBytes && index < rows.bodies.length - 1) continue;
    await tx.copyInto('payload (dataset_id, seq, body)', copy);
    copy.clear();
    filled = 0;
  }
}

/** Removes the payloads at `seqs` where there are any; what was removed. */
export async function deletePayloads(
  tx: Tx,
  at: { datasetId: number; seqs: readonly number[] },
): Promise<{ count: number; bytes: number }> {
  if (at.seqs.length === 0) return { count: 0, bytes: 0 };
  const rows = await tx.query<{ count: number; bytes: number }>(
    `with gone as (
       delete from payload
       where dataset_id = $1 and seq = any($2::bigint[])
       returning octet_length(body) as bytes
     )
     select count(*) as count, coalesce(sum(bytes), 0)::bigint as bytes
     from gone`,
    [at.datasetId, arrayText(at.seqs)],
  );
  return first(rows) ?? { count: 0, bytes: 0 };
}

/** Those of `seqs` at which no payload stands. One index probe each: the subquery cannot become a join. */
export async function findPruned(
  tx: Tx,
  at: { datasetId: number; seqs: readonly number[] },
): Promise<Set<number>> {
  const rows = await tx.query<{ seq: number }>(
    `select asked.seq
     from unnest($2::bigint[]) as asked (seq)
     where (select true from payload where dataset_id = $1 and payload.seq = asked.seq) is null`,
    [at.datasetId, arrayText(at.seqs)],
  );
  return new Set(rows.map(({ seq }) => seq));
}

/** Numbers as an array literal: the driver would quote each. */
export function arrayText(numbers: readonly number[]): string {
  return `{${numbers.join()}}`;
}
