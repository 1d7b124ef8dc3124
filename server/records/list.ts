import { type Db, first, type Tx } from '../db/pool.ts';
import type { DataKey } from '../vault.ts';
import { type Position, readFollowedCursor } from './cursor.ts';
import { type Dataset, findDatasetForReading } from './dataset.ts';
import { arrayText } from './payloads.ts';
import { findPruneTimes } from './prune-times.ts';
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
};

export type ListRequest = {
  connection: RecordOwner;
  model: string;
  variant: string;
  /** Records after this position; from the first one where absent. */
  cursor?: string | undefined;
  /** 1 to 10000. */
  limit: number;
  /** Records whose last action is one of these; all where absent. */
  actions?: readonly RecordAction[] | undefined;
  /** Records changed at or after this time; ISO 8601 as PostgreSQL reads it. */
  modifiedAfter?: string | undefined;
  /** Records with one of these ids; all where absent. */
  ids?: readonly string[] | undefined;
};

/** `datasetId` is undefined where nothing was ever saved: the page is empty then. */
export type RecordPage = {
  datasetId: number | undefined;
  /** For the cursors of this page: where the dataset stood when its reader began. */
  since: number;
  records: StoredRecord[];
  hasMore: boolean;
};

/** A page ends with the record that brings its sealed payloads to this size. */
export const pageBytes = 16 * 1024 * 1024;

/**
 * A page of records after a cursor, in the order of their latest changes, as of one moment. `hasMore` is exact.
 *
 * Whoever follows the cursor of each page's last record sees the latest change of every record: positions become
 * visible in their order, and a record that changes again moves behind all. A page may hold fewer records than the
 * limit where they are large (`pageBytes`); it holds at least one unless there is none.
 * Throws `invalid_cursor` for a cursor that is malformed or of another dataset, and `cursor_expired` for one behind a
 * removed tombstone.
 */
export async function listRecords(db: Db, request: ListRequest): Promise<RecordPage> {
  const { connection, model, variant } = request;
  const read = await db.transaction(async (tx) => {
    const dataset = await findDatasetForReading(tx, { connection: connection.id, model, variant });
    const from =
      request.cursor === undefined ? beginning(dataset) : readFollowedCursor(request.cursor, dataset);
    if (dataset === undefined) return undefined;
    const rows = await readRows(tx, { dataset, after: from.seq, request });
    const page = cutPage(rows, request.limit);
    await openBodies(tx, { dataset, page, dataKey: connection.dataKey, isWhole: isWhole(request) });
    await datePruned(tx, dataset, page);
    return { datasetId: dataset.id, since: from.since, records: page, hasMore: page.length < rows.length };
  }, 'snapshot');
  return read ?? { datasetId: undefined, since: 0, records: [], hasMore: false };
}

/**
 * Where a read without a cursor begins. When it began matters only where tombstones have gone: elsewhere the cursor of
 * a record is the same text for every reader.
 */
function beginning(dataset: Dataset | undefined): Position {
  const hasLostTombstones = dataset !== undefined && dataset.tombstoneFloor > 0;
  return { seq: 0, since: hasLostTombstones ? dataset.lastSeq : 0 };
}

type Row = Omit<StoredRecord, 'fields'>;

/** Whether the page is every record of its range, so that its payloads can be read as a range too. */
function isWhole(request: ListRequest): boolean {
  return request.actions === undefined && request.ids === undefined;
}

const rowColumns = `
  external_id as id,
  seq,
  size,
  (first_seen_at at time zone 'UTC')::text as "firstSeenAt",
  (last_modified_at at time zone 'UTC')::text as "lastModifiedAt",
  case
    when deleted_at is not null then 'DELETED'
    when first_seen_at = last_modified_at then 'ADDED'
    else 'UPDATED'
  end as "lastAction",
  (deleted_at at time zone 'UTC')::text as "deletedAt",
  (pruned_at at time zone 'UTC')::text as "prunedAt"`;

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
  const filter = conditions === undefined ? '' : `and (${['false', ...conditions].join(' or ')})`;
  if (request.ids !== undefined) {
    const rows = await tx.query<Row>(
      `select found.*
       from unnest($4::text[]) as asked (id)
       cross join lateral (
         select ${rowColumns}
         from record
         where
           dataset_id = $1 and external_id = asked.id
           and seq > $2 and ($3::timestamptz is null or last_modified_at >= $3) ${filter}
         offset 0
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
    `select ${rowColumns}
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

function cutPage(rows: readonly Row[], limit: number): StoredRecord[] {
  const page: StoredRecord[] = [];
  let bytes = 0;
  for (const row of rows) {
    if (page.length === limit || bytes >= pageBytes) break;
    page.push(Object.assign(row, { fields: undefined }));
    bytes += row.size;
  }
  return page;
}

/**
 * Gives the records of a page their payloads, which are opened while the next ones arrive; `fields` stays undefined
 * where one is pruned.
 *
 * A whole page's payloads are the range between its first and last record: read so and zipped here, since the planner
 * joins the two tables by one index probe a row, which took 1.6 times as long.
 */
async function openBodies(
  tx: Tx,
  by: { dataset: Dataset; page: readonly StoredRecord[]; dataKey: DataKey; isWhole: boolean },
): Promise<void> {
  const { dataset, page, dataKey } = by;
  const [firstRow, lastRow] = [page[0], page.at(-1)];
  if (firstRow === undefined || lastRow === undefined || lastRow.seq <= dataset.pruneFloor) return;
  const seqs = by.isWhole
    ? `between ${firstRow.seq} and ${lastRow.seq}`
    : `= any('${arrayText(page.map(({ seq }) => seq))}'::bigint[])`;
  let next = 0;
  await tx.copyRows(
    `select seq, body from payload where dataset_id = ${dataset.id} and seq ${seqs} order by seq`,
    ([seqBytes, body]) => {
      const seq = Number(seqBytes?.readBigInt64BE());
      while ((page[next]?.seq ?? seq) < seq) next += 1;
      const record = page[next];
      if (record?.seq !== seq || body === undefined) return;
      record.fields = openPayload(body, { dataKey, datasetId: dataset.id, recordId: record.id });
    },
  );
}

/** Tells of the pruned records of a page when they were pruned, where that is not written on them. */
async function datePruned(tx: Tx, dataset: Dataset, page: readonly StoredRecord[]): Promise<void> {
  const undated = page.filter(({ prunedAt, fields }) => prunedAt === null && fields === undefined);
  if (undated.length === 0) return;
  const times = await findPruneTimes(tx, { datasetId: dataset.id, seqs: undated.map(({ seq }) => seq) });
  for (const record of undated) record.prunedAt = times.get(record.seq) ?? null;
}
