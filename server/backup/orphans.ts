import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Session } from '../db/embedded-session.ts';
import { readTree } from './copy-tree.ts';

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
export async function listKnown(session: Session): Promise<Known> {
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
export async function removeOrphans(clusterDir: string, known: Known): Promise<void> {
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
