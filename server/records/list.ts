import { type Db, first, type Tx } from '../db/pool.ts';
import { countRecords } from '../metrics/metrics.ts';
import type { DataKey } from '../vault.ts';
import { type Position, readFollowedCursor, readUnemptiedCursor } from './cursor.ts';
import { type Dataset, findDatasetForReading } from './dataset.ts';
import { findPruned, selectPayloads } from './payloads.ts';
import { changesText } from './previous.ts';
import { findPruneTimes } from './prune-times.ts';
import { readRange } from './range.ts';
import type { RecordOwner } from './save.ts';
import { openPayload } from './seal.ts';

export type RecordAction = 'ADDED' | 'UPDATED' | 'DELETED';

/** A record as it stands; times in UTC as PostgreSQL writes them, `2026-11-21 00:51:26.942747`. */
export type StoredRecord = {
  id: string;
  seq: number;
  /** Sealed bytes of the payload as last written. */
  size: number;
  firstSeenAt: string;
  lastModifiedAt: string;
  lastAction: RecordAction;
  deletedAt: string | null;
  prunedAt: string | null;
  /** The payload as JSON text without `id`; undefined where it is pruned. */
  fields: Buffer | undefined;
  /** What the last change changed, as JSON text: see `changesText`; `null` where nothing is known of it. Only where asked for. */
  changes?: string;
};

export type ListRequest = {
  connection: RecordOwner;
  model: string;
  variant: string;
  /** Records after this position; from the first one where absent. */
  cursor?: string | undefined;
  /** Whether a cursor from before the dataset was emptied is refused; where absent it is good. */
  unlessEmptied?: boolean | undefined;
  /** At most so many records; at least 1. */
  limit: number;
  /** Ends with the record that brings the sealed payloads to this size; payloads that are pruned count for nothing. */
  maxBytes: number;
  /** No record beyond this position, though whether there are more tells of those too; all where absent. */
  until?: number | undefined;
  /** Records whose last action is one of these; all where absent. */
  actions?: readonly RecordAction[] | undefined;
  /** Records changed at or after this time; ISO 8601 as PostgreSQL reads it. */
  modifiedAfter?: string | undefined;
  /** Records with one of these ids; all where absent. */
  ids?: readonly string[] | undefined;
  /** Whether to tell what the last change changed; what is kept of former payloads weighs as payloads do then. */
  withChanges?: boolean | undefined;
  /** Where the payloads are laid, in place of those of the portion before: what was read there before is no more. */
  scratch: ScratchBuffer;
};

/** Memory that many portions use one after another: else each leaves as much to be collected. */
type ScratchBuffer = { bytes: Buffer };

export function createScratchBuffer(): ScratchBuffer {
  return { bytes: Buffer.alloc(0) };
}

/** `datasetId` is undefined where nothing was ever saved: there are no records then. */
export type Portion = {
  datasetId: number | undefined;
  /** The dataset's last position at the moment of the portion. */
  lastSeq: number;
  /** For the cursors of these records: where the dataset stood when their reader began. */
  since: number;
  records: StoredRecord[];
  /** Sealed bytes of their payloads. */
  bytes: number;
  hasMore: boolean;
};

/**
 * Records after a cursor, in the order of their latest changes, as of one moment. `hasMore` is exact.
 *
 * A reader that follows the cursor of each portion's last record sees the latest change of every record: positions become
 * visible in their order, and a record that changes again moves to the end. A portion holds at least one record unless
 * none is left.
 * Throws `invalid_cursor` for a cursor that is malformed or of another dataset, and `cursor_expired` for one behind a
 * removed tombstone, with `unlessEmptied` also for one from before the dataset was emptied.
 */
export async function listRecords(db: Db, request: ListRequest): Promise<Portion> {
  const portion = (await readRange(db, request)) ?? (await readByStep(db, request));
  countRecords({ listed: portion.records.length });
  return portion;
}

async function readByStep(db: Db, request: ListRequest): Promise<Portion> {
  const { connection, model, variant } = request;
  const read = await db.transaction(async (tx) => {
    const dataset = await findDatasetForReading(tx, { connection: connection.id, model, variant });
    const from = startOf(request, dataset);
    if (dataset === undefined) return undefined;
    const rows = await readRows(tx, { dataset, after: from.seq, request });
    const pruned = await findPrunedRows(tx, dataset, rows);
    const { records, bytes } = cut(rows, { ...request, pruned });
    await datePruned(tx, dataset, { records, pruned });
    const scratch = growScratch(bytes, request.scratch);
    await openBodies(tx, { dataset, records, scratch, request });
    const { id: datasetId, lastSeq } = dataset;
    return { datasetId, lastSeq, since: from.since, records, bytes, hasMore: records.length < rows.length };
  }, 'snapshot');
  return read ?? { datasetId: undefined, lastSeq: 0, since: 0, records: [], bytes: 0, hasMore: false };
}

