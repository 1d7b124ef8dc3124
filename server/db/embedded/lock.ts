// One service per data directory, and one backup at a time into a directory of backups.

import {
  closeSync,
  constants,
  existsSync,
  fchmodSync,
  lstatSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { isAlive } from '../../is-alive.ts';

interface Lock {
  release(): void;
}

/** Another process holds the directory. */
export class Taken extends Error {}

const sqliteBusy = 5;

/** References to the held locks: without them the garbage collector would close their files, which releases the locks. */
const held = new Set<DatabaseSync>();

/**
 * Takes `dir` for this process until `release` or the end of the process. Of several simultaneous processes one gets it; the
 * others throw `Taken` with the text that `refusal` makes from the holder's pid (` (pid 42)`, empty if it is not known).
 * `holder` names the files of the lock.
 *
 * The lock is a record lock of the kernel on a file (`fcntl`): it ends with the process even after `kill -9`, and holds across
 * containers that share the directory. Node can take one only through SQLite.
 */
export async function takeLock(
  dir: string,
  { holder, refusal }: { holder: 'service' | 'backup'; refusal: (pid: string) => string },
): Promise<Lock> {
  const pidFile = path.join(dir, `${holder}.pid`);
  const lockFile = path.join(dir, `${holder}.lock`);
  keepPrivate(lockFile);
  const file = new DatabaseSync(lockFile);
  try {
    file.exec('begin exclusive');
  } catch (cause) {
    file.close();
    if ((cause as { errcode?: number }).errcode !== sqliteBusy) throw cause;
    const pid = await readHolder(pidFile);
    throw new Taken(refusal(pid ? ` (pid ${pid})` : ''));
  }
  if (!existsSync(lockFile)) {
    // The previous holder removed the file with its directory, so this lock excludes no other process.
    file.close();
    throw new Taken(refusal(''));
  }
  try {
    writePid(pidFile);
  } catch (error) {
    file.close();
    throw error;
  }
  held.add(file);
  return {
    release() {
      if (!held.delete(file)) return;
      rmSync(pidFile, { force: true });
      file.close();
    },
  };
}

/**
 * Makes the file of a lock one that its owner alone may open: any user who may read it could hold the lock. SQLite would
 * make it readable for all. A file that is private already is not opened, since closing it would end a lock that this
 * process holds on it (fcntl_locking(2)).
 */
function keepPrivate(file: string): void {
  provePlain(file);
  const found = statSync(file, { throwIfNoEntry: false });
  if (found !== undefined && (found.mode & 0o077) === 0) return;
  const { O_RDWR, O_CREAT, O_NOFOLLOW } = constants;
  const descriptor = openSync(file, O_RDWR | O_CREAT | O_NOFOLLOW, 0o600);
  try {
    fchmodSync(descriptor, 0o600);
  } finally {
    closeSync(descriptor);
  }
}

/** Throws if the path is not a plain file: root would follow a link that the owner of the directory has made. */
export function provePlain(file: string): void {
  const found = lstatSync(file, { throwIfNoEntry: false });
  if (found !== undefined && !found.isFile()) throw new Error(`${file} is not a regular file; remove it`);
}

/** Replaces the file, or a link at its path. */
function writePid(pidFile: string): void {
  rmSync(pidFile, { force: true });
  writeFileSync(pidFile, `${process.pid}\n`, { flag: 'wx', mode: 0o600 });
}

/** The holder writes its pid just after it has taken the lock, so the pid may appear a moment later. */
async function readHolder(pidFile: string): Promise<number | undefined> {
  for (let attempt = 0; attempt < 20; attempt++) {
    const pid = Number(readIfThere(pidFile));
    if (pid && isAlive(pid)) return pid;
    await sleep(25);
  }
  return undefined;
}

function readIfThere(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
