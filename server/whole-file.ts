import { randomBytes } from 'node:crypto';
import {
  access,
  constants,
  type FileHandle,
  lstat,
  open,
  readdir,
  realpath,
  rename,
  rm,
  stat,
} from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

/** Files that hold keys: readable by their owner alone, whole or not there at all. */
const ownerOnly = 0o600;
/** A process that writes a draft writes all the time. */
const abandonedAfterMs = 600_000;

/**
 * Writes a file in the place of the file there, or of the target of a link there; returns the result of `write`. All or
 * nothing: until all that `write` wrote is on the disk, and whenever it throws, the previous file stays. The new file
 * belongs to the process's user. Drafts of killed processes are removed, since they may hold keys too.
 *
 * `write` also receives the path of its draft. Throws if a link leads nowhere: its target does not exist now.
 */
export async function writeWhole<T>(
  path: string,
  write: (file: FileHandle, draft: string) => Promise<T>,
): Promise<T> {
  const target = await followLink(path);
  await removeAbandoned(target);
  const draft = `${target}.${randomBytes(6).toString('hex')}.draft`;
  const file = await open(draft, 'wx', ownerOnly);
  try {
    const result = await write(file, draft);
    await file.sync();
    await file.close();
    await rename(draft, target);
    await unlessUnreadable(syncFolder(dirname(target)));
    return result;
  } catch (error) {
    await file.close();
    await rm(draft, { force: true });
    throw error;
  }
}

/** Throws, naming it, if `writeWhole` could not write: the folder is missing or not accessible, or the path is a folder. */
export async function proveWritable(path: string): Promise<void> {
  const target = await followLink(path);
  const found = await stat(target).catch(() => undefined);
  if (found?.isDirectory()) throw new Error(`${path} is a directory.`);
  await access(dirname(target), constants.W_OK | constants.X_OK).catch((cause: unknown) => {
    throw new Error(`${path} cannot be written: its directory does not exist or is not writable.`, { cause });
  });
}

async function followLink(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    const found = await lstat(path).catch(() => undefined);
    if (found?.isSymbolicLink()) throw new Error(`${path} is a symbolic link to a file that does not exist`);
    return path;
  }
}

async function syncFolder(path: string): Promise<void> {
  await using folder = await open(path);
  await folder.sync();
}

async function removeAbandoned(path: string): Promise<void> {
  const begin = `${basename(path)}.`;
  for (const name of (await unlessUnreadable(readdir(dirname(path)))) ?? []) {
    if (!name.startsWith(begin) || !/^[0-9a-f]{12}\.draft$/.test(name.slice(begin.length))) continue;
    const draft = join(dirname(path), name);
    const found = await stat(draft).catch(() => undefined);
    if (found && found.mtimeMs < Date.now() - abandonedAfterMs) await rm(draft, { force: true });
  }
}

/** Undefined if the folder may not be read: a file can be written there without that right. */
async function unlessUnreadable<T>(work: Promise<T>): Promise<T | undefined> {
  return work.catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EACCES') throw error;
    return undefined;
  });
}
