import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import type { WrappedKey } from '../data-keys/store.ts';
import { type BackedUpKey, backedUpKey } from '../environments/key-backup.ts';

/**
 * The file of keys that goes with backups of the data: its format.
 *
 * A header line with the kind and the moment, one line for each data key (`data <id> <base64>`, still wrapped), one line
 * for each valid API key (`api <JSON>`), and a line with the SHA-256 of all lines before it. An operator that keeps only
 * the newest file has no key of a connection that was deleted before, however many backups of the data are kept. Does
 * not own: the content of the file (`keys-export.ts`), its restore (`keys-restore.ts`).
 */
const kind = 'trellis keys, version 1, ';

type DataKeyEntry = Pick<WrappedKey, 'id' | 'wrapped'>;
/**
 * `madeAt`: by the clock of the database it was made from. `unread`: how many API keys of a whole file could not be read;
 * data keys are worth more than to be lost for one of those.
 */
export type KeyFile = { madeAt: Date; dataKeys: DataKeyEntry[]; apiKeys: BackedUpKey[]; unread: number };

/** Writes a file line by line; it is whole once `end` has resolved. */
export async function beginKeyFile(
  file: FileHandle,
  madeAt: Date,
): Promise<{
  addDataKeys(keys: readonly DataKeyEntry[]): Promise<void>;
  addApiKeys(keys: readonly BackedUpKey[]): Promise<void>;
  end(): Promise<void>;
}> {
  const hash = createHash('sha256');
  const write = async (text: string) => {
    hash.update(text);
    await file.writeFile(text);
  };
  await write(`${kind}${madeAt.toISOString()}\n`);
  return {
    addDataKeys: (keys) =>
      write(keys.map(({ id, wrapped }) => `data ${id} ${wrapped.toString('base64')}\n`).join('')),
    addApiKeys: (keys) => write(keys.map((key) => `api ${lineOf(key)}\n`).join('')),
    end: () => file.writeFile(`sha256 ${hash.digest('hex')}\n`),
  };
}

/** JSON in which no reader of lines finds an end: it lets some stand that a name may hold. */
function lineOf(key: BackedUpKey): string {
  const escaped = (sign: string) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return JSON.stringify(key).replace(/[\u0085\u2028\u2029]/g, escaped);
}

/** Of which moment the file at this place is, whole or not; undefined where there is none, or an empty one. */
export async function findMadeAt(path: string): Promise<Date | undefined> {
  const file = await open(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
  if (file === undefined) return undefined;
  try {
    for await (const line of file.readLines()) return readHead(line) ?? refuse(path, 'is no file of keys');
    return undefined;
  } finally {
    await file.close();
  }
}

/** Throws where it is no such file, or not whole. */
export async function readKeyFile(path: string): Promise<KeyFile> {
  const dataKeys: DataKeyEntry[] = [];
  const apiKeys: BackedUpKey[] = [];
  let unread = 0;
  const madeAt = await scan(path, {
    onDataKey: (key) => dataKeys.push(key),
    onApiKey(key) {
      if (key === undefined) unread += 1;
      else apiKeys.push(key);
    },
  });
  return { madeAt, dataKeys, apiKeys, unread };
}

/** Throws unless `readKeyFile` would give back this many data keys, and every API key. Holds none of them in memory. */
export async function proveKeyFile(path: string, { dataKeys }: { dataKeys: number }): Promise<void> {
  let [read, unread] = [0, 0];
  await scan(path, {
    onDataKey() {
      read += 1;
    },
    onApiKey(key) {
      if (key === undefined) unread += 1;
    },
  });
  if (read !== dataKeys) refuse(path, `holds ${read} data keys, not ${dataKeys}`);
  if (unread > 0) refuse(path, `would be of no use: ${unread} API keys could not be read again`);
}

/** Hands over each key in its order; of which moment the file is. `onApiKey` gets undefined for what is none. */
async function scan(
  path: string,
  {
    onDataKey,
    onApiKey,
  }: { onDataKey: (key: DataKeyEntry) => void; onApiKey: (key: BackedUpKey | undefined) => void },
): Promise<Date> {
  const hash = createHash('sha256');
  let madeAt: Date | undefined;
  let sum: string | undefined;
  const file = await open(path);
  try {
    for await (const line of file.readLines()) {
      if (sum !== undefined) return refuse(path, 'goes on after its end');
      if (madeAt === undefined) madeAt = readHead(line) ?? refuse(path, 'is no file of keys');
      else if (line.startsWith('sha256 ')) sum = line.slice('sha256 '.length);
      else if (line.startsWith('api ')) onApiKey(readApiKey(line));
      else onDataKey(readDataKey(line) ?? refuse(path, 'holds a line that is no key'));
      if (sum === undefined) hash.update(`${line}\n`);
    }
  } finally {
    await file.close();
  }
  if (madeAt === undefined) return refuse(path, 'is no file of keys');
  if (sum !== hash.digest('hex')) return refuse(path, 'is not whole');
  return madeAt;
}

function readHead(line: string): Date | undefined {
  const at = new Date(line.startsWith(kind) ? line.slice(kind.length) : Number.NaN);
  return Number.isNaN(at.getTime()) ? undefined : at;
}

function readDataKey(line: string): DataKeyEntry | undefined {
  const [, id, base64] = /^data ([0-9a-f-]{36}) ([A-Za-z0-9+/]+=*)$/.exec(line) ?? [];
  return id === undefined || base64 === undefined
    ? undefined
    : { id, wrapped: Buffer.from(base64, 'base64') };
}

function readApiKey(line: string): BackedUpKey | undefined {
  try {
    return backedUpKey.parse(JSON.parse(line.slice('api '.length)));
  } catch {
    return undefined;
  }
}

function refuse(path: string, fault: string): never {
  throw new Error(`${path} ${fault}`);
}
