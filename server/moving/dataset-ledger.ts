import type { Queryable } from '../db/pool.ts';
import { type Dataset, held, type Import, type Only, type OpenImport, requireHeld } from './ledger.ts';

/** How far the records of an import are: the table `imported_dataset`. */
export type DatasetProgress = {
  position: string | undefined;
  records: number;
  deleted: number;
  pruned: number;
  isDone: boolean;
  /** The last position of the dataset here, when this was noted. */
  lastSeq: number;
};

const datasetKey = ({ integration, connection, model, variant }: Dataset) => [
  integration,
  connection,
  model,
  variant,
];

/** Of the dataset of this row of the connection. Undefined where none of its records was read yet. */
export async function findDatasetProgress(
  db: Queryable,
  { id }: Import,
  { dataset, storedId }: { dataset: Dataset; storedId: number },
): Promise<DatasetProgress | undefined> {
  const [row] = await db.query<Omit<DatasetProgress, 'position'> & { position: string | null }>(
    `select position, records, deleted, pruned, is_done as "isDone", last_seq as "lastSeq"
     from imported_dataset
     where import_id = $1
       and integration = $2
       and connection = $3
       and model = $4
       and variant = $5
       and stored_id = $6`,
    [id, ...datasetKey(dataset), storedId],
  );
  return row && { ...row, position: row.position ?? undefined };
}

/** In the transaction that saves the records, in place of what was known of another row. Throws as `note`. */
export async function noteDatasetProgress(
  tx: Queryable,
  { id, run }: OpenImport,
  { dataset, storedId, progress }: { dataset: Dataset; storedId: number; progress: DatasetProgress },
): Promise<void> {
  const noted = await tx.query(
    `with ${held}
     insert into imported_dataset (
       import_id, integration, connection, model, variant,
       stored_id, position, records, deleted, pruned, is_done, last_seq
     )
     select id, $3, $4, $5, $6, $7::bigint, $8, $9::bigint, $10::bigint, $11::bigint, $12::boolean, $13::bigint
     from held
     on conflict on constraint imported_dataset_pkey do update
     set
       stored_id = excluded.stored_id,
       position = excluded.position,
       records = excluded.records,
       deleted = excluded.deleted,
       pruned = excluded.pruned,
       is_done = excluded.is_done,
       last_seq = excluded.last_seq
     returning import_id`,
    [
      id,
      run,
      ...datasetKey(dataset),
      storedId,
      progress.position ?? null,
      progress.records,
      progress.deleted,
      progress.pruned,
      progress.isDone,
      progress.lastSeq,
    ],
  );
  requireHeld(noted);
}

/** How many datasets and records of these integrations were moved, over all runs, of connections that are here. */
export async function countRecords(
  db: Queryable,
  { id }: Import,
  only: Only,
): Promise<{ datasets: number; records: number; deleted: number; pruned: number; unfinished: number }> {
  const [row] = await db.query<{
    datasets: number;
    records: number;
    deleted: number;
    pruned: number;
    unfinished: number;
  }>(
    `select
       count(*) as datasets,
       coalesce(sum(records), 0)::bigint as records,
       coalesce(sum(deleted), 0)::bigint as deleted,
       coalesce(sum(pruned), 0)::bigint as pruned,
       count(*) filter (where not is_done) as unfinished
     from imported_dataset
     join connection on connection.id = stored_id and connection.deleted_at is null
     where import_id = $1
       and ($2::text[] is null or integration = any($2))`,
    [id, only && [...only]],
  );
  return row!;
}
