/**
 * The rows of the tables `record` and `payload`, for reads and writes. A function that writes needs the lock of the
 * dataset.
 *
 * A payload row has the sealed payload as last written (`body`) and what is kept of the payload before the last change
 * (`previous`): JSON text, sealed as a payload is. An object is that payload; an array has only the names of the
 * changed fields.
 */
import { CopyRows } from '../db/copy.ts';
import { first, type Tx } from '../db/pool.ts';
import type { DataKey } from '../vault.ts';
import type { JsonObject } from './codec/canonical.ts';
import { changedFields } from './codec/fields.ts';
import { openPayload, sealContext } from './codec/seal.ts';
import { type Dataset, inDataset, rowsAt } from './dataset.ts';

/** The connection's row, and the key that seals the payloads of its records. */
export type RecordOwner = { id: number; dataKey: DataKey };

/** A row of `record`, for writers. */
export type Stored = {
  id: string;
  seq: number;
  hash: Buffer;
  /** The digest of the fields that `hash` ignores. */
  ignored: Buffer | null;
  /** Sealed bytes of the payload as last written. */
  size: number;
  isDeleted: boolean;
};

/**
 * Finds the rows of these ids. It locks and writes nothing: an equal record costs no byte of WAL.
 *
 * The two bounds are an equality that leaves the order to an index: see `byIndexAlone`. With an order the subquery
 * stays a subquery: with a join the planner might start from the rows of the dataset, and take 15 times as long.
 */
export async function findStored(
  tx: Tx,
  dataset: Dataset,
  ids: readonly string[],
): Promise<Map<string, Stored>> {
  if (dataset.records + dataset.deleted === 0 || ids.length === 0) return new Map();
  const rows = await tx.query<Stored>(
    `select asked.id, found.seq, found.hash, found.ignored, found.size, found."isDeleted"
     from unnest($2::text[]) as asked (id)
     cross join lateral (
       select seq, hash, ignored, size, deleted_at is not null as "isDeleted"
       from record
       where dataset_id = $1 and external_id >= asked.id and external_id <= asked.id
       order by external_id
     ) as found`,
    [dataset.id, ids],
  );
  return new Map(rows.map((row) => [row.id, row]));
}

/**
 * Opens the payloads of these rows and passes them on as JSON text, in the order of positions. Pruned records are
 * skipped. Only what `onPayload` keeps stays in memory.
 */
export async function readPayloads(
  tx: Tx,
  at: { datasetId: number; dataKey: DataKey; rows: readonly Stored[] },
  onPayload: (row: Stored, text: string) => void,
): Promise<void> {
  if (at.rows.length === 0) return;
  const bySeq = new Map(at.rows.map((row) => [row.seq, row]));
  await tx.copyRows(
    selectPayloads({ datasetId: at.datasetId, seqs: [...bySeq.keys()], columns: 'seq, body' }),
    ([seq, body]) => {
      const row = bySeq.get(Number(seq?.readBigInt64BE()));
      if (row === undefined || body === undefined) return;
      const text = openPayload(body, { ...at, recordId: row.id }).toString('utf8');
      onPayload(row, text);
    },
  );
}

/**
 * Returns SQL without parameters, so that it may run in a COPY: the payloads at `seqs`, in the order of positions. A nested
 * loop, which is the only join that is planned here, keeps the order of its outer side. A sort would hold all payloads in
 * memory.
 */
