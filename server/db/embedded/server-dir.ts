// DATA_DIR/postgres, which one process locks: the account of its server, and the programs for it.

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
import { type Account, findAccount, openWayTo } from './account.ts';
import { type Binaries, prepareBinaries } from './binaries.ts';
import { removeDrafts, syncDir } from './cluster.ts';
import { takeLock } from './lock.ts';
import type { Log } from './run.ts';

export interface ServerDir {
  /** DATA_DIR/postgres. */
  dir: string;
  /** The path of the cluster, which may not exist yet. */
  clusterDir: string;
  account: Account;
  binaries: Binaries;
  release(): void;
  /** As `release`, and removes the files that this process has made in it, and directories that are empty then. */
  releaseAndCleanUp(): void;
}

/**
 * Locks the directory of a data directory's server for this process, until `release`. Throws if another service uses it, and
 * if this machine cannot run a server; each message names the remedy.
 */
export async function lockServerDir({ dataDir, log }: { dataDir: string; log: Log }): Promise<ServerDir> {
  const { dir, made } = makeDir(dataDir);
  const before = new Set(readdirSync(dir));
  const clusterDir = path.join(dir, 'data');
  const lock = await takeLock(dir, {
    holder: 'service',
    refusal: (pid) =>
      `another service${pid} is using the data directory ${dataDir}; ` +
      'stop it first, or set DATA_DIR to another directory',
  });
  const releaseAndCleanUp = () => {
    for (const name of readdirSync(dir).filter((one) => !before.has(one) && isWithoutData.test(one)))
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
    return { dir, clusterDir, account, binaries, release: () => lock.release(), releaseAndCleanUp };
  } catch (error) {
    releaseAndCleanUp();
    throw error;
  }
}

/** Files in DATA_DIR/postgres that `lockServerDir` makes, which hold no data. */
const isWithoutData = /^(service\.(lock|pid)|libraries|programs-.*)$/;

/** Removes directories, the innermost first, until one is not empty. */
function removeEmpty(made: readonly string[]): void {
  try {
    for (const dir of made) rmdirSync(dir);
  } catch (error) {
    if (!['ENOTEMPTY', 'ENOENT'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}

/** Whether a data directory has a database, also during an exchange. */
export function hasEmbedded(dataDir: string): boolean {
  const clusterDir = path.resolve(dataDir, 'postgres', 'data');
  return existsSync(clusterDir) || existsSync(nextOf(clusterDir));
}

/**
 * Replaces the cluster with a complete one, and keeps the old one as `kept`. The result is on the disk when this returns. If
 * the process is killed midway, the next process that locks the directory completes the exchange.
 */
export function exchangeCluster(clusterDir: string, by: { draft: string; kept: string }): void {
  rmSync(nextOf(clusterDir), { recursive: true, force: true });
  renameSync(by.draft, nextOf(clusterDir));
  syncDir(path.dirname(clusterDir));
  renameSync(clusterDir, by.kept);
  finishExchange(clusterDir);
}

/** Otherwise a start during an incomplete exchange would be a first start, and would make an empty cluster. */
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

/** `dir` is the real path, which the server uses; `made` are the directories that were missing, from there up. */
function makeDir(dataDir: string): { dir: string; made: string[] } {
  const dir = path.resolve(dataDir, 'postgres');
  // The account of the server, which may be another user, must be able to enter.
  const first = mkdirSync(dir, { recursive: true, mode: process.getuid?.() === 0 ? 0o711 : 0o700 });
  const made: string[] = [];
  for (let at = dir; first !== undefined && at.startsWith(first); at = path.dirname(at)) made.push(at);
  try {
    accessSync(dir, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new Error(
      `${dir} is not writable for uid ${process.getuid?.()}; change its owner to that user, ` +
        'or set DATA_DIR to another directory',
      { cause },
    );
  }
  return { dir: realpathSync(dir), made };
}
