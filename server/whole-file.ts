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
/** Whoever writes one writes all the time. */
const abandonedAfterMs = 600_000;

/**
 * Writes a file in the place of what stood there, or of what a link there leads to; what `write` came to. All or nothing:
 * until all that `write` wrote is on the disk, and whenever it throws, the file from before stands. The new one belongs to
 * whoever writes it. Drafts of those that were killed are removed, since they may hold keys too.
 *
 * `write` is also told where its draft is. Throws where a link leads nowhere: what it should lead to is not there today.
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

/** Throws, naming it, where `writeWhole` could not write: the folder is missing or closed to us, or it is a folder itself. */
export async function proveWritable(path: string): Promise<void> {
  const target = await followLink(path);
  const found = await stat(target).catch(() => undefined);
  if (found?.isDirectory()) throw new Error(`${path} is a folder.`);
  await access(dirname(target), constants.W_OK | constants.X_OK).catch((cause: unknown) => {
    throw new Error(`${path} cannot be written: its folder is missing, or closed.`, { cause });
  });
}

async function followLink(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    const found = await lstat(path).catch(() => undefined);
    if (found?.isSymbolicLink()) throw new Error(`${path} is a link that leads nowhere`);
    return path;
  }
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path);
  await folder.sync().finally(() => folder.close());
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

/** Undefined where it takes the right to read the folder: a file can be written there without. */
async function unlessUnreadable<T>(work: Promise<T>): Promise<T | undefined> {
  return work.catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EACCES') throw error;
    return undefined;
  });
}
