/**
 * A copy of a running cluster: its files, and the WAL that makes them consistent at one moment.
 *
 * PostgreSQL manual, "Making a Base Backup Using the Low Level API". One session holds the backup: when the session
 * ends, also because its process was killed, the server ends the backup and no longer keeps the WAL.
 */
import { chown, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Session } from '../../db/embedded/session.ts';
import { copyTree, type Owner, readTree, sizeOf, type Tree } from './copy-tree.ts';

/** Contents of directories that a server recreates, or that are valid only for the running server ("Backing Up the Data Directory"). */
const remade =
  /^(pg_wal|pg_replslot|pg_dynshmem|pg_notify|pg_serial|pg_snapshots|pg_stat_tmp|pg_subtrans)\/|(^|\/)pgsql_tmp/;
/** Files of the running server, of an earlier backup, and core dumps. */
const own =
  /^(postmaster\.(pid|opts)|backup_(label|manifest)(\.old)?|tablespace_map(\.old)?|core(\..*)?)$|(^|\/)pg_internal\.init/;
/** Directories that a server does not create. */
const needed = ['pg_wal/archive_status', 'pg_wal/summaries'];

/** The approximate number of bytes that `copyRunning` copies, without WAL. */
export async function sizeOfCluster(clusterDir: string): Promise<number> {
  return sizeOf(await readCluster(clusterDir), clusterDir);
}

function readCluster(clusterDir: string): Promise<Tree> {
  return readTree(clusterDir, (path) => remade.test(path) || own.test(path));
}

type Stopped = { first: string; last: string; label: string; tablespaces: string };

/** Copies into the empty directory `to`; `total` in the progress is approximate. A server that starts on the copy recovers. */
export async function copyRunning(
  session: Session,
  by: {
    clusterDir: string;
    to: string;
    owner: Owner;
    onProgress: (done: { bytes: number; total: number }) => void;
  },
): Promise<void> {
  const { clusterDir, to, owner, onProgress } = by;
  // Keeps the WAL from now on, and ends with the session.
  await session.query('select pg_create_physical_replication_slot($1, true, true)', [
    `trellis_backup_${process.pid}`,
  ]);
  const [started] = await session.query<{ lsn: string }>(
    `select pg_backup_start('trellis backup', fast => true)::text as lsn`,
  );
  const tree = await readCluster(clusterDir);
  const total = await sizeOf(tree, clusterDir);
  let bytes = 0;
  const onBytes = (more: number) => {
    bytes += more;
    onProgress({ bytes, total });
  };
  await copyTree({ ...tree, dirs: [...tree.dirs, ...needed] }, { from: clusterDir, to, owner, onBytes });
  const [stopped] = await session.query<Stopped>(
    `select
       pg_walfile_name($1::pg_lsn) as first,
       pg_walfile_name(stopped.lsn) as last,
       stopped.labelfile as label,
       stopped.spcmapfile as tablespaces
     from pg_backup_stop(wait_for_archive => false) as stopped`,
    [started!.lsn],
  );
  const { first, last, label, tablespaces } = stopped!;
  if (tablespaces.trim() !== '')
    throw new Error('the cluster has tablespaces, which this backup does not support');
  const wal = await readTree(join(clusterDir, 'pg_wal'));
  const files = wal.files.filter((name) => /^[0-9A-F]{24}$/.test(name) && name >= first && name <= last);
  await copyTree(
    { dirs: [], files },
    { from: join(clusterDir, 'pg_wal'), to: join(to, 'pg_wal'), owner, onBytes },
  );
  const labelPath = join(to, 'backup_label');
  await writeFile(labelPath, label, { mode: 0o600, flag: 'wx' });
  if (owner.uid !== undefined && owner.gid !== undefined) await chown(labelPath, owner.uid, owner.gid);
}

/** Removes files of the service's server from a stopped cluster that needs no recovery. */
export async function removeTraces(clusterDir: string): Promise<void> {
  const { files } = await readTree(clusterDir);
  for (const path of files.filter((name) => own.test(name)))
    await rm(join(clusterDir, path), { force: true });
}
