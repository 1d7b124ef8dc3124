import { existsSync } from 'node:fs';
import { mkdir, readdir, realpath, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { takeLock } from '../db/embedded-lock.ts';
import { endOrphan } from '../db/embedded-server.ts';
import { clusterOf, manifestPath } from './manifest.ts';

/**
 * A directory of backups: one folder a backup, named after its moment (UTC), and `data.keys`, the newest file of keys.
 * Folders that are being made or removed begin with `draft-`.
 */
const named = /^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$/;

export function nameOf(madeAt: Date): string {
  return madeAt.toISOString().replace(/[:.]/g, '-');
}

/** Where the file of keys lies unless the operator says otherwise. */
export function keyFileOf(backupDir: string): string {
  return join(backupDir, 'data.keys');
}

/** Lends the directory, made where there is none, to one process at a time, without drafts of processes that were killed. */
export async function withBackupDirectory<T>(
  dir: string,
  work: (backupDir: string) => Promise<T>,
): Promise<T> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const backupDir = await realpath(dir);
  const lock = await takeLock(backupDir, {
    holder: 'backup',
    refusal: (pid) => `another backup${pid} is being made into ${backupDir}; wait for it`,
  });
  try {
    for (const name of (await readdir(backupDir)).filter((entry) => entry.startsWith('draft-'))) {
      await endOrphan(clusterOf(join(backupDir, name)), () => {});
      await rm(join(backupDir, name), { recursive: true, force: true });
    }
    return await work(backupDir);
  } finally {
    lock.release();
  }
}

/** Whole backups, the oldest first. */
async function listBackups(backupDir: string): Promise<string[]> {
  const names = (await readdir(backupDir)).filter((name) => named.test(name)).sort();
  return names.filter((name) => existsSync(manifestPath(join(backupDir, name))));
}

/**
 * Removes all but `made` and the newest others, so that `count` are left; their names. The one just made stays whatever
 * its name says: a clock that was ahead has given others later ones. Where it is killed half-way, the next one goes on.
 */
export async function keepNewest(
  backupDir: string,
  { count, made }: { count: number; made: string },
): Promise<string[]> {
  const others = (await listBackups(backupDir)).filter((name) => name !== made);
  const old = others.slice(0, Math.max(others.length - (count - 1), 0));
  for (const name of old) {
    const draft = join(backupDir, `draft-${name}`);
    await rename(join(backupDir, name), draft);
    await rm(draft, { recursive: true, force: true });
  }
  return old;
}
