import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isAlive } from '../../server/is-alive.ts';

/** Short, since sockets lie below it, whose paths have at most 103 bytes. */
export const socketPlace = tmpdir().length <= 32 ? tmpdir() : '/tmp';

const memory = '/dev/shm';
/** What a whole run takes at most, three times over. */
const neededBytes = 6 * 2 ** 30;

/**
 * Makes a directory for everything that a test run writes, open to all accounts as /tmp is. It is in memory if that has the
 * capacity, since a file system that has just lost thousands of files, as one does with every database that is dropped,
 * makes new ones slowly. It bears the process's ID, by which the next run finds what a killed one left.
 */
export function makeScratch(): { path: string; remove: () => void } {
  const place = hasMemory() ? memory : socketPlace;
  for (const name of readdirSync(place)) {
    const pid = /^trellis-(\d+)-/.exec(name)?.[1];
    if (pid !== undefined && !isAlive(Number(pid))) remove(join(place, name));
  }
  const path = mkdtempSync(join(place, `trellis-${process.pid}-`));
  chmodSync(path, 0o1777);
  return { path, remove: () => remove(path) };
}

function hasMemory(): boolean {
  if (!existsSync(memory)) return false;
  const { bavail, bsize } = statfsSync(memory);
  return bavail * bsize >= neededBytes;
}

const remove = (path: string) => rmSync(path, { recursive: true, force: true, maxRetries: 5 });
