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
 * It is made in a draft beside it: whoever is killed half-way leaves no `clusterDir`. Throws what initdb said.
 */
export async function makeCluster(
  clusterDir: string,
  make: { binaries: Binaries; account: Account },
): Promise<void> {
  const { binaries, account } = make;
  const dir = path.dirname(clusterDir);
  const draft = mkdtempSync(path.join(dir, 'draft-'));
  if (account.identity.uid !== undefined) chownSync(draft, account.uid, account.gid);
  let output = '';
  const initdb = spawnGuarded({
    command: [
      binaries.initdb,
      '--pgdata',
      draft,
      '--username',
      superuser,
      '--encoding=UTF8',
      '--locale=C',
      '--auth=peer',
      '--no-instructions',
    ],
    libraryPath: binaries.libraryPath,
    account,
    onOutput: (text) => {
      output += text;
    },
  });
  const code = await initdb.exited;
  if (code !== 0) {
    rmSync(draft, { recursive: true, force: true });
    throw new Error(`initdb failed (code ${code}): ${output.trim()}`);
  }
  renameSync(draft, clusterDir);
  syncDir(dir);
}

/** Else a power cut could take back the name while what was committed under it is on disk. */
function syncDir(dir: string): void {
  const descriptor = openSync(dir, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Throws where the cluster is not one that these programs can open. */
export function checkVersion(clusterDir: string, binaries: Binaries): void {
  const made = readFileSync(path.join(clusterDir, 'PG_VERSION'), 'utf8').trim();
  if (made === binaries.major) return;
  throw new Error(
    `the database in ${clusterDir} was made by PostgreSQL ${made}, and this version brings PostgreSQL ` +
      `${binaries.major}, which cannot open it; start the version that made it, ` +
      'or run it with a PostgreSQL of your own and set DATABASE_URL',
  );
}