/** What of a dataset says whether a cursor is good. */
export type Standing = Pick<Dataset, 'id' | 'lastSeq' | 'tombstoneFloor' | 'emptiedSeq'>;

/** The position behind which a read begins. Throws what `listRecords` throws. */
export function startOf(
  { cursor, unlessEmptied }: Pick<ListRequest, 'cursor' | 'unlessEmptied'>,
  dataset: Standing | undefined,
): Position {
  if (cursor === undefined) return beginning(dataset);
  return unlessEmptied ? readUnemptiedCursor(cursor, dataset) : readFollowedCursor(cursor, dataset);
}

/**
 * Where a read without a cursor begins. When it began matters only where tombstones have gone: elsewhere the cursor of
 * a record is the same text for every reader.
 */
function beginning(dataset: Standing | undefined): Position {
  const hasLostTombstones = dataset !== undefined && dataset.tombstoneFloor > 0;
  return { seq: 0, since: hasLostTombstones ? dataset.lastSeq : 0 };
}

export type Row = Omit<StoredRecord, 'fields'>;

/** Whether a portion is every record of its range, so that its payloads can be read as a range too. */
export function isWhole(request: ListRequest): boolean {
  return request.actions === undefined && request.ids === undefined;
}

const columns = (size: string) => `
  external_id as id,
  seq,
  ${size} as size,
  (first_seen_at at time zone 'UTC')::text as "firstSeenAt",
  (last_modified_at at time zone 'UTC')::text as "lastModifiedAt",
  case
    when deleted_at is not null then 'DELETED'
    when first_seen_at = last_modified_at then 'ADDED'
    else 'UPDATED'
  end as "lastAction",
  (deleted_at at time zone 'UTC')::text as "deletedAt",
  (pruned_at at time zone 'UTC')::text as "prunedAt"`;

export const rowColumns = columns('size');

/** So that a portion is measured with what is kept of the payloads before. */
const rowColumnsForChanges = columns(`
  size + coalesce(
    (select octet_length(previous)
     from payload
     where payload.dataset_id = record.dataset_id and payload.seq = record.seq),
    0
  )`);

const actionConditions: Record<RecordAction, string> = {
  ADDED: 'deleted_at is null and first_seen_at = last_modified_at',
  UPDATED: 'deleted_at is null and first_seen_at <> last_modified_at',
  DELETED: 'deleted_at is not null',
};

/** One row more than the limit where there are more. */
async function readRows(
  tx: Tx,
  by: { dataset: Dataset; after: number; request: ListRequest },
): Promise<Row[]> {
  const { dataset, after, request } = by;
  const conditions = request.actions?.map((action) => `(${actionConditions[action]})`);
  const selected = request.withChanges ? rowColumnsForChanges : rowColumns;
  const filter = conditions === undefined ? '' : `and (${['false', ...conditions].join(' or ')})`;
  if (request.ids !== undefined) {
    const rows = await tx.query<Row>(
      `select found.*
       from unnest($4::text[]) as asked (id)
       cross join lateral (
         select ${selected}
         from record
         where
           dataset_id = $1 and external_id >= asked.id and external_id <= asked.id
           and seq > $2 and ($3::timestamptz is null or last_modified_at >= $3) ${filter}
         order by external_id
       ) as found`,
      [dataset.id, after, request.modifiedAfter ?? null, [...new Set(request.ids)]],
    );
    return rows.sort((a, b) => a.seq - b.seq).slice(0, request.limit + 1);
  }
  const start =
    request.modifiedAfter === undefined
      ? after
      : Math.max(after, await findLastBefore(tx, { dataset, time: request.modifiedAfter }));
  return tx.query<Row>(
    `select ${selected}
     from record
     where dataset_id = $1 and seq > $2 ${filter}
     order by seq
     limit $3`,
    [dataset.id, start, request.limit + 1],
  );
}

/**
 * The position after which all records were changed at or after `time`: times never run against positions, so
 * halving the range finds it with one index probe a step, about 20 for a million records.
 */
export async function findLastBefore(
  tx: Tx,
  by: { dataset: Pick<Dataset, 'id' | 'lastSeq'>; time: string },
): Promise<number> {
  const rows = await tx.query<{ seq: number }>(
    `with recursive search (low, high) as (
       select 0::bigint, $2::bigint
       union all
       select
         case when is_before then middle else low end,
         case when is_before then high else middle - 1 end
       from (
         select
           low,
           high,
           (low + high + 1) / 2 as middle,
           coalesce(
             (select last_modified_at < $3::timestamptz
              from record
              where dataset_id = $1 and seq >= (low + high + 1) / 2
              order by seq
              limit 1),
             false
           ) as is_before
         from search
         where low < high
       ) as step
     )
     select low as seq from search where low = high`,
    [by.dataset.id, by.dataset.lastSeq, by.time],
  );
  return first(rows)?.seq ?? 0;
}

