import { CopyRows } from '../db/copy.ts';
import { first, type Tx } from '../db/pool.ts';
import { rowsAt } from './dataset.ts';

/** SQL of the table `payload`; every function here needs the dataset's lock. */

/** Bytes of one COPY: what a save holds of its payloads a second time. */
const copyBytes = 1_280 * 1024;

/** SQL: the sealed bytes that go with a row, which are those of its payload and of what is kept of the one before. */
export const rowBytes = 'octet_length(body) + coalesce(octet_length(previous), 0)';

/**
 * Writes payload rows, by COPY: as parameters of a statement bodies would go as hex text or be cut from one another by
 * the server, and each row be logged by itself.
 */
export async function insertPayloads(
  tx: Tx,
  rows: {
    datasetId: number;
    seqs: readonly number[];
    bodies: readonly Buffer[];
    /** What is kept of the payload before, by seq. */
    previous: ReadonlyMap<number, Buffer>;
  },
): Promise<void> {
  if (rows.seqs.length === 0) return;
  const { datasetId, previous } = rows;
  const hasPrevious = previous.size > 0;
  const previousAt = (index: number) => previous.get(rows.seqs[index] as number);
  const sizes = rows.bodies.map((body, index) => body.length + (previousAt(index)?.length ?? 0) + 34);
  const size = sizes.reduce((sum, bytes) => sum + bytes, 64);
  const copy = new CopyRows(Math.min(size, copyBytes + Math.max(...sizes)));
  let filled = 0;
  for (const [index, body] of rows.bodies.entries()) {
    copy
      .row(hasPrevious ? 4 : 3)
      .int8(datasetId)
      .int8(rows.seqs[index] as number)
      .bytes(body);
    const before = previousAt(index);
    if (before !== undefined) copy.bytes(before);
    else if (hasPrevious) copy.null();
    filled += sizes[index] as number;
    if (filled < copyBytes && index < rows.bodies.length - 1) continue;
    await tx.copyInto(`payload (dataset_id, seq, body${hasPrevious ? ', previous' : ''})`, copy);
    copy.clear();
    filled = 0;
  }
}

/** Of those of `seqs` at which a payload stands, the bytes of what is kept of the one before. */
export async function findPreviousBytes(
  tx: Tx,
  at: { datasetId: number; seqs: readonly number[] },
): Promise<Map<number, number>> {
  if (at.seqs.length === 0) return new Map();
  const rows = await tx.query<{ seq: number; bytes: number }>(
    `select found.*
     from unnest($2::bigint[]) as asked (seq)
     cross join lateral (
       select seq, coalesce(octet_length(previous), 0) as bytes
       from payload
       where dataset_id = $1 and payload.seq = asked.seq
       offset 0
     ) as found`,
    [at.datasetId, arrayText(at.seqs)],
  );
  return new Map(rows.map(({ seq, bytes }) => [seq, bytes]));
}

/**
 * Replaces the payload at `former`, keeps that payload beside the new one in place of the payload kept before, and moves
 * both to `seq`. The former payload is neither read nor sealed again: its seal is bound only to dataset and id.
 */
export async function replacePayloads(
  tx: Tx,
  { datasetId, rows }: { datasetId: number; rows: readonly { former: number; seq: number; body: Buffer }[] },
): Promise<void> {
  let bytes = 0;
  const portions = Map.groupBy(rows, ({ body }) => {
    bytes += body.length;
    return Math.floor((bytes - body.length) / copyBytes);
  });
  for (const portion of portions.values()) {
    await tx.query(
      `update payload
       set seq = part.to_seq, previous = body, body = substring($5::bytea from part.end_at - part.size + 1 for part.size)
       from (
         select row_id, to_seq, size, end_at
         from (
           select seq, to_seq, size, sum(size) over (order by n)::int as end_at
           from unnest($2::bigint[], $3::bigint[], $4::int[]) with ordinality as given (seq, to_seq, size, n)
         ) as asked
         ${rowsAt('payload')}
       ) as part
       where payload.ctid = part.row_id`,
      [
        datasetId,
        arrayText(portion.map(({ former }) => former)),
        arrayText(portion.map(({ seq }) => seq)),
        arrayText(portion.map(({ body }) => body.length)),
        Buffer.concat(portion.map(({ body }) => body)),
      ],
    );
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
       using (select row_id from unnest($2::bigint[]) as asked (seq) ${rowsAt('payload')}) as part
       where payload.ctid = part.row_id
       returning ${rowBytes} as bytes
     )
     select count(*) as count, coalesce(sum(bytes), 0)::bigint as bytes
     from gone`,
    [at.datasetId, arrayText(at.seqs)],
  );
  return first(rows) ?? { count: 0, bytes: 0 };
}

/**
 * SQL for a COPY: the payloads at `seqs`, in the order of positions. A nested loop, the only join that is planned here,
 * keeps the order of its outer side; a sort would hold all payloads.
 */
export function selectPayloads(at: {
  datasetId: number;
  seqs: readonly number[];
  columns: 'seq, body' | 'seq, body, previous';
}): string {
  const seqs = at.seqs.toSorted((a, b) => a - b);
  return `
    select found.*
    from unnest('${arrayText(seqs)}'::bigint[]) as asked (seq)
    cross join lateral (
      select ${at.columns}
      from payload
      where dataset_id = ${at.datasetId} and payload.seq = asked.seq
      offset 0
    ) as found`;
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
