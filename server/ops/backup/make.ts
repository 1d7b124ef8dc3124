/**
 * Makes a backup of the embedded database while the service runs.
 *
 * Beside it: the directory of backups and their manifests (`backup-directory.ts`), the copy of a running cluster
 * (`base-backup.ts`), the removal of data keys (`without-keys.ts`), the restore (`restore.ts`, `positions.ts`), the upgrade
 * of PostgreSQL (`upgrade.ts`). Does not own: data keys, which are in a file of their own (`ops/backup/key-file.ts`,
 * `ops/backup/keys-restore.ts`).
 */
import { chmod, chown, mkdir, mkdtemp, realpath, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Account, findAccount, openWayTo } from '../../db/embedded/account.ts';
import { prepareBinaries } from '../../db/embedded/binaries.ts';
import { syncCluster, syncDir, versionOf } from '../../db/embedded/cluster.ts';
import type { EmbeddedConnection } from '../../db/embedded/embedded.ts';
import { withSession } from '../../db/embedded/session.ts';
import { clusterOf, nameOf, requireFreeSpace, writeManifest } from './backup-directory.ts';
import { copyRunning, sizeOfCluster } from './base-backup.ts';
import { readTree, sizeOf, sumTree } from './copy-tree.ts';
import { takeKeysOut } from './without-keys.ts';

type Made = { path: string; bytes: number };
export type Step = { doing: 'copied' | 'checksummed'; bytes: number; total: number };

/**
 * Makes a backup in `backupDir`: all that was committed before the call, and some of what was committed meanwhile. When
 * this resolves, the backup is complete on the disk. When it rejects, there is no backup; if the disk has too little
 * space, it rejects before it writes anything. The backup was recovered once and can be started as it is. It holds no
 * data keys, neither as rows nor as bytes.
 */
export async function makeBackup(given: {
  dataDir: string;
  /** The server of that data directory, which the service may use meanwhile. */
  server: EmbeddedConnection;
  backupDir: string;
  log: (message: string) => void;
  onProgress: (step: Step) => void;
}): Promise<Made> {
  const { server, backupDir, log, onProgress } = given;
  const source = await realpath(join(given.dataDir, 'postgres', 'data'));
  const account = findAccount(source);
  await requireFreeSpace(backupDir, { bytes: await sizeOfCluster(source), what: 'the backup' });
  const draft = await makeDraft(backupDir, account);
  try {
    openWayTo(draft, { account, log });
    const libraryDir = join(draft, 'libraries');
    const binaries = prepareBinaries({ dir: dirname(source), account, libraryDir });
    const cluster = clusterOf(draft);
    await withSession(server, (session) =>
      copyRunning(session, {
        clusterDir: source,
        to: cluster,
        owner: account.identity,
        onProgress: (done) => onProgress({ doing: 'copied', ...done }),
      }),
    );
    const madeAt = new Date();
    await takeKeysOut(cluster, { binaries, account });
    await syncCluster(cluster, { binaries, account });
    await rm(libraryDir, { recursive: true, force: true });

    const tree = await readTree(cluster);
    const total = await sizeOf(tree, cluster);
    let bytes = 0;
    const onBytes = (more: number) => {
      bytes += more;
      onProgress({ doing: 'checksummed', bytes, total });
    };
    const files = await sumTree(tree, { dir: cluster, onBytes });
    const platform = `${process.platform}-${process.arch}`;
    await writeManifest(draft, { madeAt, postgres: versionOf(cluster), platform, dirs: tree.dirs, files });
    await chmod(draft, 0o700);
    syncDir(draft);
    const path = join(backupDir, nameOf(madeAt));
    await rename(draft, path);
    syncDir(backupDir);
    return { path, bytes };
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    throw error;
  }
}

/** The server's account may enter the draft, and owns its future cluster. */
async function makeDraft(backupDir: string, account: Account): Promise<string> {
  const draft = await mkdtemp(join(backupDir, 'draft-'));
  await mkdir(clusterOf(draft), { mode: 0o700 });
  if (account.identity.uid === undefined) return draft;
  await chmod(draft, 0o711);
  await chown(clusterOf(draft), account.uid, account.gid);
  return draft;
}
