import { type Db, first } from '../db/pool.ts';
import { readCursor } from './cursor.ts';
import { type DatasetName, findDatasetForReading } from './dataset.ts';
import { rowBytes } from './payloads.ts';

type PruneEstimate = {
  /** Payloads that stand up to the cursor. */
  count: number;
  /** The sealed bytes of their rows: theirs, and those of what is kept of the ones before. */
  bytes: number;
};

/**
 * What a prune up to the cursor would remove, were it made at this moment to its end. Exact; changes nothing. Throws
 * `invalid_cursor` as a prune does.
 *
 * Counts the payloads on the shorter side of the cursor; the dataset's counters give those on the other.
 */
export function estimatePrune(
  db: Db,
  request: DatasetName & { untilCursor: string },
): Promise<PruneEstimate> {
  return db.transaction(async (tx) => {
    const dataset = await findDatasetForReading(tx, request);
    const until = readCursor(request.untilCursor, dataset);
    if (dataset === undefined || until <= dataset.pruneFloor) return { count: 0, bytes: 0 };
    const { id, pruneFloor, lastSeq } = dataset;
    const isNearEnd = lastSeq - until < until - pruneFloor;
    const [after, upTo] = isNearEnd ? [until, lastSeq] : [pruneFloor, until];
    const rows = await tx.query<PruneEstimate>(
      `select count(*) as count, coalesce(sum(${rowBytes}), 0)::bigint as bytes
       from payload
       where dataset_id = $1 and seq > $2 and seq <= $3`,
      [id, after, upTo],
    );
    const counted = first(rows) ?? { count: 0, bytes: 0 };
    if (!isNearEnd) return counted;
    const standing = dataset.records + dataset.deleted - dataset.pruned;
    return { count: standing - counted.count, bytes: dataset.payloadBytes - counted.bytes };
  }, 'snapshot');
}
