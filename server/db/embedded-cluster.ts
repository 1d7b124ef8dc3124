// A cluster: the directory initdb makes, whole or not at all.

import {
  chownSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Account } from './embedded-account.ts';
import type { Binaries } from './embedded-binaries.ts';
import { spawnGuarded } from './embedded-server.ts';

/** The role that owns the cluster and that the service connects as. */
export const superuser = 'trellis';

/**
 * Removes what services left that were killed while they made a cluster. Their initdb may still be ending
 * and write what was just removed; a draft that stays does no harm and is removed at a later start.
 */
export async function removeDrafts(dir: string): Promise<void> {
  const deadline = performance.now() + 3000;
  for (const name of readdirSync(dir).filter((entry) => entry.startsWith('draft-'))) {
    const draft = path.join(dir, name);
    while (existsSync(draft) && performance.now() < deadline) {
      try {
        rmSync(draft, { recursive: true, force: true });
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOTEMPTY') throw error;
      }
      await sleep(20);
    }
  }
}

/**
 * Makes a cluster of ours at `clusterDir`, UTF-8 and ordered by code point, on disk when this resolves.
 * It is made in a draft beside it: a process that is killed half-way leaves no `clusterDir`. Throws the output of initdb.
 */
export async function makeCluster(
  clusterDir: string,
  make: { binaries: Binaries; account: Account },
): Promise<void> {
  const draft = await makeDraft(path.dirname(clusterDir), make);
  renameSync(draft, clusterDir);
  syncDir(path.dirname(clusterDir));
}

/** Makes such a cluster under a name that `removeDrafts` knows, and tells it. */
export async function makeDraft(
  dir: string,
  { binaries, account }: { binaries: Binaries; account: Account },
): Promise<string> {
  const draft = makeDraftDir(dir, account);
  const command = [
    binaries.initdb,
    '--pgdata',
    draft,
    '--username',
    superuser,
    '--encoding=UTF8',
    '--locale=C',
    '--auth=peer',
    '--no-instructions',
  ];
  try {
    await runInitdb(command, { binaries, account });
  } catch (error) {
    rmSync(draft, { recursive: true, force: true });
    throw error;
  }
  return draft;
}

/** An empty directory for a cluster of `account`, under a name that `removeDrafts` knows. */
export function makeDraftDir(dir: string, account: Account): string {
  const draft = mkdtempSync(path.join(dir, 'draft-'));
  if (account.identity.uid !== undefined) chownSync(draft, account.uid, account.gid);
  return draft;
}

async function runInitdb(
  command: string[],
  { binaries, account }: { binaries: Binaries; account: Account },
): Promise<void> {
  let output = '';
  const initdb = spawnGuarded({
    command,
    libraryPath: binaries.libraryPath,
    account,
    onOutput: (text) => {
      output += text;
    },
  });
  const code = await initdb.exited;
  if (code !== 0) throw new Error(`initdb failed (code ${code}): ${output.trim()}`);
}

/** Else a power cut could take back the name while what was committed under it is on disk. */
export function syncDir(dir: string): void {
  const descriptor = openSync(dir, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** The major version that made a cluster. */
export function versionOf(clusterDir: string): string {
  return readFileSync(path.join(clusterDir, 'PG_VERSION'), 'utf8').trim();
}

/**
 * Makes sure that all files of a cluster that no server runs on are on the disk. Throws what initdb said, which walks
 * them as the cluster's owner.
 */
export async function syncCluster(
  clusterDir: string,
  { binaries, account }: { binaries: Binaries; account: Account },
): Promise<void> {
  const command = [binaries.initdb, '--sync-only', '--pgdata', clusterDir];
  await runInitdb(command, { binaries, account });
}

/** Throws where the cluster is not one that these programs can open. */
export function checkVersion(clusterDir: string, binaries: Binaries): void {
  const made = versionOf(clusterDir);
  if (made === binaries.major) return;
  throw new Error(
    `the database in ${clusterDir} was made by PostgreSQL ${made}, and this version brings PostgreSQL ` +
      `${binaries.major}, which cannot open it; "trellis upgrade-database" brings it over ` +
      '(docs/operations/embedded-upgrade.md), or start the version that made it',
  );
}
