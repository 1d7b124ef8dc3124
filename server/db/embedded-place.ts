// DATA_DIR/postgres, taken by one process: whom its server runs as, and the programs for it.

import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmdirSync,
  rmSync,
} from 'node:fs';
import path from 'node:path';
import { type Account, findAccount, openWayTo } from './embedded-account.ts';
import { type Binaries, prepareBinaries } from './embedded-binaries.ts';
import { removeDrafts, syncDir } from './embedded-cluster.ts';
import { takeLock } from './embedded-lock.ts';
import type { Log } from './embedded-run.ts';

export interface Place {
  /** DATA_DIR/postgres. */
  dir: string;
  /** Where the cluster is, or is to be. */
  clusterDir: string;
  account: Account;
  binaries: Binaries;
  release(): void;
  /** As `release`, and takes away what this process has made to take it: directories too, where they are empty. */
  vacate(): void;
}

/**
 * Takes the place of a data directory's server for this process, until `release`. Throws where another service uses it,
 * and where this machine cannot run a server; each message says what to do.
 */
export async function takePlace({ dataDir, log }: { dataDir: string; log: Log }): Promise<Place> {
  const { dir, made } = makeDir(dataDir);
  const before = new Set(readdirSync(dir));
  const clusterDir = path.join(dir, 'data');
  const lock = await takeLock(dir, {
    holder: 'service',
    refusal: (pid) =>
      `another service${pid} is using the data directory ${dataDir}; ` +
      'stop it first, or set DATA_DIR to a directory of its own',
  });
  const vacate = () => {
    for (const name of readdirSync(dir).filter((one) => !before.has(one) && isOfPlace.test(one)))
      rmSync(path.join(dir, name), { recursive: true, force: true });
    lock.release();
    removeEmpty(made);
  };
  try {
    finishExchange(clusterDir);
    const account = findAccount(clusterDir);
    openWayTo(dir, { account, log });
    const binaries = prepareBinaries({ dir, account });
    await removeDrafts(dir);
    return { dir, clusterDir, account, binaries, release: () => lock.release(), vacate };
  } catch (error) {
    vacate();
    throw error;
  }
}

/** What stands in DATA_DIR/postgres since its place was taken, and no data. */
const isOfPlace = /^(service\.(lock|pid)|libraries|programs-.*)$/;

/** Directories that were made, the innermost first. What somebody has put something into stays, with all around it. */
function removeEmpty(made: readonly string[]): void {
  try {
    for (const dir of made) rmdirSync(dir);
  } catch (error) {
    if (!['ENOTEMPTY', 'ENOENT'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}

/** Whether a data directory has a database, also one that is half-way exchanged. */
export function hasEmbedded(dataDir: string): boolean {
  const clusterDir = path.resolve(dataDir, 'postgres', 'data');
  return existsSync(clusterDir) || existsSync(nextOf(clusterDir));
}

/**
 * Puts a whole cluster in the place of the one that stands there, which is kept as `kept`. On the disk when this
 * returns; where the process is killed half-way, the next one that takes the place goes on.
 */
export function exchangeCluster(clusterDir: string, by: { draft: string; kept: string }): void {
  rmSync(nextOf(clusterDir), { recursive: true, force: true });
  renameSync(by.draft, nextOf(clusterDir));
  syncDir(path.dirname(clusterDir));
  renameSync(clusterDir, by.kept);
  finishExchange(clusterDir);
}

/** Without it a start would take a cluster that is half-way exchanged for a first start, and make an empty one. */
function finishExchange(clusterDir: string): void {
  if (existsSync(clusterDir)) {
    rmSync(nextOf(clusterDir), { recursive: true, force: true });
  } else if (existsSync(nextOf(clusterDir))) {
    renameSync(nextOf(clusterDir), clusterDir);
    syncDir(path.dirname(clusterDir));
  }
}

function nextOf(clusterDir: string): string {
  return `${clusterDir}.next`;
}

/** `dir` is the real path, since the server names its directory by it; `made` are those that were missing, from there up. */
function makeDir(dataDir: string): { dir: string; made: string[] } {
  const dir = path.resolve(dataDir, 'postgres');
  // A server that runs as another user must pass through.
  const first = mkdirSync(dir, { recursive: true, mode: process.getuid?.() === 0 ? 0o711 : 0o700 });
  const made: string[] = [];
  for (let at = dir; first !== undefined && at.startsWith(first); at = path.dirname(at)) made.push(at);
  try {
    accessSync(dir, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new Error(
      `${dir} is not writable for uid ${process.getuid?.()}; give it to that user, ` +
        'or set DATA_DIR to another directory',
      { cause },
    );
  }
  return { dir: realpathSync(dir), made };
}
