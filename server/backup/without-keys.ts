import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Account } from '../db/embedded-account.ts';
import type { Binaries } from '../db/embedded-binaries.ts';
import { withPrivateServer } from '../db/embedded-private.ts';
import { type Session, withSession } from '../db/embedded-session.ts';
import { removeTraces } from './base-backup.ts';
import { readTree } from './copy-tree.ts';

/**
 * Takes the data keys out of a copied cluster, so that no backup of the data can open anything by itself, or bring a
 * deleted connection back.
 *
 * The rows are not the only place: the planner's statistics hold samples of each column, WAL holds every change, WAL
 * files that are used again hold what stood there before, and a crash leaves files that belong to no relation. So the copy
 * is recovered by a server of its own, emptied of keys there, and left with the files of its relations and the WAL of its
 * end alone. That it starts is proof that it restores.
 */
export async function takeKeysOut(
  clusterDir: string,
  { binaries, account }: { binaries: Binaries; account: Account },
): Promise<void> {
  const settings = {
    // A file of WAL is made of zeros, and one that is over is removed: none comes back with what it held.
    wal_recycle: 'off',
    wal_init_zero: 'on',
    // Until it is whole, a copy is worth nothing; then `syncCluster` writes it all.
    fsync: 'off',
  };
  const { lastWal, known } = await withPrivateServer(clusterDir, { binaries, account, settings }, (server) =>
    withSession(server.connection, async (session) => {
      const [found] = await session.query<{ table: string | null }>(
        `select to_regclass('data_key')::text as table`,
      );
      if (found?.table == null) throw new Error('the database holds nothing yet; start the service once');
      await session.query('truncate data_key');
      await session.query(`delete from pg_statistic where starelid = 'data_key'::regclass`);
      await session.query('vacuum full pg_statistic');
      // Behind this nothing of before is written, and by the second one nothing of before is needed.
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
  /** Directories of which all relations are in `files`: the database that was asked, and `global`. */
  listed: Set<string>;
};

/** What the catalog of a database knows. For the only session of a server: nobody else makes or drops anything meanwhile. */
async function listKnown(session: Session): Promise<Known> {
  // It names the files of mapped relations too. Temporary ones were of sessions elsewhere: a start removes their files.
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

/** In a directory of relations, what is none: PostgreSQL's own notes. */
const notes = /\/(PG_VERSION|pg_filenode\.map|pg_control)$/;
/** Of a relation, behind its number: other forks, and a segment for each GB ("Database File Layout"). */
const part = /(_(fsm|vm|init))?(\.\d+)?$/;

/**
 * Removes what is not known from a cluster whose server has ended. Throws where a relation has no file, and so the
 * catalog was not understood.
 */
async function removeOrphans(clusterDir: string, known: Known): Promise<void> {
  const missing = known.files.values().find((path) => !existsSync(join(clusterDir, path)));
  if (missing !== undefined)
    throw new Error(`${join(clusterDir, missing)} is not there, though a relation has it`);
  const { dirs, files } = await readTree(clusterDir);
  for (const path of dirs.filter((dir) => /^base\/[^/]+$/.test(dir) && !known.databases.has(dir)))
    await rm(join(clusterDir, path), { recursive: true });
  for (const path of files) {
    if (!known.listed.has(path.slice(0, path.lastIndexOf('/')))) continue;
    if (notes.test(path) || known.files.has(path.replace(part, ''))) continue;
    await rm(join(clusterDir, path));
  }
}
