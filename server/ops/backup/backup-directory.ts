import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, open, readdir, readFile, realpath, rename, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { takeLock } from '../../db/embedded/lock.ts';
import { endOrphan } from '../../db/embedded/server.ts';

/**
 * A directory of backups: one folder a backup, named after its moment (UTC), and `data.keys`, the newest file of keys.
 * Folders that are being made or removed begin with `draft-`.
 */
const named = /^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$/;

export function nameOf(madeAt: Date): string {
  return madeAt.toISOString().replace(/[:.]/g, '-');
}

/** The default path of the file of keys. */
export function keyFileOf(backupDir: string): string {
  return join(backupDir, 'data.keys');
}

/** Lends the directory, made if it is missing, to one process at a time, without drafts of processes that were killed. */
export async function withBackupDirectory<T>(
  dir: string,
  work: (backupDir: string) => Promise<T>,
): Promise<T> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const backupDir = await realpath(dir);
  const lock = await takeLock(backupDir, {
    holder: 'backup',
    refusal: (pid) => `another backup${pid} writes to ${backupDir}; wait until it ends`,
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
 * Removes the oldest backups, so that `count` are left, and returns their names. `made`, the latest one, stays: if the clock
 * was ahead, others have later names. After a kill, the next call removes the rest.
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

/** Space for the WAL that is written during the copy, and for that of the server that runs on the copy. */
const forWalBytes = 128 * 1024 ** 2;

/**
 * Throws, with the missing size, if the disk of `dir` has too little space for a cluster of about `bytes`. `what` needs
 * the space (`the backup`). Checks the disk alone: a quota of the user is not detected.
 */
export async function requireFreeSpace(
  dir: string,
  { bytes, what }: { bytes: number; what: string },
): Promise<void> {
  const { bavail, bsize } = await statfs(dir);
  const [needed, free] = [bytes + forWalBytes, bavail * bsize];
  if (needed <= free) return;
  throw new Error(
    `${what} needs about ${megabytes(needed)}, and ${dir} has ${megabytes(free)} free: ${megabytes(needed - free)} are ` +
      'missing; free disk space, or use a directory on another disk',
  );
}

export function megabytes(bytes: number): string {
  return `${Math.ceil(bytes / 1024 ** 2)} MB`;
}

/**
 * The contents of a backup: the file `manifest` beside its cluster.
 *
 * A line with the kind and a head as JSON; a line for each directory (`dir <path>`) and each file
 * (`file <SHA-256> <bytes> <path>`), with paths within the cluster and `/`; a line with the SHA-256 of all lines before it.
 * It is written last, so a backup with a manifest is complete.
 */
export type Manifest = Head & { dirs: string[]; files: FileEntry[] };
type Head = {
  /** The time of the data, by the clock of the machine that made the backup. */
  madeAt: Date;
  /** Major version of PostgreSQL, and the platform of its programs: `linux-x64`. */
  postgres: string;
  platform: string;
};
export type FileEntry = { path: string; bytes: number; sha256: string };

const kind = 'trellis backup, version 1 ';

export function manifestPath(backup: string): string {
  return join(backup, 'manifest');
}

/** The path of the cluster of a backup. */
export function clusterOf(backup: string): string {
  return join(backup, 'cluster');
}

/** The manifest is on the disk when this resolves. */
export async function writeManifest(backup: string, manifest: Manifest): Promise<void> {
  const { dirs, files, ...head } = manifest;
  const text = [
    kind + JSON.stringify(head),
    ...dirs.map((path) => `dir ${path}`),
    ...files.map(({ path, bytes, sha256 }) => `file ${sha256} ${bytes} ${path}`),
    '',
  ].join('\n');
  await using file = await open(manifestPath(backup), 'wx', 0o600);
  await file.writeFile(`${text}sha256 ${sumOf(text)}\n`);
  await file.sync();
}

/** Throws if it is missing or damaged. */
export async function readManifest(backup: string): Promise<Manifest> {
  const path = manifestPath(backup);
  const text = await readFile(path, 'utf8').catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== 'ENOENT') throw cause;
    throw new Error(`${backup} is not a backup: it has no file "manifest"`);
  });
  const end = text.lastIndexOf('sha256 ');
  const body = text.slice(0, Math.max(end, 0));
  if (!body.startsWith(kind)) throw new Error(`${path} is not a backup manifest that this version supports`);
  if (text.slice(end) !== `sha256 ${sumOf(body)}\n`)
    throw new Error(`${path} was changed: the backup cannot be used; use another backup`);
  const [head = '', ...lines] = body.trimEnd().split('\n');
  const { madeAt, postgres, platform } = JSON.parse(head.slice(kind.length)) as Record<keyof Head, string>;
  const manifest: Manifest = { madeAt: new Date(madeAt), postgres, platform, dirs: [], files: [] };
  for (const line of lines) {
    const [, dir, sha256, bytes, path = ''] =
      /^(?:dir (.+)|file ([0-9a-f]{64}) (\d+) (.+))$/.exec(line) ?? [];
    if ((dir ?? path).split('/').some((part) => part === '' || part === '..'))
      throw new Error(`${backup} lists "${line}", which is not a valid file of a cluster`);
    if (dir !== undefined) manifest.dirs.push(dir);
    else manifest.files.push({ path, sha256: sha256 ?? '', bytes: Number(bytes) });
  }
  return manifest;
}

function sumOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
