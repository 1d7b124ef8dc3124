/**
 * A portion that is every record of its range, read in one exchange with the database; `list.ts` reads all others step by
 * step. Of the time a portion takes so, most went into waiting for one answer after the other.
 */
import { copied } from '../db/pipeline.ts';
import type { Db } from '../db/pool.ts';
import { namedBy } from './cursor.ts';
import { findDataset, planningByIndexAlone } from './dataset.ts';
import {
  bodyOpener,
  cut,
  growScratch,
  isWhole,
  type ListRequest,
  type Portion,
  type Row,
  rowColumns,
  type Standing,
  type StoredRecord,
  startOf,
} from './list.ts';

/**
 * Undefined, and nothing is known, where the request is for some of a range or for changes, where there is no such
 * dataset, and where a payload of the range is pruned. Throws what `listRecords` throws.
 */
export async function readRange(db: Db, request: ListRequest): Promise<Portion | undefined> {
  if (!isWhole(request) || request.modifiedAfter !== undefined || request.withChanges) return undefined;
  const from = await whereFrom(db, request);
  if (from === undefined) return undefined;
  const { datasetId } = from;
  const rows: Row[] = [];
  let standing: Standing | undefined;
  let taken: { records: StoredRecord[]; bytes: number } | undefined;
  const take = () => (taken ??= cut(rows, { ...request, pruned: none }));
  let open: ReturnType<typeof bodyOpener> | undefined;
  await db.pipeline({
    statements: [
      planningByIndexAlone,
      datasetRow(from, request),
      recordRows(from, request),
      bodies(from, request),
    ],
    onRow(statement, values) {
      if (statement === 1) standing = standingOf(values, request);
      else if (statement === 2 && standing !== undefined) rows.push(rowOf(values));
    },
    onCopied(fields) {
      if (standing === undefined) return;
      // The records have come before the first of their payloads.
      open ??= bodyOpener({
        ...{ datasetId, dataKey: request.connection.dataKey, records: take().records },
        scratch: growScratch(take().bytes, request.scratch),
      });
      open(fields);
    },
  });
  if (standing === undefined) return undefined;
  const { since } = startOf(request, standing);
  const { records, bytes } = take();
  if (records.some(({ fields }) => fields === undefined)) return undefined;
  return {
    datasetId,
    lastSeq: standing.lastSeq,
    since,
    records,
    bytes,
    hasMore: records.length < rows.length,
  };
}

const none: ReadonlySet<number> = new Set();

/** The dataset and the position behind which the range begins, which the flight proves. */
async function whereFrom(db: Db, request: ListRequest): Promise<From | undefined> {
  if (request.cursor !== undefined) return namedBy(request.cursor);
  const { connection, model, variant } = request;
  const dataset = await findDataset(db, { connection: connection.id, model, variant });
  return dataset && { datasetId: dataset.id, seq: 0 };
}

type From = { datasetId: number; seq: number };

/** The dataset's id, where it is the connection's: a cursor may name any. */
function owned({ datasetId }: From, { connection }: ListRequest): string {
  return `(select id from dataset where id = ${datasetId} and connection = ${connection.id})`;
}

function datasetRow(from: From, request: ListRequest): string {
  const columns = 'model, variant, last_seq, tombstone_floor, emptied_seq, id';
  return `select ${columns} from dataset where id = ${owned(from, request)}`;
}

/** Of a row of `datasetRow`; undefined where the dataset is another one's. */
function standingOf(values: readonly (string | null)[], request: ListRequest): Standing | undefined {
  const [model, variant, lastSeq, tombstoneFloor, emptiedSeq, id] = values;
  if (model !== request.model || variant !== request.variant) return undefined;
  return {
    id: Number(id),
    lastSeq: Number(lastSeq),
    tombstoneFloor: Number(tombstoneFloor),
    emptiedSeq: Number(emptiedSeq),
  };
}

/** One row more than the limit where there are more. */
function recordRows(from: From, request: ListRequest): string {
  return `select ${rowColumns} from record where ${range(from, request)} order by seq limit ${request.limit + 1}`;
}

function range(from: From, request: ListRequest): string {
  return `dataset_id = ${owned(from, request)} and seq > ${from.seq}`;
}

function rowOf(values: readonly (string | null)[]): Row {
  const [id, seq, size, firstSeenAt, lastModifiedAt, lastAction, deletedAt, prunedAt] = values;
  return {
    id: id as string,
    seq: Number(seq),
    size: Number(size),
    firstSeenAt: firstSeenAt as string,
    lastModifiedAt: lastModifiedAt as string,
    lastAction: lastAction as Row['lastAction'],
    deletedAt: deletedAt ?? null,
    prunedAt: prunedAt ?? null,
  };
}

/** The payloads of the records that `cut` takes. */
function bodies(from: From, request: ListRequest): string {
  const { limit, maxBytes, until } = request;
  const within = range(from, request);
  const last = `
    select coalesce(max(seq), 0)
    from (
      select seq, sum(size) over (order by seq rows unbounded preceding) - size as before
      from (select seq, size from record where ${within} order by seq limit ${limit}) as row
    ) as sized
    where before < ${maxBytes} ${until === undefined ? '' : `and seq <= ${until}`}`;
  return copied(`select seq, body from payload where ${within} and seq <= (${last}) order by seq`);
}
