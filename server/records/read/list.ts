import { type Db, first, type Tx } from '../../db/pool.ts';
import { countRecords } from '../../metrics/metrics.ts';
import { type Dataset, hiddenUntil, readDataset } from '../dataset.ts';
import { findPruned, findPruneTimes, selectPayloads } from '../rows.ts';
import {
  cutPortion,
  isWholeRange,
  type ListRequest,
  type Portion,
  payloadOpener,
  type RecordAction,
  type RecordRow,
  recordColumns,
  recordColumnsWithChanges,
  type StoredRecord,
  scratchFor,
  startOf,
} from './portion.ts';
import { readRange } from './range.ts';

/**
 * Reads records after a cursor, in the order of their latest changes, in one snapshot. `hasMore` is exact.
 *
 * A reader that follows the cursor of each portion's last record receives the latest change of every record: positions
 * become visible in their order, and a record that changes again moves to the end. A portion has at least one record
 * unless none is left.
 *
 * Throws `invalid_cursor` for a cursor that is malformed or of another dataset, and `cursor_expired` for a cursor
 * before a removed tombstone, with `unlessEmptied` also for a cursor from before the dataset was emptied.
 */
export async function listRecords(db: Db, request: ListRequest): Promise<Portion> {
  const portion = (await readRange(db, request)) ?? (await readStepwise(db, request));
  countRecords({ listed: portion.records.length });
  return portion;
}

async function readStepwise(db: Db, request: ListRequest): Promise<Portion> {
  const { connection, model, variant } = request;
  const name = { connection: connection.id, model, variant };
  const read = await readDataset(db, name, async (tx, dataset) => {
    const from = startOf(request, dataset);
    if (dataset === undefined) return undefined;
    const after = Math.max(from.seq, hiddenUntil(dataset));
    const rows = await readRows(tx, { dataset, after, request });
    const pruned = await findPrunedRows(tx, dataset, rows);
    const { records, bytes } = cutPortion(rows, { ...request, pruned });
    await datePruned(tx, dataset, { records, pruned });
    const scratch = scratchFor(bytes, request.scratch);
    await openPayloads(tx, { dataset, records, scratch, request });
    const { id: datasetId, lastSeq } = dataset;
    return { datasetId, lastSeq, since: from.since, records, bytes, hasMore: records.length < rows.length };
  });
  return read ?? { datasetId: undefined, lastSeq: 0, since: 0, records: [], bytes: 0, hasMore: false };
}

const actionConditions: Record<RecordAction, string> = {
  ADDED: 'deleted_at is null and first_seen_at = last_modified_at',
  UPDATED: 'deleted_at is null and first_seen_at <> last_modified_at',
  DELETED: 'deleted_at is not null',
};

/** Returns one row more than the limit if there are more. */
async function readRows(
  tx: Tx,
  by: { dataset: Dataset; after: number; request: ListRequest },
): Promise<RecordRow[]> {
  const { dataset, after, request } = by;
  const conditions = request.actions?.map((action) => `(${actionConditions[action]})`);
  const selected = request.withChanges ? recordColumnsWithChanges : recordColumns;
  const filter = conditions === undefined ? '' : `and (${['false', ...conditions].join(' or ')})`;
  if (request.ids !== undefined) {
    const rows = await tx.query<RecordRow>(
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
  return tx.query<RecordRow>(
    `select ${selected}
     from record
     where dataset_id = $1 and seq > $2 ${filter}
     order by seq
     limit $3`,
    [dataset.id, start, request.limit + 1],
  );
}

/**
 * Returns the position after which all records were changed at or after `time`. Times are in the order of positions, so
 * a binary search finds it with one index probe a step, about 20 for a million records.
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

/** Returns the positions of the rows without a payload. */
async function findPrunedRows(
  tx: Tx,
  dataset: Dataset,
  rows: readonly RecordRow[],
): Promise<ReadonlySet<number>> {
  const seqs = rows.map(({ seq }) => seq);
  if (dataset.pruned === 0 || seqs.length === 0) return new Set();
  if ((seqs.at(-1) ?? 0) <= dataset.pruneFloor) return new Set(seqs);
  return findPruned(tx, { datasetId: dataset.id, seqs });
}

/**
 * Sets the payloads of records, which are opened while the next ones arrive. `fields` stays undefined for pruned
 * records.
 *
 * The payloads of a whole range are read as a range and combined here: the planner joins the two tables by one index
 * probe a row, which took 1.6 times as long.
 */
async function openPayloads(
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
    isWholeRange(request)
      ? `select ${columns} from payload where ${range} order by seq`
      : selectPayloads({ datasetId: dataset.id, seqs: records.map(({ seq }) => seq), columns }),
    payloadOpener({ datasetId: dataset.id, records, scratch, dataKey: request.connection.dataKey }),
  );
}

/** Sets the prune time of pruned records whose row has none. */
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
