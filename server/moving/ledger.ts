import type { Queryable, Tx } from '../db/pool.ts';

/**
 * What was moved in from elsewhere, and how far an import is.
 *
 * Owns: the tables `import`, `imported_connection` and `imported_dataset`. Does not own: that one import at a time goes into an
 * environment (`alone.ts`), how what is imported is read (`peer/`, `file/`) and stored (`connections.ts`, `datasets.ts`).
 *
 * A source's rows stay, so that whoever runs the same import again, after a kill or a month, goes on where it was, and a
 * connection that was deleted here since does not come back.
 */
export type Outcome =
  | 'made'
  | 'overwritten'
  /** It was here before, and was left alone. */
  | 'existing'
  /** The source has no credentials for it that work. */
  | 'dead'
  /** The source has it no more. */
  | 'gone'
  /** It was imported, and deleted here since. */
  | 'removed'
  | 'skipped'
  | 'failed';

/** Those after which the connection is here with credentials, and those after which it is or was here at all. */
const settled: readonly Outcome[] = ['made', 'overwritten', 'existing'];
const placed: readonly Outcome[] = [...settled, 'dead', 'removed'];

export type Place = { integration: string; connection: string };
export type Dataset = Place & { model: string; variant: string };
export type Judged = Place & { outcome: Outcome; reason?: string | undefined; detail?: string | undefined };

/** The row of a connection, and the version of its credentials. */
export type Stored = { id: number; credentialsVersion: number };

export type DatasetProgress = {
  position: string | undefined;
  records: number;
  deleted: number;
  pruned: number;
  isDone: boolean;
  /** The last position of the dataset here, when this was noted. */
  lastSeq: number;
};

/** Where a source's rows are. */
export type Import = { id: number; environmentId: number };

/**
 * The import of this source into the environment. It goes on with the run that has not come to its end, or begins one; what
 * a run has stored is not read again for it (`isSettled`).
 */
export async function openImport(
  db: Queryable,
  { environmentId, source }: { environmentId: number; source: string },
): Promise<Import> {
  const [row] = await db.query<{ id: number }>(
    `insert into import (environment_id, source)
     values ($1, $2)
     on conflict on constraint import_source_unique do update
     set
       started_at = case when import.ended_at is null then import.started_at else now() end,
       ended_at = null
     returning id`,
    [environmentId, source],
  );
  return { id: row!.id, environmentId };
}

/** Undefined where nothing was imported from there yet. */
export async function findImport(
  db: Queryable,
  { environmentId, source }: { environmentId: number; source: string },
): Promise<Import | undefined> {
  const [row] = await db.query<{ id: number }>(
    'select id from import where environment_id = $1 and source = $2',
    [environmentId, source],
  );
  return row && { id: row.id, environmentId };
}

/** Notes that a run went through to its end. */
export async function closeImport(db: Queryable, { id }: Import): Promise<void> {
  await db.query('update import set ended_at = now() where id = $1', [id]);
}

/**
 * Writes what became of connections, in the transaction of it where there is one; `stored` where credentials were put there.
 * `made` and `overwritten` are for those that have just been so.
 */
export async function note(
  tx: Queryable,
  { id }: Import,
  judged: readonly (Judged & { stored?: Stored })[],
): Promise<void> {
  if (judged.length === 0) return;
  await tx.query(
    `insert into imported_connection
       (import_id, integration, connection, outcome, reason, detail, stored_id, stored_version)
     select $1, integration, connection, outcome, reason, detail, stored_id, stored_version
     from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[])
       as given (integration, connection, outcome, reason, detail, stored_id, stored_version)
     on conflict on constraint imported_connection_pkey do update
     set
       outcome = excluded.outcome,
       reason = excluded.reason,
       detail = excluded.detail,
       stored_id = coalesce(excluded.stored_id, imported_connection.stored_id),
       stored_version = coalesce(excluded.stored_version, imported_connection.stored_version),
       at = case
         when excluded.outcome in ('made', 'overwritten') then now()
         else imported_connection.at
       end`,
    [
      id,
      judged.map(({ integration }) => integration),
      judged.map(({ connection }) => connection),
      judged.map(({ outcome }) => outcome),
      judged.map(({ reason }) => reason ?? null),
      judged.map(({ detail }) => detail?.slice(0, 500) ?? null),
      judged.map(({ stored }) => stored?.id ?? null),
      judged.map(({ stored }) => stored?.credentialsVersion ?? null),
    ],
  );
}

/** Whether somebody else put credentials there since this import did: a refresh, its user, the application. */
export async function isChangedSince(
  tx: Queryable,
  { id }: Import,
  { place, stored }: { place: Place; stored: Stored },
): Promise<boolean> {
  const rows = await tx.query(
    `select
     from imported_connection
     where import_id = $1
       and integration = $2
       and connection = $3
       and (stored_id, stored_version) <> ($4, $5)`,
    [id, place.integration, place.connection, stored.id, stored.credentialsVersion],
  );
  return rows.length > 0;
}

/** What is known of a connection before it is read: whether it is here, and what became of it in this import. */
export type Known = Place & {
  isHere: boolean;
  /** What is here stands for one that has no credentials: see `connections.ts`. */
  isShell: boolean;
  /** The run that is to be gone on with has stored it, whether it is here still or not. */
  isSettled: boolean;
  outcome: Outcome | undefined;
};

