/**
 * The ledger of imports: what became of each connection and dataset, and how far an import has read its source.
 *
 * Owns: the tables `import`, `imported_connection` and `imported_dataset`. Does not own: that one import at a time writes
 * to an environment (`import-lock.ts`), how the source is read (`peer/`, `file/`) and stored (`connections.ts`,
 * `datasets.ts`).
 *
 * A process may notice late that it lost the lock. So each run has a token, and each write to the ledger is in the
 * transaction of what it describes and fails once another run has begun in the environment: from then on the earlier run
 * writes nothing.
 *
 * The rows of a source stay. So an import that is run again after a kill or after a month continues where it stopped, and
 * does not restore a connection that was deleted here since.
 */
import type { Queryable } from '../../server/db/pool.ts';
import { AppError } from '../../server/errors.ts';

export type Outcome =
  | 'made'
  | 'overwritten'
  /** The connection was here before, and was not changed. */
  | 'existing'
  /** The source has no valid credentials for it. */
  | 'dead'
  /** The source no longer has it. */
  | 'gone'
  /** It was imported, and deleted here since. */
  | 'removed'
  | 'skipped'
  | 'failed';

/** After these the connection is here with credentials. */
const settled: readonly Outcome[] = ['made', 'overwritten', 'existing'];
/** These prove that the connection is or was here. */
const placed: readonly Outcome[] = [...settled, 'dead', 'removed'];
/** Attempts that changed nothing here. */
const passed: readonly Outcome[] = ['dead', 'gone', 'skipped', 'failed'];

export type ConnectionRef = { integration: string; connection: string };
export type DatasetRef = ConnectionRef & { model: string; variant: string };
export type ConnectionOutcome = ConnectionRef & {
  outcome: Outcome;
  reason?: string | undefined;
  detail?: string | undefined;
};

/** The row of a connection, and the version of its credentials. */
type StoredCredentials = { id: number; credentialsVersion: number };
/** `sourceGrantedAt`: the time of the grant, if the source gives it. */
type StoredGrant = StoredCredentials & { sourceGrantedAt: Date | undefined };

/** The import of one source into one environment. */
export type Import = { id: number; environmentId: number };
/** The import with the token of the run that may write. */
export type ImportRun = Import & { run: string };

/** Keys of the integrations that a run covers; undefined: all. */
export type IntegrationFilter = ReadonlySet<string> | undefined;

/**
 * Opens the import of this source into the environment. It continues an unfinished run with the same `overwrites`, and
 * otherwise begins a new run. Waits for the transaction that an earlier run has open in the environment; later writes of
 * that run fail.
 */
export async function openImport(
  db: Queryable,
  { environmentId, source, overwrites }: { environmentId: number; source: string; overwrites: boolean },
): Promise<ImportRun> {
  const [row] = await db.query<{ id: number; run: string }>(
    `with others as (
       update import set run = gen_random_uuid() where environment_id = $1 and source <> $2
     )
     insert into import (environment_id, source, overwrites)
     values ($1, $2, $3)
     on conflict on constraint import_source_unique do update
     set
       run = excluded.run,
       overwrites = excluded.overwrites,
       started_at = case
         when import.ended_at is null and import.overwrites = excluded.overwrites then import.started_at
         else now()
       end,
       ended_at = null
     returning id, run`,
    [environmentId, source, overwrites],
  );
  return { ...row!, environmentId };
}

/** A part of a statement: the import, if `$1` and `$2` are its ID and its current run. Locked until the transaction ends. */
const currentRun = `held as (select id from import where id = $1 and run = $2 for share)`;

/** Throws `unavailable` if a statement on `currentRun` has written no row, because another run has begun. */
function requireCurrentRun(rows: readonly object[]): void {
  if (rows.length > 0) return;
  const message =
    'Another import into this environment has started, so this import has ended. Run the same command again after the ' +
    'other import has ended: it continues where it stopped.';
  throw new AppError('unavailable', message);
}

/** Undefined if nothing was imported from this source yet. */
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

/** Marks the run as complete. Throws `unavailable` if another run has begun. */
export async function closeImport(db: Queryable, { id, run }: ImportRun): Promise<void> {
  const closed = await db.query(
    'update import set ended_at = now() where id = $1 and run = $2 returning id',
    [id, run],
  );
  requireCurrentRun(closed);
}

/**
 * Writes the outcomes of connections; `made` and `overwritten` in the transaction that stores the connection, with
 * `stored` if it stored credentials. Throws `unavailable` if another run has begun.
 *
 * The reason `no_refresh_token` stays as long as the credentials here are unchanged, whatever a later attempt came to: its
 * reason is then added to the detail. Otherwise no run would request that connection again.
 */
