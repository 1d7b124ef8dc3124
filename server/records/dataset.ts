/**
 * The row of a dataset: found, created, locked, and advanced by a write.
 *
 * A dataset holds the records of one model and variant of a connection. A write locks this row first, then takes
 * positions, so positions become visible in their order. Does not own: records (`rows.ts`, `read/`, `write/`), datasets
 * as users see them (`datasets.ts`).
 */
import { holdConnection } from '../connections/store/store.ts';
import { type Db, first, type Queryable, recordsDb, type Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';

/** The key of a dataset. `connection` is the id of the connection's row. */
export type DatasetName = { connection: number; model: string; variant: string };

export type Dataset = {
  id: number;
  lastSeq: number;
  /** There is no payload at or below it. */
  pruneFloor: number;
  /** A cursor below it has missed a tombstone that a policy has removed. */
  tombstoneFloor: number;
  /** A cursor up to it is from before the dataset was emptied; 0 if it never was. */
  emptiedSeq: number;
  /** Whether rows up to `emptiedSeq` are still in the tables: they do not belong to the dataset. See `leftovers.ts`. */
  hasLeftovers: boolean;
  /** The number of live records, including pruned ones. */
  records: number;
  deleted: number;
  /** The number of records without a payload, live or deleted. */
  pruned: number;
  payloadBytes: number;
  /** Fields that a save ignores in its comparison, unless the save names other fields. */
  ignoreFields: string[];
  /** Whether a change keeps the payload before it. */
  keepPrevious: boolean;
  /** The limits above which delete tracking holds a deletion: see `track-deletes.ts`. */
  massDeleteShare: number;
  massDeleteNumber: number;
  /** The position at which the open delete tracking began; null if none is open. */
  trackedFrom: number | null;
  /** Null also if a service of an earlier version opened the tracking. */
  trackingId: string | null;
  trackingIsPartial: boolean;
  heldAt: Date | null;
  /** The number of records that the next end of a held tracking may delete. */
  allowedCount: number | null;
};

/** A dataset whose row this transaction has locked. */
export type LockedDataset = Dataset & {
  connection: number;
  model: string;
  variant: string;
  /** The connection was deleted: nothing may be written. */
  isClosed: boolean;
  /**
   * The time of all changes of this transaction, as text that PostgreSQL reads back to the microsecond. It was read under
   * the lock and is later than any time before, even if the clock was set back. So times are in the order of seq, and
   * the time of a change always differs from the time at which its record was added.
   */
  writeTime: string;
};

const columns = `
  id,
  last_seq as "lastSeq",
  prune_floor as "pruneFloor",
  tombstone_floor as "tombstoneFloor",
  emptied_seq as "emptiedSeq",
  has_leftovers as "hasLeftovers",
  records,
  deleted,
  pruned,
  payload_bytes as "payloadBytes",
  ignore_fields as "ignoreFields",
  keep_previous as "keepPrevious",
  mass_delete_share as "massDeleteShare",
  mass_delete_number as "massDeleteNumber",
  tracked_from as "trackedFrom",
  tracking_id as "trackingId",
  tracking_is_partial as "trackingIsPartial",
  held_at as "heldAt",
  allowed_count as "allowedCount"`;

/** The position up to which a reader skips all rows, which are from before the dataset was emptied; 0 if there are none. */
export function hiddenUntil({
  hasLeftovers,
  emptiedSeq,
}: Pick<Dataset, 'hasLeftovers' | 'emptiedSeq'>): number {
  return hasLeftovers ? emptiedSeq : 0;
}

/** SQL: the same for a row of `dataset`. */
export const hiddenSeq = 'case when dataset.has_leftovers then dataset.emptied_seq else 0 end';

/**
 * For the rest of a transaction, rows are found by index, and no statistics can select a wrong one (decision 0023). For
 * a dataset that is not in the statistics, the planner expects one row: then every index whose first column is the
 * dataset costs the same, and the planner may read the whole dataset for each record.
 *
 * Without sorting, a statement that orders by the second column of an index can use that index alone. So each statement
 * that finds rows of `record` has such an `order by`; `payload` has one index. `= any` on the second column does not
 * help: before PostgreSQL 17 it keeps no order, so it is a filter. `rowsAt` finds rows at many positions.
 */
const byIndexAlone = `
  set_config('enable_seqscan', 'off', true),
  set_config('enable_bitmapscan', 'off', true),
  set_config('enable_hashjoin', 'off', true),
  set_config('enable_mergejoin', 'off', true),
  set_config('enable_sort', 'off', true),
  set_config('max_parallel_workers_per_gather', '0', true),
  set_config('jit', 'off', true)`;

/** The statement of `planByIndexAlone`, for a pipeline. */
export const planningByIndexAlone = `select ${byIndexAlone}`;

/** Plans the rest of the transaction by index alone, for statements across datasets. */
export async function planByIndexAlone(tx: Tx): Promise<void> {
  await tx.query(planningByIndexAlone);
}

/**
 * SQL: the row belongs to dataset $1, in a form that no index supports. Every relation of a statement names its
 * dataset. Where a statement finds its rows by something else than the dataset's id, a plain comparison would let the
 * planner read the whole dataset. Ids are below 2^53, so a double is exact.
 */
export const inDataset = 'dataset_id = $1::bigint::double precision';

/**
 * SQL after `unnest(...) as asked (seq)`: `found.row_id` is the row of `table` at each of these positions of dataset
 * $1. An update or delete joins it by `ctid`, with `inDataset`: with a join by the dataset's id, the planner could start
 * from the dataset's rows and read all positions for each of them. The rows do not move under the dataset's lock.
 */
export function rowsAt(table: 'record' | 'payload'): string {
  return `
    cross join lateral (
      select ctid as row_id
      from ${table}
      where dataset_id = $1 and seq >= asked.seq and seq <= asked.seq
      order by seq
    ) as found`;
}

/** Undefined if nothing was ever saved. */
export async function findDataset(q: Db | Tx, name: DatasetName): Promise<Dataset | undefined> {
  const id = await findDatasetId(q, name);
  if (id === undefined) return undefined;
  return select('isTransaction' in q ? q : recordsDb(q, id), { id, name, selected: columns });
}

/**
 * Reads one snapshot of a dataset, by index alone. `work` gets no dataset if nothing was ever saved. The id is found before
 * the transaction, which reads the dataset's own tables alone.
 */
export async function readDataset<T>(
  db: Db,
  name: DatasetName,
  work: (tx: Tx, dataset: Dataset | undefined) => Promise<T>,
): Promise<T> {
  const id = await findDatasetId(db, name);
  if (id === undefined) return db.transaction((tx) => work(tx, undefined), 'snapshot');
  const selected = `${columns}, ${byIndexAlone}`;
  return recordsDb(db, id).transaction(
    async (tx) => work(tx, await select(tx, { id, name, selected })),
    'snapshot',
  );
}

/** The name is compared again, so that an id of the cache never leads to another dataset. */
async function select(
  q: Queryable,
  { id, name, selected }: { id: number; name: DatasetName; selected: string },
): Promise<Dataset | undefined> {
  const rows = await q.query<Dataset>(
    `select ${selected} from dataset where id = $1 and connection = $2 and model = $3 and variant = $4`,
    [id, name.connection, name.model, name.variant],
  );
  const row = first(rows);
  if (row === undefined) idsOf(q).delete(keyOf(name));
  return row;
}

/** The ids of datasets by their names, for each database. A dataset keeps its name, and no id is assigned twice. */
const knownIds = new WeakMap<object, Map<string, number>>();
/** About 5 MB for each database. */
const maxKnownIds = 20_000;

function idsOf({ database }: Queryable): Map<string, number> {
  const known = knownIds.get(database) ?? new Map<string, number>();
  knownIds.set(database, known);
  return known;
}

function keyOf({ connection, model, variant }: DatasetName): string {
  return JSON.stringify([connection, model, variant]);
}

/**
 * The id under a name, which may come from a cache: a statement that uses it must verify the dataset's connection.
 * Undefined if nothing was ever saved.
 */
export async function findDatasetId(q: Queryable, name: DatasetName): Promise<number | undefined> {
  const [known, key] = [idsOf(q), keyOf(name)];
  const cached = known.get(key);
  if (cached !== undefined) return cached;
  const found = first(
    await q.query<{ id: number }>(
      'select id from dataset_name where connection = $1 and model = $2 and variant = $3',
      [name.connection, name.model, name.variant],
    ),
  );
  if (found === undefined) return undefined;
  const [oldest] = known.keys();
  if (known.size >= maxKnownIds && oldest !== undefined) known.delete(oldest);
  known.set(key, found.id);
  return found.id;
}

/**
 * Returns the dataset's id, and creates the row if there is none, also for many callers at once. Throws
 * `unknown_connection` if the connection is deleted meanwhile and its datasets are removed.
 */
export async function ensureDataset(db: Db, name: DatasetName): Promise<number> {
  const found = await findDataset(db, name);
  if (found !== undefined) return found.id;
  const values = [name.connection, name.model, name.variant];
  await db.query(
    // The deletion of the connection either waits for this lock and closes the dataset, or comes first.
    `insert into dataset_name (connection, model, variant)
     select id, $2, $3
     from connection
     where id = $1 and deleted_at is null
     for key share
     on conflict (connection, model, variant) do nothing`,
    values,
  );
  const made = await findDataset(db, name);
  if (made !== undefined) return made.id;
  // On a cluster the name is a row on another machine, which is committed first: its id is never assigned again.
  const id = await findDatasetId(db, name);
  if (id === undefined) throw new AppError('unknown_connection');
  await db.transaction(async (tx) => {
    await holdConnection(tx, name.connection);
    await tx.query(
      `insert into dataset (id, connection, model, variant)
       overriding system value
       values ($1, $2, $3, $4)
       on conflict (id) do nothing`,
      [id, ...values],
    );
  });
  return id;
}

/**
 * Waits for the dataset's lock, which orders all its writers, and returns the row as the last writer left it; undefined
 * if the dataset is gone. The lock is a statement of its own, since other rows of the same statement are read as of
 * before the wait. Plans the rest of the transaction by index alone. An id that a caller has given needs `owner`.
 */
export async function lockDataset(
  tx: Tx,
  datasetId: number,
  owner?: { connection: number },
): Promise<LockedDataset | undefined> {
  // The subquery has waited for the lock when the clock is read. Without parameters, it is sent with `begin`.
  const rows = await tx.query<LockedDataset>(`
     select
       ${columns},
       connection,
       model,
       variant,
       closed as "isClosed",
       greatest(clock_timestamp(), last_modified_at + interval '1 microsecond')::text as "writeTime",
       ${byIndexAlone}
     from (
       select *
       from dataset
       where id = ${datasetId} ${owner === undefined ? '' : `and connection = ${owner.connection}`}
       for no key update
     ) as dataset`);
  return first(rows);
}

/** What a write adds to the dataset's counters. All but `seqs` may be negative. */
type Advance = {
  /** The number of positions that the write takes. */
  seqs?: number;
  records?: number;
  deleted?: number;
  pruned?: number;
  payloadBytes?: number;
  /** The lowest seq that gets its payload back. */
  restoredFrom?: number;
};

/** Updates the row of a locked dataset for a write, and returns the first position that the write takes. */
export async function advanceDataset(
  tx: Tx,
  { id, writeTime }: Pick<LockedDataset, 'id' | 'writeTime'>,
  by: Advance,
): Promise<number> {
  const seqs = by.seqs ?? 0;
  const rows = await tx.query<{ lastSeq: number }>(
    `update dataset
     set
       last_seq = last_seq + $2,
       last_modified_at = case when $2 = 0 then last_modified_at else $8::timestamptz end,
       records = records + $3,
       deleted = deleted + $4,
       pruned = pruned + $5,
       payload_bytes = payload_bytes + $6,
       prune_floor = least(prune_floor, $7)
     where id = $1
     returning last_seq as "lastSeq"`,
    [
      id,
      seqs,
      by.records ?? 0,
      by.deleted ?? 0,
      by.pruned ?? 0,
      by.payloadBytes ?? 0,
      by.restoredFrom === undefined ? null : by.restoredFrom - 1,
      writeTime,
    ],
  );
  const row = first(rows);
  if (row === undefined) throw new Error('a locked dataset has no row');
  return row.lastSeq - seqs + 1;
}
