import { createHash } from 'node:crypto';
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';

/**
 * What a backup consists of: the file `manifest` beside its cluster.
 *
 * A line that says what it is, as JSON behind a word; a line a directory (`dir <path>`), a line a file
 * (`file <SHA-256> <bytes> <path>`), paths within the cluster and with `/`; a line with the SHA-256 of all before it. It is
 * written last, so a backup that has one is whole. Does not own: the copying of what it names (`copy-tree.ts`).
 */
export type Manifest = Head & { dirs: string[]; files: FileEntry[] };
type Head = {
  /** Of which moment the data are, by the clock of the machine that made it. */
  madeAt: Date;
  /** Major version of PostgreSQL, and what its programs were built for: `linux-x64`. */
  postgres: string;
  platform: string;
};
export type FileEntry = { path: string; bytes: number; sha256: string };

const kind = 'trellis backup, version 1 ';

export function manifestPath(backup: string): string {
  return join(backup, 'manifest');
}

/** Where the cluster of a backup lies. */
export function clusterOf(backup: string): string {
  return join(backup, 'cluster');
}

/** On the disk when this resolves. */
export async function writeManifest(backup: string, manifest: Manifest): Promise<void> {
  const { dirs, files, ...head } = manifest;
  const text = [
    kind + JSON.stringify(head),
    ...dirs.map((path) => `dir ${path}`),
    ...files.map(({ path, bytes, sha256 }) => `file ${sha256} ${bytes} ${path}`),
    '',
  ].join('\n');
  const file = await open(manifestPath(backup), 'wx', 0o600);
  try {
    await file.writeFile(`${text}sha256 ${sumOf(text)}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Throws where there is none, or one that was damaged. */
export async function readManifest(backup: string): Promise<Manifest> {
  const path = manifestPath(backup);
  const text = await readFile(path, 'utf8').catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== 'ENOENT') throw cause;
    throw new Error(`${backup} is no backup: it has no file "manifest"`);
  });
  const end = text.lastIndexOf('sha256 ');
  const body = text.slice(0, Math.max(end, 0));
  if (!body.startsWith(kind)) throw new Error(`${path} is no manifest of a backup that this version reads`);
  if (text.slice(end) !== `sha256 ${sumOf(body)}\n`)
    throw new Error(`${path} was changed: the backup is no good`);
  const [head = '', ...lines] = body.trimEnd().split('\n');
  const { madeAt, postgres, platform } = JSON.parse(head.slice(kind.length)) as Record<keyof Head, string>;
  const manifest: Manifest = { madeAt: new Date(madeAt), postgres, platform, dirs: [], files: [] };
  for (const line of lines) {
    const [, dir, sha256, bytes, path = ''] =
      /^(?:dir (.+)|file ([0-9a-f]{64}) (\d+) (.+))$/.exec(line) ?? [];
    if ((dir ?? path).split('/').some((part) => part === '' || part === '..'))
      throw new Error(`${backup} names "${line}", which is no file of a cluster`);
    if (dir !== undefined) manifest.dirs.push(dir);
    else manifest.files.push({ path, sha256: sha256 ?? '', bytes: Number(bytes) });
  }
  return manifest;
}

function sumOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
