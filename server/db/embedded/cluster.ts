// A cluster: the directory that initdb makes, complete or not at all.

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
import type { Account } from './account.ts';
import type { Binaries } from './binaries.ts';
import { spawnGuarded } from './server.ts';

/** The role that owns the cluster and that the service connects as. */
export const superuser = 'trellis';

/**
 * Removes the drafts of services that were killed while they made a cluster. Their initdb may still run and write files again;
 * a draft that remains does no harm, and a later start removes it.
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
 * Makes a cluster at `clusterDir`, UTF-8 and ordered by code point; it is on the disk when this resolves. It is made as a
 * draft first: a killed process leaves no `clusterDir`. Throws the output of initdb.
 */
export async function makeCluster(
  clusterDir: string,
  make: { binaries: Binaries; account: Account },
): Promise<void> {
  const draft = await makeDraft(path.dirname(clusterDir), make);
  renameSync(draft, clusterDir);
  syncDir(path.dirname(clusterDir));
}

/** Makes such a cluster under a name that `removeDrafts` removes; returns its path. */
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

/** An empty directory for a cluster of `account`, under a name that `removeDrafts` removes. */
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

/** Otherwise a power failure could undo the rename although data were committed since. */
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
 * Flushes all files of a stopped cluster to the disk. initdb does that as the owner of the cluster; throws its output.
 */
export async function syncCluster(
  clusterDir: string,
  { binaries, account }: { binaries: Binaries; account: Account },
): Promise<void> {
  const command = [binaries.initdb, '--sync-only', '--pgdata', clusterDir];
  await runInitdb(command, { binaries, account });
}

/** Throws if these programs cannot open the cluster. */
export function checkVersion(clusterDir: string, binaries: Binaries): void {
  const made = versionOf(clusterDir);
  if (made === binaries.major) return;
  throw new Error(
    `the database in ${clusterDir} was made by PostgreSQL ${made}, and this version includes PostgreSQL ` +
      `${binaries.major}, which cannot open it; upgrade it with "trellis upgrade-database" ` +
      '(docs/operations/embedded-upgrade.md), or start the version that made it',
  );
}
