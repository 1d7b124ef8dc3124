import type { Queryable } from '../db/pool.ts';
import { AppError } from '../errors.ts';

/**
 * What was moved in from elsewhere, and how far an import is.
 *
 * Owns: the tables `import` and `imported_connection`. Does not own: how far datasets are (`dataset-ledger.ts`), whose credentials
 * are here (`origin.ts`), what the source has no more (`missing-at-source.ts`), that one import at a time goes into an environment
 * (`import-lock.ts`), how what is imported is read (`peer/`, `file/`) and stored (`connections.ts`, `datasets.ts`).
 *
 * A process may notice late that it lost the lock. So each run has a token, and each write is in one transaction with a
 * note that fails once another run has begun in the environment: from then on the earlier run writes nothing.
 *
 * A source's rows stay, so that the same import, run again after a kill or a month, continues where it stopped, and does
 * not restore a connection that was deleted here since.
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

/** Those after which the connection is here with credentials, and those that tell that it is or was here at all. */
const settled: readonly Outcome[] = ['made', 'overwritten', 'existing'];
const placed: readonly Outcome[] = [...settled, 'dead', 'removed'];
/** Those that tell of an attempt that has changed nothing of what is here. */
const passed: readonly Outcome[] = ['dead', 'gone', 'skipped', 'failed'];

export type Place = { integration: string; connection: string };
export type Dataset = Place & { model: string; variant: string };
export type Judged = Place & { outcome: Outcome; reason?: string | undefined; detail?: string | undefined };

/** The row of a connection, and the version of its credentials. */
export type Stored = { id: number; credentialsVersion: number };
/** `toldGrantedAt`: when their grant was given, where the source tells. */
export type Put = Stored & { toldGrantedAt: Date | undefined };

/** Where a source's rows are. */
export type Import = { id: number; environmentId: number };

/** As a run has it that writes: with its token. */
export type OpenImport = Import & { run: string };

/**
 * The import of this source into the environment. It goes on with the run that has not come to its end, if that one
 * overwrites as this one does, or begins one; what a run has stored is not read again for it (`isSettled`). Waits for what a
 * run before is about to store in the environment; all that it notes after that fails.
 */
