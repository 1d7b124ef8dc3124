/**
 * Files on disk: `<id>.json` has the metadata of a file, `<id>.bin` its content.
 *
 * It enforces the storage quota. The metadata of all files is in memory, but no content except that of the
 * current request. Both files are written under a temporary name and then renamed.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { quotaExceeded } from './errors.ts';

/** The metadata of a file. Times are milliseconds since 1970. */
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
  /** The OAuth client that created it; `drive.file` is limited to the files of the client. */
  readonly clientId?: string;
  /** Absent for files without content, such as folders. */
  readonly content?: { readonly sizeBytes: number; readonly md5: string; readonly sha256: string };
}

/** The limits of the stored files. */
export interface StorageQuota {
  readonly files: number;
  readonly bytes: number;
}

export type FileStore = ReturnType<typeof createFileStore>;

/** A store in `dataDir`, which is created with the first file. */
export function createFileStore(dataDir: string, quota: StorageQuota) {
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

  /** Replaces the metadata of a file and keeps its content. Throws 403 if the quota is exhausted. */
  async function put(file: DriveFile): Promise<void> {
    const all = await reserve(file);
    await mkdir(dataDir, { recursive: true });
    const place = join(dataDir, `${file.id}.json`);
    await writeFile(`${place}.part`, JSON.stringify(file));
    await rename(`${place}.part`, place);
    all.set(file.id, file);
  }

  return {
    list: async () => [...(await files()).values()],
    put,
    /** Replaces metadata and content; the file at `path` is moved. */
    async putContent(file: DriveFile, path: string): Promise<DriveFile> {
      const whole = { ...file, content: await describeContent(path) };
      await reserve(whole);
      await rename(path, join(dataDir, `${file.id}.bin`));
      await put(whole);
      return whole;
    },
    /** Bytes `start` to `end`, both included. */
    async read(id: string, { start, end }: { start: number; end: number }): Promise<Buffer> {
      const handle = await open(join(dataDir, `${id}.bin`));
      try {
        const bytes = Buffer.alloc(end - start + 1);
        const { bytesRead } = await handle.read(bytes, 0, bytes.length, start);
        return bytes.subarray(0, bytesRead);
      } finally {
        await handle.close();
      }
    },
    async remove(id: string): Promise<void> {
      const all = await files();
      all.delete(id);
      for (const ending of ['json', 'bin']) await rm(join(dataDir, `${id}.${ending}`), { force: true });
    },
    /** A temporary path for an upload; remaining files are deleted at the next start. */
    async newPart(name: string): Promise<string> {
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