/** In the order of `places`. `from` is undefined where nothing was imported yet. */
export async function look(
  db: Queryable,
  {
    environmentId,
    from,
    places,
  }: { environmentId: number; from: Import | undefined; places: readonly Place[] },
): Promise<Known[]> {
  const rows = await db.query<Omit<Known, 'outcome'> & { outcome: Outcome | null }>(
    `select
       asked.integration,
       asked.connection,
       connection.id is not null as "isHere",
       coalesce(connection.status = 'needs_reauth' and connection.fault -> 'evidence' ? 'imported_from', false)
         as "isShell",
       coalesce(
         imported_connection.outcome in ('made', 'overwritten', 'removed')
           and import.ended_at is null
           and imported_connection.at >= import.started_at,
         false
       ) as "isSettled",
       imported_connection.outcome
     from unnest($2::text[], $3::text[]) with ordinality as asked (integration, connection, nth)
     left join integration on integration.environment_id = $1 and integration.key = asked.integration
     left join connection
       on connection.integration_id = integration.id
       and connection.connection_id = asked.connection
       and connection.deleted_at is null
     left join import on import.id = $4
     left join imported_connection
       on imported_connection.import_id = import.id
       and imported_connection.integration = asked.integration
       and imported_connection.connection = asked.connection
     order by nth`,
    [
      environmentId,
      places.map(({ integration }) => integration),
      places.map(({ connection }) => connection),
      from?.id ?? null,
    ],
  );
  return rows.map((row) => ({ ...row, outcome: row.outcome ?? undefined }));
}

/**
 * What is to be done about a connection of the source: `import` it, or what is known of it without a look at the source.
 * One that was deleted here since it was imported stays so, and what a run has stored is not read again for the same run:
 * its tokens may have been used here meanwhile.
 */
export function judge(
  { isHere, isShell, isSettled, outcome }: Known,
  { overwrites }: { overwrites: boolean },
): 'import' | Outcome {
  const wasHere = outcome !== undefined && placed.includes(outcome);
  if (!isHere) return wasHere && (isSettled || !overwrites) ? 'removed' : 'import';
  // A source that had none either has nothing to give.
  const isWaiting = isShell && outcome !== 'made';
  if (!isSettled && (isWaiting || overwrites)) return 'import';
  return outcome === 'made' || outcome === 'overwritten' ? outcome : 'existing';
}

/** How many connections came to what, over all runs. */
export async function countOutcomes(
  db: Queryable,
  { id }: Import,
): Promise<{ outcome: Outcome; reason: string | undefined; count: number }[]> {
  const rows = await db.query<{ outcome: Outcome; reason: string | null; count: number }>(
    `select outcome, reason, count(*) as count
     from imported_connection
     where import_id = $1
     group by outcome, reason
     order by outcome, reason`,
    [id],
  );
  return rows.map(({ reason, ...row }) => ({ ...row, reason: reason ?? undefined }));
}

/** Those that are not here, or not whole, in pages. */
export async function* pagesOfUnsettled(db: Queryable, { id }: Import): AsyncGenerator<Judged[]> {
  for (let after: Place = { integration: '', connection: '' }; ; ) {
    const rows = await db.query<Judged>(
      `select integration, connection, outcome, reason, detail
       from imported_connection
       where import_id = $1
         and outcome <> all($2)
         and (integration, connection) > ($3, $4)
       order by integration, connection
       limit 500`,
      [id, settled, after.integration, after.connection],
    );
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last;
    yield rows;
  }
}

/** Those that are here by this import, or were before it, in pages. */
export async function* pagesOfHere(db: Queryable, { id }: Import): AsyncGenerator<Place[]> {
  for (let after: Place = { integration: '', connection: '' }; ; ) {
    const rows = await db.query<Place>(
      `select integration, connection
       from imported_connection
       where import_id = $1
         and outcome = any($2)
         and (integration, connection) > ($3, $4)
       order by integration, connection
       limit 500`,
      [id, [...settled, 'dead'], after.integration, after.connection],
    );
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last;
    yield rows;
  }
}

const datasetKey = ({ integration, connection, model, variant }: Dataset) => [
  integration,
  connection,
  model,
  variant,
];

/** Undefined where none of its records was read yet. */
export async function findDatasetProgress(
  db: Queryable,
  { id }: Import,
  dataset: Dataset,
): Promise<DatasetProgress | undefined> {
  const [row] = await db.query<Omit<DatasetProgress, 'position'> & { position: string | null }>(
    `select position, records, deleted, pruned, is_done as "isDone", last_seq as "lastSeq"
     from imported_dataset
     where import_id = $1 and integration = $2 and connection = $3 and model = $4 and variant = $5`,
    [id, ...datasetKey(dataset)],
  );
  return row && { ...row, position: row.position ?? undefined };
}

export async function noteDatasetProgress(
  db: Queryable | Tx,
  { id }: Import,
  { dataset, progress }: { dataset: Dataset; progress: DatasetProgress },
): Promise<void> {
  await db.query(
    `insert into imported_dataset
       (import_id, integration, connection, model, variant, position, records, deleted, pruned, is_done, last_seq)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
     on conflict on constraint imported_dataset_pkey do update
     set
       position = excluded.position,
       records = excluded.records,
       deleted = excluded.deleted,
       pruned = excluded.pruned,
       is_done = excluded.is_done,
       last_seq = excluded.last_seq`,
    [
      id,
      ...datasetKey(dataset),
      progress.position ?? null,
      progress.records,
      progress.deleted,
      progress.pruned,
      progress.isDone,
      progress.lastSeq,
    ],
  );
}

/** How many datasets and records were moved, over all runs. */
export async function countRecords(
  db: Queryable,
  { id }: Import,
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
     where import_id = $1`,
    [id],
  );
  return row!;
}