export async function openImport(
  db: Queryable,
  { environmentId, source, overwrites }: { environmentId: number; source: string; overwrites: boolean },
): Promise<OpenImport> {
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

/**
 * A part of a statement, with the import's ID and run as `$1` and `$2`: the import, where the run is the one that writes. It
 * stays so until the end of the transaction.
 */
export const held = `held as (select id from import where id = $1 and run = $2 for share)`;

/** Throws `unavailable` where a statement upon `held` has written no row, since another run has begun. */
export function requireHeld(rows: readonly object[]): void {
  if (rows.length > 0) return;
  const message =
    'Another import into this environment has begun, so this one has ended. Run the same command again when the other one ' +
    'has ended: it goes on where it was.';
  throw new AppError('unavailable', message);
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

/** Notes that a run went through to its end. Throws `unavailable` where another one has begun. */
export async function closeImport(db: Queryable, { id, run }: OpenImport): Promise<void> {
  const closed = await db.query(
    'update import set ended_at = now() where id = $1 and run = $2 returning id',
    [id, run],
  );
  requireHeld(closed);
}

/**
 * Writes what became of connections, in the transaction of it where there is one; `stored` where credentials were put there.
 * `made` and `overwritten` are for those that have just been so. Throws `unavailable` where another run has begun.
 *
 * One that lacks its refresh token stays known as such (`no_refresh_token`) as long as nobody has changed its credentials,
 * whatever an attempt in between came to: that is then in its detail. Else nobody would ask for it again.
 */
export async function note(
  tx: Queryable,
  { id, run }: OpenImport,
  given: readonly (Judged & { stored?: Put })[],
): Promise<void> {
  // Two of the source may be one by the ID that they are noted under.
  const judged = [
    ...new Map(given.map((one) => [JSON.stringify([one.integration, one.connection]), one])).values(),
  ];
  if (judged.length === 0) return;
  const noted = await tx.query(
    `with ${held}
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
      judged.map(({ integration }) => integration),
      judged.map(({ connection }) => connection),
      judged.map(({ outcome }) => outcome),
      judged.map(({ reason }) => (reason === undefined ? null : cleaned(reason, 100))),
      judged.map(({ detail }) => (detail === undefined ? null : cleaned(detail, 500))),
      judged.map(({ stored }) => stored?.id ?? null),
      judged.map(({ stored }) => stored?.credentialsVersion ?? null),
      judged.map(({ stored }) => stored?.toldGrantedAt ?? null),
      placed,
      passed,
    ],
  );
  requireHeld(noted);
}

/** Text of elsewhere as PostgreSQL can hold it: no longer than this, with U+FFFD in place of NUL and lone surrogates. */
export function cleaned(given: string, max: number): string {
  return given.replaceAll('\0', '\ufffd').slice(0, max).toWellFormed();
}

/** What is known of a connection before it is read: whether it is here, and what became of it in this import. */
type Known = Place & {
  isHere: boolean;
  /** What is here stands for one that has no credentials: see `connections.ts`. */
  isShell: boolean;
  /** The run that is to be gone on with has stored it, whether it is here still or not. */
  isSettled: boolean;
  /** By this import or before it, whatever became of later attempts. */
  wasHere: boolean;
  outcome: Outcome | undefined;
  /** It was stored, and the source gave no refresh token for it. */
  isLacking: boolean;
};

/** In the order of `places`. `from` is undefined where nothing was imported yet; `overwrites`: whether this run does. */
export async function look(
  db: Queryable,
  {
    environmentId,
    from,
    places,
    overwrites,
  }: { environmentId: number; from: Import | undefined; places: readonly Place[]; overwrites: boolean },
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
      places.map(({ integration }) => integration),
      places.map(({ connection }) => connection),
      from?.id ?? null,
      overwrites,
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
  { isHere, isShell, isSettled, wasHere, outcome, isLacking }: Known,
  { overwrites }: { overwrites: boolean },
): 'import' | Outcome {
  if (!isHere) return wasHere && (isSettled || !overwrites) ? 'removed' : 'import';
  // A source that had none either has nothing to give.
  const isWaiting = isShell && outcome !== 'made';
  if (!isSettled && (isWaiting || isLacking || overwrites)) return 'import';
  return outcome === 'made' || outcome === 'overwritten' ? outcome : 'existing';
}

/** IDs of integrations that a run asks for; all where undefined. */
export type Only = ReadonlySet<string> | undefined;

/** How many connections of these integrations came to what, over all runs. */
export async function countOutcomes(
  db: Queryable,
  { id }: Import,
  only: Only,
): Promise<{ outcome: Outcome; reason: string | undefined; count: number }[]> {
  const rows = await db.query<{ outcome: Outcome; reason: string | null; count: number }>(
    `select outcome, reason, count(*) as count
     from imported_connection
     where import_id = $1
       and ($2::text[] is null or integration = any($2))
     group by outcome, reason
     order by outcome, reason`,
    [id, only && [...only]],
  );
  return rows.map(({ reason, ...row }) => ({ ...row, reason: reason ?? undefined }));
}

/** When the first and the last access token ends of those that lack their refresh token; undefined where there are none. */
export async function findEndsOfLacking(
  db: Queryable,
  { id }: Import,
  only: Only,
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
    [id, only && [...only]],
  );
  const { first = null, last = null } = row ?? {};
  return first && last ? { first, last } : undefined;
}

/** Those of these integrations that are not here, or not whole, in pages. */
export async function* pagesOfUnsettled(db: Queryable, { id }: Import, only: Only): AsyncGenerator<Judged[]> {
  for (let after: Place = { integration: '', connection: '' }; ; ) {
    const rows = await db.query<Judged>(
      `select integration, connection, outcome, reason, detail
       from imported_connection
       where import_id = $1
         and (outcome <> all($2) or reason = 'no_refresh_token')
         and ($5::text[] is null or integration = any($5))
         and (integration, connection) > ($3, $4)
       order by integration, connection
       limit 500`,
      [id, settled, after.integration, after.connection, only && [...only]],
    );
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last;
    yield rows;
  }
}

/**
 * Those that are here by this import, or were before it, in pages; also where the last attempt to read one failed, but not
 * where the source has it no more.
 */
export async function* pagesOfHere(db: Queryable, { id }: Import): AsyncGenerator<Place[]> {
  for (let after: Place = { integration: '', connection: '' }; ; ) {
    const rows = await db.query<Place>(
      `select integration, connection
       from imported_connection
       where import_id = $1
         and was_here
         and outcome not in ('removed', 'gone')
         and (integration, connection) > ($2, $3)
       order by integration, connection
       limit 500`,
      [id, after.integration, after.connection],
    );
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last;
    yield rows;
  }
}
