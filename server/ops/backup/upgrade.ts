import { copyFileSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type pg from 'pg';
import { copyBetween } from '../../db/copy.ts';
import { prepareOtherBinaries } from '../../db/embedded/binaries.ts';
import { makeDraft, makeDraftDir, syncCluster, versionOf } from '../../db/embedded/cluster.ts';
import type { EmbeddedConnection } from '../../db/embedded/embedded.ts';
import { withoutUsers } from '../../db/embedded/lend.ts';
import { withPrivateServer } from '../../db/embedded/private.ts';
import { exchangeCluster, lockServerDir } from '../../db/embedded/server-dir.ts';
import { type Session, withSession } from '../../db/embedded/session.ts';
import { migrate } from '../../db/migrate.ts';
import { migrationsDirectory } from '../../db/migration-files.ts';
import { openDb } from '../../db/pool.ts';
import { requireFreeSpace } from './backup-directory.ts';
import { sizeOfCluster } from './base-backup.ts';

/**
 * Upgrades the embedded database to another major version of PostgreSQL: it is copied table by table into a new cluster, since
 * the package of programs has no pg_upgrade.
 *
 * The migrations that the database has recorded create the schema; the start applies the others. The queue of
 * background jobs is not copied: the start creates it, and all jobs are queued each minute. The old cluster is only
 * read, and kept.
 */
type Copied = { tables: number; rows: number };
type Upgraded = Copied & { from: string; to: string; kept: string };
type Progress = { table: string; done: number; total: number };

/**
 * Upgrades; undefined if the versions are the same. All or nothing: the old cluster stays in place until every table was
 * counted and summed on both sides. Throws if a service runs, if `oldBinaries` are of another version, and if the disk
 * has too little space for a copy.
 */
export async function upgradeDatabase(wanted: {
  dataDir: string;
  /** The directory of the programs of the version that made the database. */
  oldBinaries: string;
  log: (message: string) => void;
  onProgress: (progress: Progress) => void;
}): Promise<Upgraded | undefined> {
  const { dataDir, log } = wanted;
  const serverDir = await lockServerDir({ dataDir, log });
  const { dir, clusterDir, account, binaries } = serverDir;
  const drafts: string[] = [];
  try {
    if (!existsSync(clusterDir)) throw new Error(`${clusterDir} does not exist: there is nothing to upgrade`);
    const from = versionOf(clusterDir);
    if (from === binaries.major) return undefined;
    const kept = `${clusterDir}.${from}.old`;
    if (existsSync(kept))
      throw new Error(`${kept} already exists from an earlier upgrade: move it to another directory`);
    const programs = makeDraftDir(dir, account);
    drafts.push(programs);
    const old = prepareOtherBinaries({ given: wanted.oldBinaries, dir: programs, account });
    if (old.major !== from)
      throw new Error(
        `${wanted.oldBinaries} contains PostgreSQL ${old.major}, and the database was made by ${from}: use the programs of PostgreSQL ${from}`,
      );
    await requireFreeSpace(dir, { bytes: await sizeOfCluster(clusterDir), what: 'the upgrade' });
    const draft = await makeDraft(dir, serverDir);
    drafts.push(draft);
    // Commands find a server on the cluster itself. Their writes after the copy would be lost with it.
    const copied = await withPrivateServer(clusterDir, { binaries: old, account, log }, (source) =>
      withoutUsers(source, { log }, () =>
        withPrivateServer(draft, { binaries, account, log, settings: targetSettings }, (target) =>
          copyDatabase(
            { source: source.connection, target: target.connection, scratchDir: programs },
            wanted,
          ),
        ),
      ),
    );
    await syncCluster(draft, serverDir);
    exchangeCluster(clusterDir, { draft, kept });
    return { from, to: binaries.major, ...copied, kept };
  } finally {
    for (const draft of drafts) rmSync(draft, { recursive: true, force: true });
    serverDir.release();
  }
}

/** An incomplete copy is worthless, so `syncCluster` flushes it once, at the end. Its size on disk is that of its rows. */
const targetSettings = {
  fsync: 'off',
  full_page_writes: 'off',
  // Rows for tables that the same transaction has emptied are not in the WAL (PostgreSQL manual, "Populating a Database").
  wal_level: 'minimal',
  wal_skip_threshold: '0',
  max_wal_senders: '0',
  max_wal_size: '256MB',
};

/** `scratchDir` is a draft, for additional files. */
type Servers = { source: EmbeddedConnection; target: EmbeddedConnection; scratchDir: string };
type Reporter = { log: (message: string) => void; onProgress: (progress: Progress) => void };

async function copyDatabase({ source, target, scratchDir }: Servers, reporter: Reporter): Promise<Copied> {
  return withSession(source, (from, fromClient) =>
    withSession(target, async (to, toClient) => {
      await makeSchema(from, { target, directory: join(scratchDir, 'migrations') });
      return copyAll({ from, to, fromClient, toClient }, reporter);
    }),
  );
}

/** The schema of the migrations of `from`, in an empty database. */
async function makeSchema(
  from: Session,
  { target, directory }: { target: EmbeddedConnection; directory: string },
): Promise<void> {
  const known = await from.query<{ name: string }>('select name from migration order by name');
  const unknown = known.filter(({ name }) => !existsSync(join(migrationsDirectory, name)));
  if (unknown.length > 0)
    throw new Error(
      `a newer version of the service has migrated the database (${unknown.map(({ name }) => name).join(', ')}); install that version`,
    );
  await using db = openDb(target, { maxConnections: 2 });
  mkdirSync(directory);
  for (const { name } of known) copyFileSync(join(migrationsDirectory, name), join(directory, name));
  await migrate(db, { directory });
}

type Ends = { from: Session; to: Session; fromClient: pg.Client; toClient: pg.Client };

async function copyAll(
  { from, to, fromClient, toClient }: Ends,
  { log, onProgress }: Reporter,
): Promise<Copied> {
  for (const name of await listForeignSchemas(from))
    log(`the schema "${name}" does not belong to the service: it is not copied and stays in the old cluster`);
  // No trigger runs and no foreign key is checked: the rows were consistent before.
  await to.query('set session_replication_role = replica');
  await to.query('set synchronous_commit = off');
  await makePartitions({ from, to });
  const tables = await listTables(from);
  let rows = 0;
  await to.query('begin');
  await to.query(`truncate ${tables.map(({ name }) => name).join(', ')}`);
  for (const [done, table] of tables.entries()) {
    onProgress({ table: table.name, done, total: tables.length });
    const { name, columns } = table;
    await copyBetween(fromClient, toClient, {
      from: `select ${columns} from ${name}`,
      into: `${name} (${columns})`,
    });
    rows += await proveSame(table, { from, to });
  }
  await copyCounters({ from, to });
  await to.query('commit');
  await to.query('analyze');
  return { tables: tables.length, rows };
}

async function proveSame(table: Table, { from, to }: { from: Session; to: Session }): Promise<number> {
  const [before, after] = await Promise.all([sumOf(from, table), sumOf(to, table)]);
  if (before.rows !== after.rows || before.sum !== after.sum)
    throw new Error(
      `the copy of ${table.name} differs: ${before.rows} rows (checksum ${before.sum}) in the old cluster, ${after.rows} rows (checksum ${after.sum}) in the new one`,
    );
  return Number(before.rows);
}

/** The content to copy from one database to another: the tables, their partitions, and the positions of their sequences. */
type Table = { name: string; columns: string };
type Sum = { rows: string; sum: string };

const ours = `(select relnamespace from pg_class where oid = 'migration'::regclass)`;

/** Tables with rows, including partitions; names and columns are quoted for SQL. */
function listTables(session: Session): Promise<Table[]> {
  return session.query<Table>(
    `select
       relation.oid::regclass::text as name,
       string_agg(quote_ident(attribute.attname), ', ' order by attribute.attnum) as columns
     from pg_class as relation
     join pg_attribute as attribute on attribute.attrelid = relation.oid
     where relation.relnamespace = ${ours}
       and relation.relkind = 'r'
       and attribute.attnum > 0
       and not attribute.attisdropped
       and attribute.attgenerated = ''
     group by relation.oid
     order by relation.oid::regclass::text`,
  );
}

/** Makes the partitions that `from` has and `to` lacks. */
async function makePartitions({ from, to }: { from: Session; to: Session }): Promise<void> {
  const partitions = await from.query<{ name: string; parent: string; bound: string }>(
    `select
       relation.oid::regclass::text as name,
       inhparent::regclass::text as parent,
       pg_get_expr(relation.relpartbound, relation.oid) as bound
     from pg_class as relation
     join pg_inherits on inhrelid = relation.oid
     where relation.relnamespace = ${ours} and relation.relispartition and relation.relkind = 'r'`,
  );
  for (const { name, parent, bound } of partitions)
    await to.query(`create table if not exists ${name} partition of ${parent} ${bound}`);
}

/** The number of rows, and a sum over their texts that does not depend on their order or on the version. */
async function sumOf(session: Session, { name, columns }: Table): Promise<Sum> {
  const [sum] = await session.query<Sum>(
    `select count(*)::text as rows, coalesce(sum(hashtextextended(one::text, 0)), 0)::text as sum
     from (select ${columns} from ${name}) as one`,
  );
  return sum!;
}

/** Continues the numbers of rows from their current values. */
async function copyCounters({ from, to }: { from: Session; to: Session }): Promise<void> {
  const counters = await from.query<{ name: string; value: string | null }>(
    `select format('%I.%I', schemaname, sequencename) as name, last_value::text as value
     from pg_sequences
     where schemaname = (select nspname from pg_namespace where oid = ${ours})`,
  );
  for (const { name, value } of counters)
    if (value !== null) await to.query('select setval($1::regclass, $2::bigint)', [name, value]);
}

/** Schemas of the operator: neither PostgreSQL's nor the service's. */
async function listForeignSchemas(session: Session): Promise<string[]> {
  const rows = await session.query<{ name: string }>(
    `select nspname as name
     from pg_namespace
     where nspname !~ '^pg_' and nspname not in ('information_schema', 'pgboss') and oid <> ${ours}
     order by nspname`,
  );
  return rows.map(({ name }) => name);
}