export async function saveOutcomes(
  tx: Queryable,
  { id, run }: ImportRun,
  outcomes: readonly (ConnectionOutcome & { stored?: StoredGrant })[],
): Promise<void> {
  // Two entries of the source may have one storable ID.
  const unique = new Map(outcomes.map((one) => [JSON.stringify([one.integration, one.connection]), one]));
  const rows = [...unique.values()];
  if (rows.length === 0) return;
  const saved = await tx.query(
    `with ${currentRun}
     insert into imported_connection
       (import_id, integration, connection, outcome, was_here, reason, detail, stored_id, stored_version, granted_at)
     select
       held.id, integration, connection, outcome, outcome = any($11), reason, detail, stored_id, stored_version, granted_at
     from held
     cross join unnest(
       $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::timestamptz[]
     ) as given (integration, connection, outcome, reason, detail, stored_id, stored_version, granted_at)
     on conflict on constraint imported_connection_pkey do update
     set
       outcome = excluded.outcome,
       was_here = imported_connection.was_here or excluded.was_here,
       (reason, detail) = (
         select
           case when stays then imported_connection.reason else excluded.reason end,
           case when stays then concat_ws(': ', excluded.reason, excluded.detail) else excluded.detail end
         from (
           select excluded.outcome = any($12)
             and excluded.stored_id is null
             and imported_connection.reason = 'no_refresh_token'
             and exists (
               select
               from connection
               where id = imported_connection.stored_id
                 and credentials_version = imported_connection.stored_version
                 and deleted_at is null
             )
         ) as lacking (stays)
       ),
       stored_id = coalesce(excluded.stored_id, imported_connection.stored_id),
       stored_version = coalesce(excluded.stored_version, imported_connection.stored_version),
       granted_at = case
         when excluded.stored_id is null then imported_connection.granted_at
         else excluded.granted_at
       end,
       at = case
         when excluded.outcome in ('made', 'overwritten') then now()
         else imported_connection.at
       end
     returning import_id`,
    [
      id,
      run,
      rows.map(({ integration }) => integration),
      rows.map(({ connection }) => connection),
      rows.map(({ outcome }) => outcome),
      rows.map(({ reason }) => (reason === undefined ? null : storableText(reason, 100))),
      rows.map(({ detail }) => (detail === undefined ? null : storableText(detail, 500))),
      rows.map(({ stored }) => stored?.id ?? null),
      rows.map(({ stored }) => stored?.credentialsVersion ?? null),
      rows.map(({ stored }) => stored?.sourceGrantedAt ?? null),
      placed,
      passed,
    ],
  );
  requireCurrentRun(saved);
}

/** The first `max` characters, with U+FFFD for NUL and lone surrogates, which PostgreSQL does not store. */
export function storableText(text: string, max: number): string {
  return text.replaceAll('\0', '\ufffd').slice(0, max).toWellFormed();
}

/** What is stored of a connection before the source is read. */
type KnownConnection = ConnectionRef & {
  isHere: boolean;
  /** The connection here has no credentials and stands for one that has none at its source: see `connections.ts`. */
  isShell: boolean;
  /** The unfinished run has stored it, whether it is still here or not. */
  isSettled: boolean;
  /** It was here at some time, by this import or before it. */
  wasHere: boolean;
  outcome: Outcome | undefined;
  /** It was stored without a refresh token. */
  isLacking: boolean;
};

