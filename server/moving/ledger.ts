import type { Db, Queryable, Tx } from '../db/pool.ts';

/**
 * What was moved in from elsewhere, and how far an import is.
 *
 * Owns: the tables `import`, `imported_connection` and `imported_dataset`, and that one import at a time goes into an
 * environment. Does not own: how what is imported is read (`peer/`, `file/`) and stored (`connections.ts`, `records.ts`).
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

export type DatasetProgress = {
  position: string | undefined;
  records: number;
  deleted: number;
  pruned: number;
  isDone: boolean;
};

/** Where a source's rows are. */
export type Import = { id: number; environmentId: number };

/** The import of this source into the environment, begun now where it is the first run. */
export async function openImport(
  db: Queryable,
  { environmentId, source }: { environmentId: number; source: string },
): Promise<Import> {
  await db.query(
    `insert into import (environment_id, source)
     values ($1, $2)
     on conflict on constraint import_source_unique do nothing`,
    [environmentId, source],
  );
  const found = await findImport(db, { environmentId, source });
  if (found === undefined) throw new Error('The environment was deleted.');
  return found;
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

const heldMs = 15_000;

/**
 * Does `work` while no other import goes into the environments that it takes; to take one throws where another does. The
 * locks end with this process, however that ends. They need a connection of their own.
 */
export async function alone<T>(
  db: Db,
  work: (take: (environmentId: number) => Promise<void>) => Promise<T>,
): Promise<T> {
  return db.transaction(async (tx) => {
    const take = async (environmentId: number) => {
      const [lock] = await tx.query<{ isMine: boolean }>(
        `select pg_try_advisory_xact_lock(hashtextextended('import ' || $1::bigint, 0)) as "isMine"`,
        [environmentId],
      );
      if (lock?.isMine !== true)
        throw new Error('Another import into this environment is under way. Wait for its end, or end it.');
    };
    // So that the server does not end the transaction as one that nobody uses.
    const timer = setInterval(() => void tx.query('select').catch(() => {}), heldMs);
    return work(take).finally(() => clearInterval(timer));
  });
}

/** Writes what became of a connection, in the transaction of it where there is one. */
export async function note(tx: Queryable, { id }: Import, judged: readonly Judged[]): Promise<void> {
  if (judged.length === 0) return;
  await tx.query(
    `insert into imported_connection (import_id, integration, connection, outcome, reason, detail)
     select $1, integration, connection, outcome, reason, detail
     from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
       as given (integration, connection, outcome, reason, detail)
     on conflict on constraint imported_connection_pkey do update
     set outcome = excluded.outcome, reason = excluded.reason, detail = excluded.detail, at = now()`,
    [
      id,
      judged.map(({ integration }) => integration),
      judged.map(({ connection }) => connection),
      judged.map(({ outcome }) => outcome),
      judged.map(({ reason }) => reason ?? null),
      judged.map(({ detail }) => detail?.slice(0, 500) ?? null),
    ],
  );
}

/** What is known of a connection before it is read: whether it is here, and what became of it in this import. */
export type Known = Place & {
  isHere: boolean;
  /** What is here stands for one that has no credentials: see `connections.ts`. */
  isShell: boolean;
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
       imported_connection.outcome
     from unnest($2::text[], $3::text[]) with ordinality as asked (integration, connection, nth)
     left join integration on integration.environment_id = $1 and integration.key = asked.integration
     left join connection
       on connection.integration_id = integration.id
       and connection.connection_id = asked.connection
       and connection.deleted_at is null
     left join imported_connection
       on imported_connection.import_id = $4
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
 * One that was deleted here since it was imported stays so.
 */
export function judge(
  { isHere, isShell, outcome }: Known,
  { overwrites }: { overwrites: boolean },
): 'import' | Outcome {
  const wasHere = outcome !== undefined && placed.includes(outcome);
  if (!isHere) return wasHere && !overwrites ? 'removed' : 'import';
  if (isShell || overwrites) return 'import';
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
    `select position, records, deleted, pruned, is_done as "isDone"
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
       (import_id, integration, connection, model, variant, position, records, deleted, pruned, is_done)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
     on conflict on constraint imported_dataset_pkey do update
     set
       position = excluded.position,
       records = excluded.records,
       deleted = excluded.deleted,
       pruned = excluded.pruned,
       is_done = excluded.is_done`,
    [
      id,
      ...datasetKey(dataset),
      progress.position ?? null,
      progress.records,
      progress.deleted,
      progress.pruned,
      progress.isDone,
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
