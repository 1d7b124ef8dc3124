import { randomUUID } from 'node:crypto';
import type { Queryable, Tx } from './pool.ts';
import type { SequenceName } from './sequencer.ts';

/**
 * Writes an entry of the audit log or an event beside the records of a dataset, so that the transaction changes the rows
 * of that dataset alone. The sequencer copies it once, whatever happens to the dataset: see `Sequence`. `columns` are
 * those of the row, by their names.
 */
export function writeToOutbox(
  tx: Tx,
  entry: { datasetId: number; sequence: SequenceName; columns: Record<string, unknown> },
): void {
  const { datasetId, sequence, columns } = entry;
  // Hexadecimal digits cannot end the text.
  const json = Buffer.from(JSON.stringify(columns)).toString('hex');
  tx.runWithCommit(
    `insert into dataset_outbox (dataset_id, id, sequence, entry)
     values (
       ${datasetId},
       '${randomUUID()}',
       '${sequence}',
       convert_from(decode('${json}', 'hex'), 'UTF8')::jsonb
     )`,
  );
}

/** A row of the outbox. */
export type OutboxEntry = {
  datasetId: number;
  id: string;
  /** The columns of its row in `audit` or `event`, as JSON text. */
  entry: string;
  /** In UTC, to the microsecond: `2026-01-31T12:00:00.000001Z`. */
  writtenAt: string;
  /** The transaction that wrote it. */
  writtenIn: string;
  ordinal: number;
};

/**
 * Reads the oldest entries for a sequence, in the order of their writes. None was written before `from`. It reads them in the
 * order of their transactions, which the primary key has, so its cost does not depend on the number of entries that wait.
 * Concurrent transactions may write in another order than that of their IDs, so it reads twice as many entries: more than
 * there are concurrent transactions.
 */
export async function readOutbox(
  q: Queryable,
  of: { sequence: SequenceName; from: string; limit: number },
): Promise<OutboxEntry[]> {
  const oldest = await q.query<OutboxEntry>(
    `select
       dataset_id as "datasetId",
       id,
       entry::text as entry,
       to_char(written_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "writtenAt",
       written_in::text as "writtenIn",
       ordinal
     from dataset_outbox
     where sequence = '${of.sequence}' and written_in >= $1::xid8
     order by written_in, ordinal
     limit $2`,
    [of.from, 2 * of.limit],
  );
  return oldest.sort((one, other) => one.ordinal - other.ordinal).slice(0, of.limit);
}

/** IDs of transactions are comparable on one machine alone. On a cluster `written_in` has the highest ID in each entry. */
export const clusterTransaction = '18446744073709551615';

/**
 * Removes entries after the commit of their copies. Several nodes may do it at once. False if they stay, because a restore
 * point of the cluster is being made: that of the coordinator first, and then those of the workers. A restore would lose
 * an entry that was copied after the first and removed before the others.
 */
export async function removeFromOutbox(
  q: Queryable,
  of: { sequence: SequenceName; from: string; entries: readonly OutboxEntry[] },
): Promise<boolean> {
  const [one] = of.entries;
  if (one === undefined) return true;
  if (one.writtenIn === clusterTransaction && (await isRestorePointBeingMade(q))) return false;
  // On a cluster `writtenIn` is 2^64 - 1, which is too large for a `number`.
  let last = 0n;
  for (const { writtenIn } of of.entries) {
    const id = BigInt(writtenIn);
    if (id > last) last = id;
  }
  await q.query(
    `delete from dataset_outbox
     where sequence = '${of.sequence}'
       and written_in between $1::xid8 and $2::xid8
       and dataset_id = any($3::bigint[])
       and id = any($4::uuid[])`,
    [
      of.from,
      String(last),
      [...new Set(of.entries.map(({ datasetId }) => datasetId))],
      of.entries.map(({ id }) => id),
    ],
  );
  return true;
}

/** `citus_create_restore_point` holds this lock from before the first point until after the last one. */
async function isRestorePointBeingMade(q: Queryable): Promise<boolean> {
  const held = await q.query(
    `select
     from pg_locks
     where locktype = 'relation'
       and database = (select oid from pg_database where datname = current_database())
       and relation = to_regclass('pg_catalog.pg_dist_transaction')
       and mode = 'ExclusiveLock'
       and granted`,
  );
  return held.length > 0;
}
