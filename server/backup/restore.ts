import { existsSync, renameSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import type { KeyFile } from '../cli/key-file.ts';
import { type Restored, restoreKeys, tryRestoreKeys } from '../cli/keys-restore.ts';
import { proveOrder } from '../data-keys/master-keys.ts';
import { makeDraftDir, syncCluster, syncDir } from '../db/embedded-cluster.ts';
import { type Place, takePlace } from '../db/embedded-place.ts';
import { withPrivateServer } from '../db/embedded-private.ts';
import { migrate } from '../db/migrate.ts';
import { type Db, openDb } from '../db/pool.ts';
import type { Vault } from '../vault.ts';
import { copyTree } from './copy-tree.ts';
import { requireFreeSpace } from './free-space.ts';
import { clusterOf, type FileEntry, type Manifest, readManifest } from './manifest.ts';
import { type Raised, raisePositions } from './positions.ts';

/**
 * Brings a backup back into a data directory that has no database.
 *
 * What is done to it, from the copy to the raised positions, is done in a draft, which gets its place last: a service
 * finds a database that is ready, or none.
 */
export type Wanted = {
  /** The folder of one backup. */
  backup: string;
  dataDir: string;
  keyFile: KeyFile;
  vault: Vault;
  /** Of `keys restore`: gives up connections that were made after the file of keys. */
  dropsNewer: boolean;
  /** Of `keys restore`: takes a first master key that came into use before another one. */
  goesBack: boolean;
  log: (message: string) => void;
  onProgress: (done: { bytes: number; total: number }) => void;
};
type Back = { madeAt: Date; keys: Restored; raised: Raised };

/**
 * Restores: data of the backup, keys of the file, positions raised; ready for a start. Throws if the backup is damaged
 * or of another major version or platform, if the directory holds a database, if its disk has too little space, and if
 * `restoreKeys` throws. Then the directory is as it was, and does not exist if it did not exist before.
 */
export async function restoreBackup(wanted: Wanted): Promise<Back> {
  return inDraft(wanted, async (db, { draft, place, manifest }) => {
    const keys = await restoreKeys(db, keysOf(wanted));
    const raised = await raisePositions(db);
    const finish = async () => {
      await syncCluster(draft, place);
      renameSync(draft, place.clusterDir);
      syncDir(place.dir);
    };
    return { result: { madeAt: manifest.madeAt, keys, raised }, finish };
  });
}

/** Does all of it, tells what it would come to, and leaves nothing behind: no directory that was not there. */
export async function tryBackup(wanted: Wanted): Promise<Back> {
  return inDraft(wanted, async (db, { manifest }) => {
    const keys = await tryRestoreKeys(db, keysOf(wanted));
    const raised = await raisePositions(db);
    return { result: { madeAt: manifest.madeAt, keys, raised }, finish: async () => {} };
  });
}

function keysOf({ vault, keyFile, dropsNewer }: Wanted) {
  return { vault, keyFile, dropsNewer, at: new Date() };
}

type Draft = { draft: string; place: Place; manifest: Manifest };

/** `finish` runs when no server is at work on the draft any more, which goes away unless it got another name. */
async function inDraft<T>(
  wanted: Wanted,
  work: (db: Db, draft: Draft) => Promise<{ result: T; finish: () => Promise<void> }>,
): Promise<T> {
  const { backup, dataDir, vault, goesBack, log } = wanted;
  const manifest = await readManifest(backup);
  const place = await takePlace({ dataDir, log });
  try {
    proveFits(manifest, { backup, place });
    const total = manifest.files.reduce((sum, { bytes }) => sum + bytes, 0);
    await requireFreeSpace(place.dir, { bytes: total, what: 'the restore' });
    const draft = makeDraftDir(place.dir, place.account);
    try {
      await copyVerified(wanted, { draft, place, manifest, total });
      const { binaries, account } = place;
      const { result, finish } = await withPrivateServer(
        draft,
        { binaries, account, log },
        async (server) => {
          const db = openDb(server.connection, { maxConnections: 2 });
          try {
            await migrate(db);
            if (!goesBack) await proveOrder(db, vault.masterKeys);
            return await work(db, { draft, place, manifest });
          } finally {
            await db.end();
          }
        },
      );
      await finish();
      return result;
    } finally {
      await rm(draft, { recursive: true, force: true });
    }
  } finally {
    // The first start makes again what a database in its place goes without.
    place.vacate();
  }
}

function proveFits(manifest: Manifest, { backup, place }: { backup: string; place: Place }): void {
  const { clusterDir, binaries } = place;
  if (existsSync(clusterDir))
    throw new Error(`${clusterDir} holds a database: move it away, or set DATA_DIR to another directory`);
  if (manifest.postgres !== binaries.major)
    throw new Error(
      `${backup} is of PostgreSQL ${manifest.postgres}, and this version brings ${binaries.major}: restore it with the ` +
        'version that made it, and upgrade then (docs/operations/embedded-upgrade.md)',
    );
  const platform = `${process.platform}-${process.arch}`;
  if (manifest.platform !== platform)
    throw new Error(
      `${backup} was made on ${manifest.platform}, and this is ${platform}: the files of a PostgreSQL cannot be ` +
        'carried from one to the other',
    );
}

async function copyVerified(
  { backup, onProgress }: Wanted,
  { draft, place, manifest, total }: Draft & { total: number },
): Promise<void> {
  let done = 0;
  const copied = await copyTree(
    { dirs: manifest.dirs, files: manifest.files.map(({ path }) => path) },
    {
      ...{ from: clusterOf(backup), to: draft, owner: place.account.identity },
      onBytes(bytes) {
        done += bytes;
        onProgress({ bytes: done, total });
      },
    },
  );
  const found = new Map(copied.map((entry) => [entry.path, entry]));
  for (const expected of manifest.files) {
    if (isSame(found.get(expected.path), expected)) continue;
    const what = found.has(expected.path) ? 'is not what was backed up' : 'is missing';
    throw new Error(`${clusterOf(backup)}/${expected.path} ${what}: the backup is damaged; take another one`);
  }
}

function isSame(found: FileEntry | undefined, expected: FileEntry): boolean {
  return found?.sha256 === expected.sha256 && found.bytes === expected.bytes;
}
