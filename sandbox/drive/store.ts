/**
 * Files on disk: `<id>.json` says what a file is, `<id>.bin` holds its bytes.
 *
 * Owns: files and their storage quota. The metadata of each file is in memory; its bytes never are, except those of the
 * current request. Both files are written under a temporary name and then renamed.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { quotaExceeded } from './errors.ts';

/** What a file is, its bytes aside. Times are milliseconds since 1970. */
export interface DriveFile {
  readonly id: string;
  readonly name: string;
  readonly mimeType: string;
  readonly description?: string;
  readonly starred: boolean;
  readonly trashed: boolean;
  readonly parents: readonly string[];
  readonly properties?: Readonly<Record<string, string>>;
  readonly appProperties?: Readonly<Record<string, string>>;
  readonly createdAt: number;
  readonly modifiedAt: number;
  readonly version: number;
  readonly owner: { readonly email: string; readonly sub: string };
  /** The OAuth client that made it: all that `drive.file` may touch. */
  readonly clientId?: string;
  /** Absent for what has no bytes, such as folders. */
  readonly content?: { readonly sizeBytes: number; readonly md5: string; readonly sha256: string };
}

/** How much a sandbox keeps. */
export interface StorageQuota {
  readonly files: number;
  readonly bytes: number;
}

export interface FileStore {
  find(id: string): Promise<DriveFile | undefined>;
  list(): Promise<DriveFile[]>;
  /** Replaces the metadata of a file and keeps its bytes. Throws 403 when the quota is used up. */
  put(file: DriveFile): Promise<void>;
  /** The same with new bytes, taken from the file at `path`, which is moved. */
  putContent(file: DriveFile, path: string): Promise<DriveFile>;
  /** Bytes `start` to `end`, both included. */
  read(id: string, range: { start: number; end: number }): Promise<Buffer>;
  remove(id: string): Promise<void>;
  /** A path for bytes on their way in; what is left there is removed at the next start. */
  newPart(name: string): Promise<string>;
}

/** A store over `dataDir`, which is made when first written to. */
export function createFileStore(dataDir: string, quota: StorageQuota): FileStore {
  let loading: Promise<Map<string, DriveFile>> | undefined;
  const files = () => {
    loading ??= load(dataDir);
    return loading;
  };

  async function reserve(file: DriveFile): Promise<Map<string, DriveFile>> {
    const all = await files();
    const others = [...all.values()].filter(({ id }) => id !== file.id);
    const sizeBytes = [...others, file].reduce((sum, { content }) => sum + (content?.sizeBytes ?? 0), 0);
    if (others.length >= quota.files || sizeBytes > quota.bytes) throw quotaExceeded();
    return all;
  }

  async function put(file: DriveFile): Promise<void> {
    const all = await reserve(file);
    await mkdir(dataDir, { recursive: true });
    const place = join(dataDir, `${file.id}.json`);
    await writeFile(`${place}.part`, JSON.stringify(file));
    await rename(`${place}.part`, place);
    all.set(file.id, file);
  }

  return {
    find: async (id) => (await files()).get(id),
    list: async () => [...(await files()).values()],
    put,
    async putContent(file, path) {
      const whole = { ...file, content: await describeContent(path) };
      await reserve(whole);
      await rename(path, join(dataDir, `${file.id}.bin`));
      await put(whole);
      return whole;
    },
    async read(id, { start, end }) {
      const handle = await open(join(dataDir, `${id}.bin`));
      try {
        const bytes = Buffer.alloc(end - start + 1);
        const { bytesRead } = await handle.read(bytes, 0, bytes.length, start);
        return bytes.subarray(0, bytesRead);
      } finally {
        await handle.close();
      }
    },
    async remove(id) {
      const all = await files();
      all.delete(id);
      for (const ending of ['json', 'bin']) await rm(join(dataDir, `${id}.${ending}`), { force: true });
    },
    async newPart(name) {
      await files();
      await mkdir(dataDir, { recursive: true });
      return join(dataDir, `${name}.part`);
    },
  };
}

async function load(dataDir: string): Promise<Map<string, DriveFile>> {
  const names = await readdir(dataDir).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  const files = new Map<string, DriveFile>();
  for (const name of names) {
    if (name.endsWith('.part')) await rm(join(dataDir, name), { force: true });
    if (!name.endsWith('.json')) continue;
    const file = JSON.parse(await readFile(join(dataDir, name), 'utf8')) as DriveFile;
    files.set(file.id, file);
  }
  return files;
}

async function describeContent(path: string): Promise<NonNullable<DriveFile['content']>> {
  const md5 = createHash('md5');
  const sha256 = createHash('sha256');
  for await (const chunk of createReadStream(path) as AsyncIterable<Buffer>) {
    md5.update(chunk);
    sha256.update(chunk);
  }
  const { size } = await stat(path);
  return { sizeBytes: size, md5: md5.digest('hex'), sha256: sha256.digest('hex') };
}
