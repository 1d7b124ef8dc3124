import { type Db, first, type Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { countRecords } from '../metrics/metrics.ts';
import { readCursor } from './cursor.ts';
import { type Dataset, type DatasetName, findDataset, lockDataset } from './dataset.ts';
import { rowBytes } from './payloads.ts';
import { type Remover, writeReceipt } from './receipt.ts';

type PruneRequest = DatasetName & {
  /** Records up to and including this position. */
  untilCursor: string;
  /** 1 to 10000. */
  limit: number;
  /** For the receipt in the audit log. */
  by: Remover;
};

/** Exact: `hasMore` tells whether a payload still stands up to the cursor. */
type PruneResult = { count: number; hasMore: boolean };

/**
 * Removes payloads up to the cursor, oldest first, at most `limit` of them, those of deleted records too; ids,
 * metadata and cursors stay. The payloads are gone from the table when this returns; one row of `prune` says
 * which they were, and a receipt in the audit log who let them go.
 *
 * The same call again is harmless. A record that moves on while this runs keeps its newer payload, since positions
 * are given out under the lock that is held here, and all of them lie after the cursor. Throws `invalid_cursor` for
 * a cursor that is malformed or of another dataset, and then nothing changed.
 */
export async function pruneRecords(db: Db, request: PruneRequest): Promise<PruneResult> {
  const dataset = await findDataset(db, request);
  const until = readCursor(request.untilCursor, dataset);
  if (dataset === undefined || dataset.pruneFloor >= until) return { count: 0, hasMore: false };
  const pruned = await db.transaction(async (tx) => {
    const locked = await lockDataset(tx, dataset.id);
    if (locked === undefined) throw new AppError('invalid_cursor');
    // Another call may have come further while this one waited for the lock.
    if (locked.pruneFloor >= until) return { count: 0, hasMore: false };
    const end = await findEnd(tx, { dataset: locked, until, limit: request.limit });
    const { count, bytes } = await removePayloads(tx, { dataset: locked, end: end.seq });
    if (count > 0) {
      const { model, variant } = request;
      await writeReceipt(tx, request.by, {
        action: 'records.pruned',
        dataset: { id: locked.id, model, variant },
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
 * Where this prune ends: at its last record where more payloads follow up to the cursor than the limit allows, else
 * at the cursor. Reads index entries of `limit` rows that are removed next, so their pages are in memory then.
 */
async function findEnd(
  tx: Tx,
  by: { dataset: Dataset; until: number; limit: number },
): Promise<{ seq: number; hasMore: boolean }> {
  const { dataset, until, limit } = by;
  // Positions are whole numbers: so short a range cannot hold more than the limit.
  if (until - dataset.pruneFloor <= limit) return { seq: until, hasMore: false };
  // Where every position above the floor has its payload nothing needs to be looked up.
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
 * Removes the payloads of a locked dataset above the floor up to `end`, which becomes the floor, and notes in the table
 * `prune` which they were. One range for payloads without a gap: putting 10,000 ranges together took a quarter of the
 * time.
 */
export async function removePayloads(
  tx: Tx,
  by: { dataset: Dataset; end: number },
): Promise<{ count: number; bytes: number }> {
  const rows = await tx.query<{ count: number; bytes: number }>(
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
     ),
     receipt as (
       insert into prune (dataset_id, pruned_at, seqs, count, bytes)
       select $1, clock_timestamp(), seqs, count, bytes
       from total
       where count > 0
     )
     update dataset
     set
       prune_floor = $3,
       pruned = pruned + total.count,
       payload_bytes = payload_bytes - total.bytes
     from total
     where id = $1
     returning total.count as count, total.bytes as bytes`,
    [by.dataset.id, by.dataset.pruneFloor, by.end],
  );
  return first(rows) ?? { count: 0, bytes: 0 };
}
