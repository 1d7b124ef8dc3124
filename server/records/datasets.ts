import { type AuditEntry, writeDatasetAudit } from '../activity/audit.ts';
import { holdConnection } from '../connections/store/store.ts';
import { type Db, first, type Queryable, recordsDb, type Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { DatasetSubject, EventData } from '../events/event-types.ts';
import { queueEventOfDataset } from '../events/outbox.ts';
import { cursorWriter } from './cursor.ts';
import {
  type Dataset,
  type DatasetName,
  ensureDataset,
  hiddenSeq,
  type LockedDataset,
  lockDataset,
  planByIndexAlone,
} from './dataset.ts';

/** Datasets as users see them: the list, the settings, and the events. */

export type DatasetView = Pick<
  Dataset,
  | ('records' | 'deleted' | 'pruned' | 'payloadBytes' | 'heldAt')
  | ('ignoreFields' | 'keepPrevious' | 'massDeleteShare' | 'massDeleteNumber')
> & {
  model: string;
  variant: string;
  /** The cursors of the first and the last record; undefined if there is none. */
  firstCursor: string | undefined;
  lastCursor: string | undefined;
  /** In UTC as PostgreSQL writes it; null if nothing was ever changed. */
  lastModifiedAt: string | null;
  isTracking: boolean;
};

type DatasetRow = Omit<DatasetView, 'firstCursor' | 'lastCursor'> & {
  id: number;
  firstSeq: number | null;
  lastSeq: number | null;
};

/** SQL: `datasetId` is $1 for one dataset, and the column for several. */
const columns = (datasetId: '$1' | 'dataset.id') => `
    id,
    model,
    variant,
    records,
    deleted,
    pruned,
    payload_bytes as "payloadBytes",
    (select seq from record where dataset_id = ${datasetId} and seq > ${hiddenSeq} order by seq limit 1) as "firstSeq",
    (
      select seq from record where dataset_id = ${datasetId} and seq > ${hiddenSeq} order by seq desc limit 1
    ) as "lastSeq",
    case
      when isfinite(last_modified_at) then (last_modified_at at time zone 'UTC')::text
    end as "lastModifiedAt",
    ignore_fields as "ignoreFields",
    keep_previous as "keepPrevious",
    mass_delete_share as "massDeleteShare",
    mass_delete_number as "massDeleteNumber",
    tracked_from is not null as "isTracking",
    held_at as "heldAt"`;

/** Lists all datasets of a connection, by model and variant. */
export async function listDatasets(db: Db, connection: number): Promise<DatasetView[]> {
  const rows = await db.transaction(async (tx) => {
    await planByIndexAlone(tx);
    return tx.query<DatasetRow>(
      `select ${columns('dataset.id')}
       from dataset
       where connection = $1
       order by model collate "C", variant collate "C"`,
      [connection],
    );
  });
  return rows.map(toView);
}

export type DatasetOfConnection = Pick<
  DatasetView,
  'model' | 'variant' | 'records' | 'pruned' | 'payloadBytes' | 'lastModifiedAt' | 'isTracking' | 'heldAt'
> & {
  connection: number;
  /** By name; `behind` is the number of records that changed after the consumer's cursor. */
  consumers: { name: string; behind: number }[];
};

/** Lists all datasets of these connections of the environment, by connection, model and variant. */
export async function listDatasetsOf(
  db: Db,
  { environmentId, connections }: { environmentId: number; connections: readonly number[] },
): Promise<DatasetOfConnection[]> {
  const found = await db.query<{ id: number }>(
    'select id from connection where environment_id = $1 and id = any($2) and deleted_at is null',
    [environmentId, connections],
  );
  if (found.length === 0) return [];
  return db.transaction(async (tx) => {
    await planByIndexAlone(tx);
    const datasets = await tx.query<Omit<DatasetOfConnection, 'consumers'> & { id: number }>(
      `select
         connection,
         id,
         model,
         variant,
         records,
         pruned,
         payload_bytes as "payloadBytes",
         case
           when isfinite(last_modified_at) then (last_modified_at at time zone 'UTC')::text
         end as "lastModifiedAt",
         tracked_from is not null as "isTracking",
         held_at as "heldAt"
       from dataset
       where connection = any($1)
       order by connection, model collate "C", variant collate "C"`,
      [found.map(({ id }) => id)],
    );
    const consumers = await tx.query<{ datasetId: number; name: string; behind: number }>(
      `select
         dataset_id as "datasetId",
         name,
         (select count(*)
          from record
          where record.dataset_id = consumer.dataset_id and record.seq > consumer.seq) as behind
       from consumer
       where dataset_id = any($1)
       order by name`,
      [datasets.map(({ id }) => id)],
    );
    const byDataset = Map.groupBy(consumers, ({ datasetId }) => datasetId);
    return datasets.map(({ id, ...dataset }) => ({
      ...dataset,
      consumers: (byDataset.get(id) ?? []).map(({ name, behind }) => ({ name, behind })),
    }));
  });
}

/** Settings that are undefined stay as they are. */
export type DatasetSettings = {
  /** Names of fields that a save ignores in its comparison, unless the save names other fields. */
  ignoreFields?: readonly string[] | undefined;
  /** Whether a change keeps the payload before it. Payloads that are already kept stay. */
  keepPrevious?: boolean | undefined;
  /** From 0 to 1: with 1 a deletion is never held. */
  massDeleteShare?: number | undefined;
  massDeleteNumber?: number | undefined;
};

/**
 * Changes the settings of a dataset, and creates the dataset if nothing was saved yet. Stored records stay as they are:
 * each is compared by the new settings when it is saved next. With `by`, it writes an audit entry. Throws
 * `unknown_connection` if the connection was deleted meanwhile.
 */
export async function setDatasetSettings(
  db: Db,
  of: DatasetName,
  { by, ...settings }: DatasetSettings & { by?: Pick<AuditEntry, 'environmentId' | 'actor' | 'target'> },
): Promise<DatasetView> {
  const datasetId = await ensureDataset(db, of);
  return recordsDb(db, datasetId).transaction(async (tx) => {
    await lockForWrite(tx, { connection: of.connection, datasetId });
    await tx.query(
      `update dataset
       set
         ignore_fields = coalesce($2::text[], ignore_fields),
         mass_delete_share = coalesce($3::double precision, mass_delete_share),
         mass_delete_number = coalesce($4::bigint, mass_delete_number),
         keep_previous = coalesce($5::boolean, keep_previous)
       where id = $1`,
      [
        datasetId,
        settings.ignoreFields === undefined ? null : [...new Set(settings.ignoreFields)].sort(),
        settings.massDeleteShare ?? null,
        settings.massDeleteNumber ?? null,
        settings.keepPrevious ?? null,
      ],
    );
    const [row] = await tx.query<DatasetRow>(`select ${columns('$1')} from dataset where id = $1`, [
      datasetId,
    ]);
    if (row === undefined) throw new Error('a locked dataset has no row');
    const dataset = toView(row);
    if (by !== undefined) {
      const details = {
        model: of.model,
        variant: of.variant,
        ignore_fields: dataset.ignoreFields.join(','),
        keep_previous: dataset.keepPrevious,
        mass_delete_share: dataset.massDeleteShare,
        mass_delete_number: dataset.massDeleteNumber,
      };
      writeDatasetAudit(tx, datasetId, { ...by, action: 'dataset.changed', details });
    }
    return dataset;
  });
}

/**
 * Locks a dataset for a write, and keeps its connection from being deleted until the transaction ends. Throws
 * `unknown_connection` if the connection was deleted. For connections that nodes of this version delete, the lock of the
 * dataset is enough: see `migrations/0058_closed_datasets.sql`. Older nodes do not run with a cluster.
 */
export async function lockForWrite(
  tx: Tx,
  { connection, datasetId }: { connection: number; datasetId: number },
): Promise<LockedDataset> {
  if (!tx.isOnWorker) await holdConnection(tx, connection);
  const dataset = await lockDataset(tx, datasetId);
  if (dataset === undefined || dataset.isClosed) throw new AppError('unknown_connection');
  return dataset;
}

function toView({ id, firstSeq, lastSeq, ...row }: DatasetRow): DatasetView {
  const cursorOf = cursorWriter(id);
  return {
    ...row,
    firstCursor: firstSeq === null ? undefined : cursorOf(firstSeq),
    lastCursor: lastSeq === null ? undefined : cursorOf(lastSeq),
  };
}

type DatasetEventType = 'records.mass_delete_held' | 'records.dataset_emptied' | 'consumer.stale';
type DatasetEvent = {
  [T in DatasetEventType]: { type: T; data: Omit<EventData[T], keyof DatasetSubject> };
}[DatasetEventType];

/** The connection of a dataset, as its events name it. */
export type EventOwner = { environmentId: number; of: Omit<DatasetSubject, 'model' | 'variant'> };

/** Undefined if the connection is deleted. A transaction about records does not read it: it is in another table. */
export async function findEventOwner(q: Queryable, connection: number): Promise<EventOwner | undefined> {
  return first(
    await q.query<EventOwner>(
      `select
         connection.environment_id as "environmentId",
         json_build_object(
           'connection_id', connection.connection_id,
           'provider_config_key', integration.key
         ) as of
       from connection
       join integration on integration.id = connection.integration_id
       where connection.id = $1 and connection.deleted_at is null`,
      [connection],
    ),
  );
}

/** Queues an event about a dataset, and adds its subject. Queues nothing without an owner. */
export function queueDatasetEvent(
  tx: Tx,
  of: { dataset: { id: number; model: string; variant: string }; owner: EventOwner | undefined },
  { type, data }: DatasetEvent,
): void {
  if (of.owner === undefined) return;
  const { id: datasetId, model, variant } = of.dataset;
  const { environmentId, of: subject } = of.owner;
  queueEventOfDataset(tx, { datasetId, environmentId, type, data: { ...subject, model, variant, ...data } });
}
