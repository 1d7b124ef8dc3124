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

interface Lock {
  release(): void;
}

/** Another process has the directory. */
export class Taken extends Error {}

const sqliteBusy = 5;

/** References to the held locks: without them the garbage collector would close their files, which releases the locks. */
const held = new Set<DatabaseSync>();

/**
 * Takes `dir` for this process until `release` or the process ends, however it ends. Of any number of
 * processes at the same moment one wins; the others throw `Taken` with what `refusal` makes of the winner's pid
 * (` (pid 42)`, or nothing where it is not known). `holder` names the files of the lock.
 *
 * The lock is the kernel's own record lock on a file (`fcntl`), which goes with the process even after
 * `kill -9` and holds across containers that share the directory; Node reaches it only through SQLite.
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
    // Who had it took it away with the directory: a lock on it keeps nobody out.
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

/** Throws where another thing than a file stands there: root would open what a link of the directory's owner leads to. */
export function provePlain(file: string): void {
  const found = lstatSync(file, { throwIfNoEntry: false });
  if (found !== undefined && !found.isFile()) throw new Error(`${file} is no plain file; remove it`);
}

/** In the place of what stands there, also of a link. */
function writePid(pidFile: string): void {
  rmSync(pidFile, { force: true });
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  const descriptor = openSync(pidFile, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    writeFileSync(descriptor, `${process.pid}\n`);
  } finally {
    closeSync(descriptor);
  }
}

/** The holder writes its pid just after it has the lock: where several start at once, it may take a moment. */
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

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
