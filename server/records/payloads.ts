import { first, type Tx } from '../db/pool.ts';

/** SQL of the table `payload`; every function here needs the dataset's lock. */

/**
 * Writes payload rows. All bodies travel as one binary parameter that the server cuts up: an array of bytea would
 * go as hex text, which took 2 to 4 times as long.
 */
export async function insertPayloads(
  tx: Tx,
  rows: { datasetId: number; seqs: readonly number[]; bodies: readonly Buffer[] },
): Promise<{ bytes: number }> {
  const { datasetId, seqs, bodies } = rows;
  let bytes = 0;
  const starts = bodies.map((body) => {
    const start = bytes + 1;
    bytes += body.length;
    return start;
  });
  await tx.query(
    `insert into payload (dataset_id, seq, body)
     select $1, part.seq, substring($2::bytea from part.start for part.length)
     from unnest($3::bigint[], $4::int[], $5::int[]) as part (seq, start, length)`,
    [
      datasetId,
      Buffer.concat(bodies, bytes),
      arrayText(seqs),
      arrayText(starts),
      arrayText(bodies.map((body) => body.length)),
    ],
  );
  return { bytes };
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
