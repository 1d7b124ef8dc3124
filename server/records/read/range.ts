import { copied } from '../../db/copy.ts';
import { type Db, recordsDb } from '../../db/pool.ts';
import { namedBy } from '../cursor.ts';
import { findDatasetId, planningByIndexAlone } from '../dataset.ts';
import {
  type CursorBounds,
  cutPortion,
  isWholeRange,
  type ListRequest,
  type Portion,
  payloadOpener,
  type RecordRow,
  recordColumns,
  scratchFor,
  startOf,
} from './portion.ts';

/**
 * Reads a portion that is every record of its range in one round trip to the database: most of the time of a portion
 * was spent waiting for one answer after another.
 *
 * Returns undefined if the request is for some records of a range or for changes, if there is no such dataset, if it has
 * rows from before it was emptied, or if a payload of the range is pruned. Throws what `listRecords` throws.
 */
export async function readRange(db: Db, request: ListRequest): Promise<Portion | undefined> {
  if (!isWholeRange(request) || request.modifiedAfter !== undefined || request.withChanges) return undefined;
  const from = await rangeStart(db, request);
  if (from === undefined) return undefined;
  const { datasetId } = from;
  const rows: RecordRow[] = [];
  let bounds: CursorBounds | undefined;
  let cut: ReturnType<typeof cutPortion> | undefined;
  const cutOnce = () => (cut ??= cutPortion(rows, { ...request, pruned: new Set() }));
  let open: ReturnType<typeof payloadOpener> | undefined;
  await recordsDb(db, datasetId).pipeline({
    statements: [
      planningByIndexAlone,
      datasetRow(from, request),
      recordRows(from, request),
      payloadRows(from, request),
    ],
    onRow(statement, values) {
      if (statement === 1) bounds = boundsOf(values, request);
      else if (statement === 2 && bounds !== undefined) rows.push(rowOf(values));
    },
    onCopied(fields) {
      if (bounds === undefined) return;
      // All records arrive before the first payload.
      open ??= payloadOpener({
        datasetId,
        dataKey: request.connection.dataKey,
        records: cutOnce().records,
        scratch: scratchFor(cutOnce().bytes, request.scratch),
      });
      open(fields);
    },
  });
  if (bounds === undefined) return undefined;
  const { since } = startOf(request, bounds);
  const { records, bytes } = cutOnce();
  if (records.some(({ fields }) => fields === undefined)) return undefined;
  return {
    datasetId,
    lastSeq: bounds.lastSeq,
    since,
    records,
    bytes,
    hasMore: records.length < rows.length,
  };
}

type RangeStart = { datasetId: number; seq: number };

/** The dataset and the position after which the range begins. Both are unverified until the pipeline returns. */
async function rangeStart(db: Db, request: ListRequest): Promise<RangeStart | undefined> {
  if (request.cursor !== undefined) return namedBy(request.cursor);
  const { connection, model, variant } = request;
  const datasetId = await findDatasetId(db, { connection: connection.id, model, variant });
  return datasetId === undefined ? undefined : { datasetId, seq: 0 };
}

/** SQL: a cursor may name any dataset, so each statement requires that the dataset belongs to the connection. */
function ownedDataset({ datasetId }: RangeStart, { connection }: ListRequest): string {
  return `from dataset where id = ${datasetId} and connection = ${connection.id}`;
}

function datasetRow(from: RangeStart, request: ListRequest): string {
  const columns = 'model, variant, last_seq, tombstone_floor, emptied_seq, id, has_leftovers';
  return `select ${columns} ${ownedDataset(from, request)}`;
}

/** Reads a row of `datasetRow`; undefined for another dataset than the request names, and for one with rows of before. */
function boundsOf(values: readonly (string | null)[], request: ListRequest): CursorBounds | undefined {
  const [model, variant, lastSeq, tombstoneFloor, emptiedSeq, id, hasLeftovers] = values;
  if (model !== request.model || variant !== request.variant || hasLeftovers === 't') return undefined;
  return {
    id: Number(id),
    lastSeq: Number(lastSeq),
    tombstoneFloor: Number(tombstoneFloor),
    emptiedSeq: Number(emptiedSeq),
  };
}

/** SQL: one row more than the limit if there are more. */
function recordRows(from: RangeStart, request: ListRequest): string {
  return `select ${recordColumns} from record where ${range(from, request)} order by seq limit ${request.limit + 1}`;
}

function range(from: RangeStart, request: ListRequest): string {
  return `dataset_id = ${from.datasetId} and seq > ${from.seq} and exists (select ${ownedDataset(from, request)})`;
}

function rowOf(values: readonly (string | null)[]): RecordRow {
  const [id, seq, size, firstSeenAt, lastModifiedAt, lastAction, deletedAt, prunedAt] = values;
  return {
    id: id as string,
    seq: Number(seq),
    size: Number(size),
    firstSeenAt: firstSeenAt as string,
    lastModifiedAt: lastModifiedAt as string,
    lastAction: lastAction as RecordRow['lastAction'],
    deletedAt: deletedAt ?? null,
    prunedAt: prunedAt ?? null,
  };
}

/** SQL: the payloads of the records that `cutPortion` takes. */
function payloadRows(from: RangeStart, request: ListRequest): string {
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