/** Positions of the rows whose payload is gone. */
async function findPrunedRows(tx: Tx, dataset: Dataset, rows: readonly Row[]): Promise<ReadonlySet<number>> {
  const seqs = rows.map(({ seq }) => seq);
  if (dataset.pruned === 0 || seqs.length === 0) return new Set();
  if ((seqs.at(-1) ?? 0) <= dataset.pruneFloor) return new Set(seqs);
  return findPruned(tx, { datasetId: dataset.id, seqs });
}

export function cut(
  rows: readonly Row[],
  by: Pick<ListRequest, 'limit' | 'maxBytes' | 'until'> & { pruned: ReadonlySet<number> },
): { records: StoredRecord[]; bytes: number } {
  const records: StoredRecord[] = [];
  let bytes = 0;
  for (const row of rows) {
    if (records.length === by.limit || bytes >= by.maxBytes || row.seq > (by.until ?? row.seq)) break;
    records.push(Object.assign(row, { fields: undefined }));
    if (!by.pruned.has(row.seq)) bytes += row.size;
  }
  return { records, bytes };
}

/** A buffer for payloads of so many sealed bytes; opened payloads are smaller. */
export function growScratch(bytes: number, scratch: ScratchBuffer): Buffer {
  if (scratch.bytes.length < bytes) scratch.bytes = Buffer.allocUnsafeSlow(bytes);
  return scratch.bytes;
}

/**
 * Gives records their payloads, which are opened while the next ones arrive; `fields` stays undefined where one is
 * pruned.
 *
 * The payloads of a whole range are read as a range and zipped here, since the planner joins the two tables by one
 * index probe a row, which took 1.6 times as long.
 */
async function openBodies(
  tx: Tx,
  by: {
    dataset: Dataset;
    records: readonly StoredRecord[];
    scratch: Buffer;
    request: ListRequest;
  },
): Promise<void> {
  const { dataset, records, scratch, request } = by;
  if (request.withChanges) for (const record of records) record.changes = 'null';
  const [firstRow, lastRow] = [records[0], records.at(-1)];
  if (firstRow === undefined || lastRow === undefined || lastRow.seq <= dataset.pruneFloor) return;
  const columns = request.withChanges ? 'seq, body, previous' : 'seq, body';
  const range = `dataset_id = ${dataset.id} and seq between ${firstRow.seq} and ${lastRow.seq}`;
  await tx.copyRows(
    isWhole(request)
      ? `select ${columns} from payload where ${range} order by seq`
      : selectPayloads({ datasetId: dataset.id, seqs: records.map(({ seq }) => seq), columns }),
    bodyOpener({ datasetId: dataset.id, records, scratch, dataKey: request.connection.dataKey }),
  );
}

/**
 * Takes the rows of `select seq, body from payload`, by seq, and gives the records of these positions their payloads; and
 * of `seq, body, previous` what changed, too.
 */
export function bodyOpener(by: {
  datasetId: number;
  records: readonly StoredRecord[];
  scratch: Buffer;
  dataKey: DataKey;
}): (fields: (Buffer | undefined)[]) => void {
  const { datasetId, records, scratch, dataKey } = by;
  let next = 0;
  let end = 0;
  return ([seqBytes, body, previous]) => {
    const seq = Number(seqBytes?.readBigInt64BE());
    while ((records[next]?.seq ?? seq) < seq) next += 1;
    const record = records[next];
    if (record?.seq !== seq || body === undefined) return;
    const start = end;
    const sealedFor = { dataKey, datasetId, recordId: record.id };
    end += openPayload(body, sealedFor).copy(scratch, start);
    record.fields = scratch.subarray(start, end);
    if (previous !== undefined) record.changes = changesText(openPayload(previous, sealedFor), record.fields);
  };
}

/** Tells of pruned records when they were pruned, where that is not written on them. */
async function datePruned(
  tx: Tx,
  dataset: Dataset,
  of: { records: readonly StoredRecord[]; pruned: ReadonlySet<number> },
): Promise<void> {
  const undated = of.records.filter(({ seq, prunedAt }) => prunedAt === null && of.pruned.has(seq));
  if (undated.length === 0) return;
  const times = await findPruneTimes(tx, { datasetId: dataset.id, seqs: undated.map(({ seq }) => seq) });
  for (const record of undated) record.prunedAt = times.get(record.seq) ?? null;
}