/** In the order of `refs`. `from` is undefined if nothing was imported yet; `overwrites`: of the current run. */
export async function findKnown(
  db: Queryable,
  {
    environmentId,
    from,
    refs,
    overwrites,
  }: { environmentId: number; from: Import | undefined; refs: readonly ConnectionRef[]; overwrites: boolean },
): Promise<KnownConnection[]> {
  const rows = await db.query<Omit<KnownConnection, 'outcome'> & { outcome: Outcome | null }>(
    `select
       asked.integration,
       asked.connection,
       connection.id is not null as "isHere",
       coalesce(connection.status = 'needs_reauth' and connection.fault -> 'evidence' ? 'imported_from', false)
         as "isShell",
       coalesce(
         imported_connection.outcome in ('made', 'overwritten', 'removed')
           and import.ended_at is null
           and import.overwrites = $5
           and imported_connection.at >= import.started_at,
         false
       ) as "isSettled",
       coalesce(imported_connection.was_here, false) as "wasHere",
       imported_connection.outcome,
       coalesce(imported_connection.reason = 'no_refresh_token', false) as "isLacking"
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
      refs.map(({ integration }) => integration),
      refs.map(({ connection }) => connection),
      from?.id ?? null,
      overwrites,
    ],
  );
  return rows.map((row) => ({ ...row, outcome: row.outcome ?? undefined }));
}

/**
 * Whether to `import` a connection of the source, or its outcome if the source need not be read. A connection that was
 * deleted here after its import stays deleted, and a run does not read again what it has stored: its tokens may have been
 * used here meanwhile.
 */
export function decide(
  { isHere, isShell, isSettled, wasHere, outcome, isLacking }: KnownConnection,
  { overwrites }: { overwrites: boolean },
): 'import' | Outcome {
  if (!isHere) return wasHere && (isSettled || !overwrites) ? 'removed' : 'import';
  // `made`: that source had no credentials either.
  const isWaiting = isShell && outcome !== 'made';
  if (!isSettled && (isWaiting || isLacking || overwrites)) return 'import';
  return outcome === 'made' || outcome === 'overwritten' ? outcome : 'existing';
}

export type OutcomeCount<O = Outcome> = { outcome: O; reason: string | undefined; count: number };

/** Counts the connections of these integrations by outcome and reason, over all runs. */
export async function countOutcomes(
  db: Queryable,
  { id }: Import,
  filter: IntegrationFilter,
): Promise<OutcomeCount[]> {
  const rows = await db.query<{ outcome: Outcome; reason: string | null; count: number }>(
    `select outcome, reason, count(*) as count
     from imported_connection
     where import_id = $1
       and ($2::text[] is null or integration = any($2))
     group by outcome, reason
     order by outcome, reason`,
    [id, filter && [...filter]],
  );
  return rows.map(({ reason, ...row }) => ({ ...row, reason: reason ?? undefined }));
}

/** When the first and the last access token expires that has no refresh token; undefined if there is none. */
export async function findExpiryOfLacking(
  db: Queryable,
  { id }: Import,
  filter: IntegrationFilter,
): Promise<{ first: Date; last: Date } | undefined> {
  const [row] = await db.query<{ first: Date | null; last: Date | null }>(
    `select min(access_expires_at) as first, max(access_expires_at) as last
     from imported_connection
     join connection
       on (connection.id, connection.credentials_version) = (stored_id, stored_version)
       and connection.deleted_at is null
     where import_id = $1
       and reason = 'no_refresh_token'
       and ($2::text[] is null or integration = any($2))`,
    [id, filter && [...filter]],
  );
  const { first = null, last = null } = row ?? {};
  return first && last ? { first, last } : undefined;
}

/** Pages of rows; `read` returns those after a connection, in order. */
async function* pagesAfter<T extends ConnectionRef>(
  read: (after: [string, string]) => Promise<T[]>,
): AsyncGenerator<T[]> {
  for (let rows = await read(['', '']); rows.length > 0; ) {
    yield rows;
    const { integration, connection } = rows.at(-1)!;
    rows = await read([integration, connection]);
  }
}

/** Connections of these integrations that are not here, or not complete. */
export function pagesOfIncomplete(
  db: Queryable,
  { id }: Import,
  filter: IntegrationFilter,
): AsyncGenerator<ConnectionOutcome[]> {
  return pagesAfter((after) =>
    db.query<ConnectionOutcome>(
      `select integration, connection, outcome, reason, detail
       from imported_connection
       where import_id = $1
         and (outcome <> all($2) or reason = 'no_refresh_token')
         and ($5::text[] is null or integration = any($5))
         and (integration, connection) > ($3, $4)
       order by integration, connection
       limit 500`,
      [id, settled, ...after, filter && [...filter]],
    ),
  );
}

/** Connections that are here by this import or were here before it, except those that the source no longer has. */
export function pagesOfPresent(db: Queryable, { id }: Import): AsyncGenerator<ConnectionRef[]> {
  return pagesAfter((after) =>
    db.query<ConnectionRef>(
      `select integration, connection
       from imported_connection
       where import_id = $1
         and was_here
         and outcome not in ('removed', 'gone')
         and (integration, connection) > ($2, $3)
       order by integration, connection
       limit 500`,
      [id, ...after],
    ),
  );
}

/** All connections of the import, with `isHere`: it has stored the connection, and the connection is here. */
export function pagesOfImported(
  db: Queryable,
  { id, environmentId }: Import,
  filter: IntegrationFilter,
): AsyncGenerator<(ConnectionRef & { isHere: boolean })[]> {
  return pagesAfter((after) =>
    db.query<ConnectionRef & { isHere: boolean }>(
      `select noted.integration, noted.connection, connection.id is not null as "isHere"
       from imported_connection as noted
       left join connection
         on connection.id = noted.stored_id
         and connection.environment_id = $2
         and connection.connection_id = noted.connection
         and connection.deleted_at is null
       where noted.import_id = $1
         and ($3::text[] is null or noted.integration = any($3))
         and (noted.integration, noted.connection) > ($4, $5)
       order by noted.integration, noted.connection
       limit 500`,
      [id, environmentId, filter && [...filter], ...after],
    ),
  );
}

/**
 * The origin of a connection's credentials: `import`, the last import that stored some, with the time of the grant if its
 * source gave it; `since`, a refresh, the user or the application after an import; `elsewhere`: no import stored any.
 */
type CredentialOrigin =
  | { kind: 'import'; sourceGrantedAt: Date | undefined }
  | { kind: 'since' }
  | { kind: 'elsewhere' };

/** Over all imports into the environment: each file is one, and each address of a peer. */
export async function findCredentialOrigin(
  tx: Queryable,
  { environmentId, ref, stored }: { environmentId: number; ref: ConnectionRef; stored: StoredCredentials },
): Promise<CredentialOrigin> {
  const [put] = await tx.query<{ isCurrent: boolean; grantedAt: Date | null }>(
    `with into_here as (
       select id from import where environment_id = $1
     ),
     put as (
       select stored_id, stored_version, granted_at
       from into_here
       join imported_connection on import_id = id
       where stored_id = $4
       union all
       -- In a row that this one has replaced.
       select stored_id, stored_version, granted_at
       from into_here
       join imported_connection on import_id = id
       where integration = $2
         and connection = $3
         and stored_id <> $4
     )
     select
       (stored_id, stored_version) = ($4, $5) as "isCurrent",
       granted_at as "grantedAt"
     from put
     order by "isCurrent" desc
     limit 1`,
    [environmentId, ref.integration, ref.connection, stored.id, stored.credentialsVersion],
  );
  if (put === undefined) return { kind: 'elsewhere' };
  return put.isCurrent ? { kind: 'import', sourceGrantedAt: put.grantedAt ?? undefined } : { kind: 'since' };
}

/**
 * Whether this import has stored the connection of this row, or has overwritten it except for its newer credentials.
 * Otherwise the row is another connection with the same ID, and no data of the source belongs to it.
 */
export async function isFromImport(
  db: Queryable,
  { id }: Import,
  { ref, storedId }: { ref: ConnectionRef; storedId: number },
): Promise<boolean> {
  const [row] = await db.query<{ isOf: boolean }>(
    `select
       exists (select from imported_connection where import_id = $1 and stored_id = $2)
       or exists (
         select
         from imported_connection
         join connection on connection.id = $2
         where import_id = $1
           and integration = $3
           and connection = $4
           and outcome = 'overwritten'
           and reason = 'credentials_kept'
           and connection.created_at <= at
       ) as "isOf"`,
    [id, storedId, ref.integration, ref.connection],
  );
  return row!.isOf;
}

/** Whether the connection still has the credentials that this import has stored. */
export async function hasImportedCredentials(
  tx: Queryable,
  { id }: Import,
  stored: StoredCredentials,
): Promise<boolean> {
  const rows = await tx.query(
    'select from imported_connection where import_id = $1 and (stored_id, stored_version) = ($2, $3)',
    [id, stored.id, stored.credentialsVersion],
  );
  return rows.length > 0;
}

/** How far an import has read the records of a dataset. */
export type DatasetProgress = {
  position: string | undefined;
  records: number;
  deleted: number;
  pruned: number;
  isDone: boolean;
  /** The last position of the dataset here at the last write. */
  lastSeq: number;
};

const datasetKey = ({ integration, connection, model, variant }: DatasetRef) => [
  integration,
  connection,
  model,
  variant,
];

/** Undefined if no record of the dataset was read yet for this row of the connection. */
export async function findDatasetProgress(
  db: Queryable,
  { id }: Import,
  { dataset, storedId }: { dataset: DatasetRef; storedId: number },
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

/** In the transaction that saves the records; replaces the progress of another row. Throws as `saveOutcomes`. */
export async function saveDatasetProgress(
  tx: Queryable,
  { id, run }: ImportRun,
  { dataset, storedId, progress }: { dataset: DatasetRef; storedId: number; progress: DatasetProgress },
): Promise<void> {
  const saved = await tx.query(
    `with ${currentRun}
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
  requireCurrentRun(saved);
}

/** Counts of datasets and records of these integrations over all runs, for connections that are here. */
export async function countRecords(
  db: Queryable,
  { id }: Import,
  filter: IntegrationFilter,
): Promise<Record<'datasets' | 'records' | 'deleted' | 'pruned' | 'unfinished', number>> {
  const [row] = await db.query<Record<'datasets' | 'records' | 'deleted' | 'pruned' | 'unfinished', number>>(
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
    [id, filter && [...filter]],
  );
  return row!;
}
