/**
 * Prunes on request: removes payloads up to a cursor. `retention.ts` removes payloads by age, and `destroy.ts` removes the
 * datasets of deleted connections.
 */
import { type Db, first, recordsDb, type Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { countRecords } from '../../metrics/metrics.ts';
import { namedBy, readCursor } from '../cursor.ts';
import { type Dataset, type DatasetName, type LockedDataset, lockDataset } from '../dataset.ts';
import { rowBytes } from '../rows.ts';
import { type Remover, writeReceipt } from './receipt.ts';

type PruneRequest = DatasetName & {
  /** The last record to prune. */
  untilCursor: string;
  /** 1 to 10000. */
  limit: number;
  /** The caller, for the receipt in the audit log. */
  by: Remover;
};

/** `hasMore` is exact: whether there is still a payload up to the cursor. */
type PruneResult = { count: number; hasMore: boolean };

/**
 * Removes payloads up to the cursor, oldest first, at most `limit` of them, also those of deleted records. Ids,
 * metadata and cursors stay. When this returns, the payloads are gone from the table. One row of `prune` lists their
 * positions, and a receipt in the audit log names the caller.
 *
 * The same call again is harmless. A record that changes while this runs keeps its newer payload: positions are taken
 * under the lock that is held here, so a new position is after the cursor. Throws `invalid_cursor` for a cursor that is
 * malformed or of another dataset, and `unknown_connection` if the connection was deleted meanwhile; then nothing has changed.
 */
export async function pruneRecords(db: Db, request: PruneRequest): Promise<PruneResult> {
  const { connection, model, variant, untilCursor } = request;
  // The cursor says which dataset it is, so no statement has to look for it.
  const named = namedBy(untilCursor);
  if (named === undefined) throw new AppError('invalid_cursor');
  const pruned = await recordsDb(db, named.datasetId).transaction(async (tx) => {
    const dataset = await lockDataset(tx, named.datasetId, { connection });
    const isOther = dataset?.model !== model || dataset.variant !== variant;
    const until = readCursor(untilCursor, isOther ? undefined : dataset);
    if (dataset === undefined || dataset.isClosed) throw new AppError('unknown_connection');
    if (dataset.pruneFloor >= until) return { count: 0, hasMore: false };
    const end = await findEnd(tx, { dataset, until, limit: request.limit });
    const { count, bytes } = await removePayloads(tx, { dataset, end: end.seq });
    if (count > 0) {
      writeReceipt(tx, request.by, {
        action: 'records.pruned',
        dataset: { id: dataset.id, model, variant },
        until: end.seq,
        count,
        bytes,
      });
    }
    return { count, hasMore: end.hasMore };
  });
  countRecords({ pruned: pruned.count });
  return pruned;
}

/**
 * Returns the end of this prune: its last record if there are more payloads up to the cursor than the limit allows,
 * else the cursor. Reads index entries of `limit` rows that are removed next, so their pages are in memory then.
 */
async function findEnd(
  tx: Tx,
  by: { dataset: Dataset; until: number; limit: number },
): Promise<{ seq: number; hasMore: boolean }> {
  const { dataset, until, limit } = by;
  // Positions are whole numbers, so a range of this length cannot have more payloads than the limit.
  if (until - dataset.pruneFloor <= limit) return { seq: until, hasMore: false };
  // If every position above the floor has a payload, no query is necessary.
  const standing = dataset.records + dataset.deleted - dataset.pruned;
  if (standing === dataset.lastSeq - dataset.pruneFloor)
    return { seq: dataset.pruneFloor + limit, hasMore: true };
  const [last, next] = await tx.query<{ seq: number }>(
    `select seq
     from payload
     where dataset_id = $1 and seq > $2 and seq <= $3
     order by seq
     offset $4
     limit 2`,
    [dataset.id, dataset.pruneFloor, until, limit - 1],
  );
  if (last === undefined || next === undefined) return { seq: until, hasMore: false };
  return { seq: last.seq, hasMore: true };
}

/**
 * Removes the payloads of a locked dataset above the floor up to `end`, which becomes the floor, and stores their
 * positions in the table `prune`. Payloads without a gap are one range: the aggregation of 10,000 ranges took a quarter
 * of the time.
 */
export async function removePayloads(
  tx: Tx,
  { dataset, end }: { dataset: LockedDataset; end: number },
): Promise<{ count: number; bytes: number }> {
  const rows = await tx.query<{ count: number; bytes: number; seqs: string | null }>(
    `with gone as (
       delete from payload
       where dataset_id = $1 and seq > $2 and seq <= $3
       returning seq, ${rowBytes} as bytes
     ),
     total as (
       select
         count(*) as count,
         coalesce(sum(bytes), 0)::bigint as bytes,
         case
           when count(*) = max(seq) - min(seq) + 1 then int8multirange(int8range(min(seq), max(seq), '[]'))
           else (select range_agg(int8range(seq, seq, '[]')) from gone)
         end as seqs
       from gone
     )
     update dataset
     set
       prune_floor = $3,
       pruned = pruned + total.count,
       payload_bytes = payload_bytes - total.bytes
     from total
     where id = $1
     returning total.count as count, total.bytes as bytes, total.seqs as seqs`,
    [dataset.id, dataset.pruneFloor, end],
  );
  const { count, bytes, seqs } = first(rows) ?? { count: 0, bytes: 0, seqs: null };
  if (count > 0)
    tx.runWithCommit(
      `insert into prune (dataset_id, pruned_at, seqs, count, bytes)
       values (${dataset.id}, '${dataset.writeTime}', '${seqs}', ${count}, ${bytes})`,
    );
  return { count, bytes };
}
