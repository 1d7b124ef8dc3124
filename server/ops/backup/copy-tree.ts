import { createHash } from 'node:crypto';
import { type FileHandle, mkdir, open, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { forEachLimited } from '../../concurrency.ts';
import type { FileEntry } from './backup-directory.ts';

/**
 * Files of a cluster, copied byte by byte and counted.
 *
 * A server may run on the source: a file may grow, shrink or disappear meanwhile, and a page may be copied during a write. The
 * WAL repairs that (PostgreSQL manual, "Making a Base Backup Using the Low Level API"), or the checksum detects it.
 */
const chunkBytes = 1024 * 1024;
/** The number of files that are copied at a time: most files of a cluster are small. */
const atOnce = 4;

/** The owner of the copies; undefined: the user of this process. */
export type Owner = { uid?: number; gid?: number };

/** Paths within a directory, with `/`: directories before their contents. */
export type Tree = { dirs: string[]; files: string[] };

/** The tree below `dir`, without the paths that `skips` names and their contents. Throws if it has a link. */
export async function readTree(dir: string, skips: (path: string) => boolean = () => false): Promise<Tree> {
  const tree: Tree = { dirs: [], files: [] };
  const walk = async (below: string): Promise<void> => {
    const entries = await readdir(join(dir, below), { withFileTypes: true }).catch(ifGone([]));
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = below === '' ? entry.name : `${below}/${entry.name}`;
      if (skips(path)) continue;
      if (entry.isSymbolicLink())
        throw new Error(`${join(dir, path)} is a symbolic link, which this backup does not support`);
      if (entry.isDirectory()) {
        tree.dirs.push(path);
        await walk(path);
      } else if (entry.isFile()) {
        tree.files.push(path);
      }
    }
  };
  await walk('');
  return tree;
}

/** Copies a tree into the empty directory `to`. Skips files that disappear meanwhile. */
export async function copyTree(
  tree: Tree,
  by: { from: string; to: string; owner: Owner; onBytes: (bytes: number) => void },
): Promise<FileEntry[]> {
  const { from, to, owner, onBytes } = by;
  for (const path of tree.dirs) await makeDir(join(to, path), owner);
  const copied: FileEntry[] = [];
  await forEachLimited(tree.files, atOnce, async (path) => {
    const entry = await copyFile(path, { from, to, owner, onBytes });
    if (entry !== undefined) copied.push(entry);
  });
  return copied.sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** The checksums of all files of a tree. */
export async function sumTree(
  { files }: Tree,
  { dir, onBytes }: { dir: string; onBytes: (bytes: number) => void },
): Promise<FileEntry[]> {
  const entries: FileEntry[] = [];
  await forEachLimited(files, atOnce, async (path) => {
    await using file = await open(join(dir, path));
    entries.push({ path, ...(await pump(file, { onBytes })) });
  });
  return entries.sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** The approximate size of a tree in bytes. */
export async function sizeOf({ files }: Tree, dir: string): Promise<number> {
  let bytes = 0;
  await forEachLimited(files, atOnce, async (path) => {
    const { size } = await stat(join(dir, path)).catch(ifGone({ size: 0 }));
    bytes += size;
  });
  return bytes;
}

async function makeDir(path: string, owner: Owner): Promise<void> {
  await mkdir(path, { mode: 0o700 });
  if (owner.uid === undefined || owner.gid === undefined) return;
  await using dir = await open(path);
  await dir.chown(owner.uid, owner.gid);
}

async function copyFile(
  path: string,
  { from, to, owner, onBytes }: { from: string; to: string; owner: Owner; onBytes: (bytes: number) => void },
): Promise<FileEntry | undefined> {
  await using source = await open(join(from, path)).catch(ifGone(undefined));
  if (source === undefined) return undefined;
  await using target = await open(join(to, path), 'wx', 0o600);
  if (owner.uid !== undefined && owner.gid !== undefined) await target.chown(owner.uid, owner.gid);
  return { path, ...(await pump(source, { onBytes, target })) };
}

/** Reads a file to its end, and writes it to `target` if there is one. */
async function pump(
  source: FileHandle,
  { onBytes, target }: { onBytes: (bytes: number) => void; target?: FileHandle },
): Promise<{ bytes: number; sha256: string }> {
  const hash = createHash('sha256');
  const buffer = Buffer.allocUnsafe(chunkBytes);
  let bytes = 0;
  for (;;) {
    const { bytesRead } = await source.read(buffer, 0, chunkBytes);
    if (bytesRead === 0) return { bytes, sha256: hash.digest('hex') };
    const read = buffer.subarray(0, bytesRead);
    hash.update(read);
    await target?.writeFile(read);
    bytes += bytesRead;
    onBytes(bytesRead);
  }
}

function ifGone<T>(value: T): (error: NodeJS.ErrnoException) => T {
  return (error) => {
    if (error.code === 'ENOENT') return value;
    throw error;
  };
}