export function selectPayloads(at: {
  datasetId: number;
  seqs: readonly number[];
  columns: 'seq, body' | 'seq, body, previous' | 'seq, coalesce(octet_length(previous), 0) as bytes';
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

/** SQL: the sealed bytes of a payload row, which are those of its body and of what is kept of the payload before. */
export const rowBytes = 'octet_length(body) + coalesce(octet_length(previous), 0)';

/** The size of one COPY, which a save holds a second time in memory. */
const copyBytes = 1_280 * 1024;

/**
 * Inserts payload rows by COPY. As parameters of a statement, the bodies would be sent as hex text or the server would
 * have to cut them apart, and each row would be logged by itself.
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

/**
 * Replaces the payload at `former`, keeps that payload beside the new one in place of the payload kept before, and
 * moves both to `seq`. The former payload is neither read nor sealed again: its seal is bound only to dataset and id.
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
       where payload.ctid = part.row_id and payload.${inDataset}`,
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

/** Deletes the payloads at those of `seqs` that have one, and returns how many and their bytes. */
export async function deletePayloads(
  tx: Tx,
  at: { datasetId: number; seqs: readonly number[] },
): Promise<{ count: number; bytes: number }> {
  if (at.seqs.length === 0) return { count: 0, bytes: 0 };
  const rows = await tx.query<{ count: number; bytes: number }>(
    `with gone as (
       delete from payload
       using (select row_id from unnest($2::bigint[]) as asked (seq) ${rowsAt('payload')}) as part
       where payload.ctid = part.row_id and payload.${inDataset}
       returning ${rowBytes} as bytes
     )
     select count(*) as count, coalesce(sum(bytes), 0)::bigint as bytes
     from gone`,
    [at.datasetId, arrayText(at.seqs)],
  );
  return first(rows) ?? { count: 0, bytes: 0 };
}

/** Seals the names of changed fields, by record. */
export function sealNames(
  names: ReadonlyMap<string, readonly string[]>,
  { dataKey, datasetId }: { dataKey: DataKey; datasetId: number },
): Map<string, Buffer> {
  const sealed = dataKey.sealMany(
    [...names].map(([id, some]) => ({ plain: JSON.stringify(some), context: sealContext(datasetId, id) })),
  );
  return new Map([...names.keys()].map((id, index) => [id, sealed[index] as Buffer]));
}

/**
 * Describes the last change of a record as JSON text. `fields` are the names of the fields at the top level that
 * differ, including ignored fields. `previous` has the former values of those that had one, or is null if only the
 * names are kept. Both arguments are JSON text.
 */
export function describeChange(previous: Buffer, payload: Buffer): string {
  const before = JSON.parse(previous.toString('utf8')) as JsonObject | string[];
  if (Array.isArray(before)) return JSON.stringify({ fields: before, previous: null });
  const fields = changedFields(before, JSON.parse(payload.toString('utf8')) as JsonObject);
  const former = fields.filter((name) => Object.hasOwn(before, name)).map((name) => [name, before[name]]);
  return JSON.stringify({ fields, previous: Object.fromEntries(former) });
}

/** Returns the size of `previous` for each of `seqs` that has a payload. */
export async function findPreviousBytes(
  tx: Tx,
  at: { datasetId: number; seqs: readonly number[] },
): Promise<Map<number, number>> {
  if (at.seqs.length === 0) return new Map();
  const columns = 'seq, coalesce(octet_length(previous), 0) as bytes';
  const rows = await tx.query<{ seq: number; bytes: number }>(selectPayloads({ ...at, columns }));
  return new Map(rows.map(({ seq, bytes }) => [seq, bytes]));
}

/** Returns those of `seqs` that have no payload. One index probe each: the subquery cannot become a join. */
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

/**
 * Returns when the payloads at these pruned positions were removed: the time of the latest receipt that has the
 * position, in UTC to the microsecond, as text without a zone. Each receipt is read once, however many ranges it has: a
 * look-up in SQL unpacks a receipt for each position, and took 0.9 ms for a receipt of 10,000 ranges.
 */
export async function findPruneTimes(
  tx: Tx,
  at: { datasetId: number; seqs: readonly number[] },
): Promise<Map<number, string>> {
  const seqs = [...at.seqs].sort((a, b) => a - b);
  const times = new Map<number, string>();
  // The box has the dataset's id too: a plain condition on that column would lead the planner to the index that has all
  // receipts of the dataset.
  const receipts = await tx.query<{ prunedAt: string; seqs: string }>(
    `select
       (pruned_at at time zone 'UTC')::text as "prunedAt",
       (seqs * int8multirange(int8range($2, $3, '[]')))::text as seqs
     from prune
     where
       ${inDataset}
       and box(point(dataset_id, lower(seqs)), point(dataset_id, upper(seqs)))
         && box(point($1::bigint, $2::bigint), point($1::bigint, $3::bigint))
       and seqs && int8range($2, $3, '[]')
     order by pruned_at, id`,
    [at.datasetId, seqs[0] ?? 0, seqs.at(-1) ?? 0],
  );
  for (const receipt of receipts) {
    let next = 0;
    // `{[1,5),[7,8)}`: ranges in order, as the positions are here, so that one pass is enough.
    for (const [, start, end] of receipt.seqs.matchAll(/\[(\d+),(\d+)\)/g)) {
      while ((seqs[next] ?? Number.POSITIVE_INFINITY) < Number(start)) next += 1;
      for (; (seqs[next] ?? Number.POSITIVE_INFINITY) < Number(end); next += 1) {
        times.set(seqs[next] as number, receipt.prunedAt);
      }
    }
  }
  return times;
}

/** Writes numbers as an array literal, since the driver would quote each of them. */
export function arrayText(numbers: readonly number[]): string {
  return `{${numbers.join()}}`;
}
