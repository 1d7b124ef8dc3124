import { existsSync, renameSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { proveOrder } from '../../data-keys/master-keys.ts';
import type { Account } from '../../db/embedded/account.ts';
import { makeDraftDir, syncCluster, syncDir } from '../../db/embedded/cluster.ts';
import { withPrivateServer } from '../../db/embedded/private.ts';
import { lockServerDir, type ServerDir } from '../../db/embedded/server-dir.ts';
import { migrate } from '../../db/migrate.ts';
import { openDb } from '../../db/pool.ts';
import type { Vault } from '../../vault.ts';
import { clusterOf, type Manifest, readManifest, requireFreeSpace } from './backup-directory.ts';
import { copyTree } from './copy-tree.ts';
import type { KeyFile } from './key-file.ts';
import { type Restored, restoreKeys, tryRestoreKeys } from './keys-restore.ts';
import { type Raised, raisePositions } from './positions.ts';

/**
 * Restores a backup into a data directory that has no database.
 *
 * All steps, from the copy to the raised positions, run on a draft, which is renamed at the end: a service finds a complete
 * database, or none.
 */
export type Wanted = {
  /** The folder of one backup. */
  backup: string;
  dataDir: string;
  keyFile: KeyFile;
  vault: Vault;
  /** As in `keys restore`: deletes connections that were made after the file of keys. */
  dropsNewer: boolean;
  /** As in `keys restore`: accepts a first master key that is older than another one. */
  goesBack: boolean;
  log: (message: string) => void;
  onProgress: (done: { bytes: number; total: number }) => void;
};
type Back = { madeAt: Date; keys: Restored; raised: Raised };

/**
 * Restores the data of the backup and the keys of the file, and raises the positions; the service may start then. Throws if the
 * backup is damaged or of another major version or platform, if the directory holds a database, if its disk has too little
 * space, and if `restoreKeys` throws. Then the directory is unchanged, and is removed if it did not exist before.
 */
export function restoreBackup(wanted: Wanted): Promise<Back> {
  return inDraft(wanted, restoreKeys, async (draft, serverDir) => {
    await syncCluster(draft, serverDir);
    renameSync(draft, serverDir.clusterDir);
    syncDir(serverDir.dir);
  });
}

/** Does the same, and removes all files that it made. */
export function tryBackup(wanted: Wanted): Promise<Back> {
  return inDraft(wanted, tryRestoreKeys, async () => {});
}

/** `finish` runs after the draft's server has ended. The draft is removed, unless `finish` has renamed it. */
async function inDraft(
  wanted: Wanted,
  restore: typeof restoreKeys,
  finish: (draft: string, serverDir: ServerDir) => Promise<void>,
): Promise<Back> {
  const { backup, dataDir, keyFile, vault, dropsNewer, goesBack, log } = wanted;
  const manifest = await readManifest(backup);
  const serverDir = await lockServerDir({ dataDir, log });
  try {
    proveFits(manifest, { backup, serverDir });
    const total = manifest.files.reduce((sum, { bytes }) => sum + bytes, 0);
    await requireFreeSpace(serverDir.dir, { bytes: total, what: 'the restore' });
    const { binaries, account } = serverDir;
    const draft = makeDraftDir(serverDir.dir, account);
    try {
      await copyVerified(wanted, { draft, account, manifest, total });
      const back = await withPrivateServer(draft, { binaries, account, log }, async (server) => {
        await using db = openDb(server.connection, { maxConnections: 2 });
        await migrate(db);
        if (!goesBack) await proveOrder(db, vault.masterKeys);
        const keys = await restore(db, { vault, keyFile, dropsNewer, at: new Date() });
        return { madeAt: manifest.madeAt, keys, raised: await raisePositions(db) };
      });
      await finish(draft, serverDir);
      return back;
    } finally {
      await rm(draft, { recursive: true, force: true });
    }
  } finally {
    // The first start makes these files again.
    serverDir.releaseAndCleanUp();
  }
}

function proveFits(
  manifest: Manifest,
  { backup, serverDir }: { backup: string; serverDir: ServerDir },
): void {
  const { clusterDir, binaries } = serverDir;
  if (existsSync(clusterDir))
    throw new Error(
      `${clusterDir} contains a database: move it to another directory, or set DATA_DIR to another directory`,
    );
  if (manifest.postgres !== binaries.major)
    throw new Error(
      `${backup} has PostgreSQL ${manifest.postgres}, and this version includes ${binaries.major}: restore it with the ` +
        'version that made it, then upgrade (docs/operations/embedded-upgrade.md)',
    );
  const platform = `${process.platform}-${process.arch}`;
  if (manifest.platform !== platform)
    throw new Error(
      `${backup} was made on ${manifest.platform}, and this machine is ${platform}: PostgreSQL files cannot be moved ` +
        'between platforms; restore it on a machine of the same platform',
    );
}

async function copyVerified(
  { backup, onProgress }: Wanted,
  { draft, account, manifest, total }: { draft: string; account: Account; manifest: Manifest; total: number },
): Promise<void> {
  let done = 0;
  const copied = await copyTree(
    { dirs: manifest.dirs, files: manifest.files.map(({ path }) => path) },
    {
      from: clusterOf(backup),
      to: draft,
      owner: account.identity,
      onBytes(bytes) {
        done += bytes;
        onProgress({ bytes: done, total });
      },
    },
  );
  const found = new Map(copied.map((entry) => [entry.path, entry]));
  for (const expected of manifest.files) {
    const copy = found.get(expected.path);
    if (copy?.sha256 === expected.sha256 && copy.bytes === expected.bytes) continue;
    const what = copy === undefined ? 'is missing' : 'was changed';
    throw new Error(
      `${clusterOf(backup)}/${expected.path} ${what}: the backup is damaged; use another backup`,
    );
  }
}
