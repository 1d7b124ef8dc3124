import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Account } from '../../db/embedded/account.ts';
import type { Binaries } from '../../db/embedded/binaries.ts';
import { withPrivateServer } from '../../db/embedded/private.ts';
import { type Session, withSession } from '../../db/embedded/session.ts';
import { removeTraces } from './base-backup.ts';
import { readTree } from './copy-tree.ts';

/**
 * Removes the data keys from a copied cluster, so that a backup of the data alone opens nothing and restores no deleted
 * connection.
 *
 * Keys are not only in rows: the planner's statistics hold samples of each column, WAL holds every change, reused WAL files
 * hold earlier content, and a crash leaves files that belong to no relation. So a server recovers the copy, its keys are
 * removed there, and only the files of its relations and the last WAL stay. Its start proves that the backup restores.
 */
export async function takeKeysOut(
  clusterDir: string,
  { binaries, account }: { binaries: Binaries; account: Account },
): Promise<void> {
  const settings = {
    // New WAL files are filled with zeros and old ones are removed, so none keeps earlier content.
    wal_recycle: 'off',
    wal_init_zero: 'on',
    // An incomplete copy is worthless; at the end `syncCluster` flushes all files.
    fsync: 'off',
  };
  const { lastWal, known } = await withPrivateServer(clusterDir, { binaries, account, settings }, (server) =>
    withSession(server.connection, async (session) => {
      const [found] = await session.query<{ table: string | null }>(
        `select to_regclass('data_key')::text as table`,
      );
      if (found?.table == null) throw new Error('the database is empty; start the service once');
      await session.query('truncate data_key');
      await session.query(`delete from pg_statistic where starelid = 'data_key'::regclass`);
      await session.query('vacuum full pg_statistic');
      // After the first checkpoint no earlier change is written any more; after the second no earlier WAL is needed.
      await session.query('checkpoint');
      await session.query('select pg_switch_wal()');
      await session.query('checkpoint');
      const [at] = await session.query<{ file: string }>(
        'select pg_walfile_name(pg_current_wal_lsn()) as file',
      );
      return { lastWal: at!.file, known: await listKnown(session) };
    }),
  );
  const { files } = await readTree(join(clusterDir, 'pg_wal'));
  for (const name of files) if (name < lastWal) await rm(join(clusterDir, 'pg_wal', name));
  await removeTraces(clusterDir);
  await removeOrphans(clusterDir, known);
}

/**
 * Files of a cluster that belong to nothing. A server that is killed leaves the files of relations and databases whose
 * transaction never ended. They stay for ever, and may hold rows from before their table was rewritten.
 *
 * They can be identified only while no transaction is under way: at a running server, a file without a row in pg_class
 * may belong to a relation that is about to commit.
 */
type Known = {
  /** Of relations with files, within the cluster (`base/5/2619`). */
  files: Set<string>;
  /** Directories of databases (`base/5`). */
  databases: Set<string>;
  /** Directories of which all relations are in `files`: the database that was queried, and `global`. */
  listed: Set<string>;
};

/** The files in the catalog of a database. Must be the only session: no other one may create or drop a relation meanwhile. */
async function listKnown(session: Session): Promise<Known> {
  // The function returns files of mapped relations, too. Temporary relations are of other sessions: a start removes their files.
  const relations = await session.query<{ path: string }>(
    `select pg_relation_filepath(oid) as path
     from pg_class
     where relpersistence <> 't' and pg_relation_filepath(oid) is not null`,
  );
  const databases = await session.query<{ path: string; is_ours: boolean }>(
    `select 'base/' || oid as path, datname = current_database() as is_ours from pg_database`,
  );
  return {
    files: new Set(relations.map(({ path }) => path)),
    databases: new Set(databases.map(({ path }) => path)),
    listed: new Set(['global', ...databases.filter((one) => one.is_ours).map(({ path }) => path)]),
  };
}

/** Files of PostgreSQL in a directory of relations that are not relations. */
const notes = /\/(PG_VERSION|pg_filenode\.map|pg_control)$/;
/** The end of a relation's file name: other forks, and a segment for each GB ("Database File Layout"). */
const part = /(_(fsm|vm|init))?(\.\d+)?$/;

/**
 * Removes unknown files from a cluster whose server has ended. Throws if a relation has no file: then the catalog was
 * misread.
 */
async function removeOrphans(clusterDir: string, known: Known): Promise<void> {
  const missing = known.files.values().find((path) => !existsSync(join(clusterDir, path)));
  if (missing !== undefined)
    throw new Error(`${join(clusterDir, missing)} is missing, and a relation refers to it`);
  const { dirs, files } = await readTree(clusterDir);
  for (const path of dirs.filter((dir) => /^base\/[^/]+$/.test(dir) && !known.databases.has(dir)))
    await rm(join(clusterDir, path), { recursive: true });
  for (const path of files) {
    if (!known.listed.has(path.slice(0, path.lastIndexOf('/')))) continue;
    if (notes.test(path) || known.files.has(path.replace(part, ''))) continue;
    await rm(join(clusterDir, path));
  }
}
