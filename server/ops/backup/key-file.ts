import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { writeCommandAudit } from '../../activity/audit.ts';
import { isNewerThanData, pagesOfDataKeys, recordKeyFile, type WrappedKey } from '../../data-keys/store.ts';
import type { Db, Queryable, Tx } from '../../db/pool.ts';
import { type BackedUpKey, backedUpKey, listBackedUpKeys } from '../../environments/key-backup.ts';
import { proveEnvironmentKeys } from '../../environments/store.ts';
import { writeWhole } from '../../whole-file.ts';
import { listLostConnections } from './keys-restore.ts';

/**
 * The file of keys that goes with backups of the data: its format, and `trellis keys export`.
 *
 * A header line with the kind and the time, one line for each data key (`data <id> <base64>`, still wrapped), one line
 * for each valid API key (`api <JSON>`), and a line with the SHA-256 of all lines before it. An operator that keeps only
 * the newest file has no key of a connection that was deleted before, however many backups of the data are kept. Does
 * not own: its restore (`keys-restore.ts`).
 */
const kind = 'trellis keys, version 1, ';

type DataKeyEntry = Pick<WrappedKey, 'id' | 'wrapped'>;
/**
 * `madeAt`: by the clock of its database. `unread`: the number of API keys in a complete file that could not be read; they
 * do not prevent a restore of the data keys.
 */
export type KeyFile = { madeAt: Date; dataKeys: DataKeyEntry[]; apiKeys: BackedUpKey[]; unread: number };

/** Writes a file line by line; the file is complete once `end` has resolved. */
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

/** JSON in one line: escapes the line separators that JSON allows in strings. */
function lineOf(key: BackedUpKey): string {
  const escaped = (sign: string) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return JSON.stringify(key).replace(/[\u0085\u2028\u2029]/g, escaped);
}

/** The time of the file at this path, complete or not; undefined if it is missing or empty. */
export async function findMadeAt(path: string): Promise<Date | undefined> {
  await using file = await open(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  for await (const line of file?.readLines() ?? [])
    return readHead(line) ?? refuse(path, 'is not a file of keys');
  return undefined;
}

/** Throws if it is not a file of keys, or not complete. */
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

/** Throws unless `readKeyFile` returns this number of data keys, and every API key. Holds no key in memory. */
async function proveKeyFile(path: string, { dataKeys }: { dataKeys: number }): Promise<void> {
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
  if (unread > 0) refuse(path, `cannot be used: ${unread} API keys could not be read again`);
}

/** Passes on each key in order and returns the time of the file. `onApiKey` gets undefined for a key that is not valid. */
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
  await using file = await open(path);
  for await (const line of file.readLines()) {
    if (sum !== undefined) return refuse(path, 'continues after its end');
    if (madeAt === undefined) madeAt = readHead(line) ?? refuse(path, 'is not a file of keys');
    else if (line.startsWith('sha256 ')) sum = line.slice('sha256 '.length);
    else if (line.startsWith('api ')) onApiKey(readApiKey(line));
    else onDataKey(readDataKey(line) ?? refuse(path, 'holds a line that is not a key'));
    if (sum === undefined) hash.update(`${line}\n`);
  }
  if (madeAt === undefined) return refuse(path, 'is not a file of keys');
  if (sum !== hash.digest('hex')) return refuse(path, 'is incomplete or damaged');
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

const page = 5_000;

type Exported = { madeAt: Date; count: number; masterKeys: string[] };

/**
 * Writes the keys of one snapshot, replacing the file, and returns the number of data keys and the master keys that open
 * them. The old file is replaced only after the new one is on the disk and was read again.
 *
 * The old file may be the only one with these keys. So the export throws if the database has lost keys or has none, and if
 * the old file is later than the data: then the data are a backup without its keys, or another database. One export of a
 * database runs at a time, so the file of the later one stays. Takes two connections.
 */
export async function exportKeys(db: Db, path: string): Promise<Exported> {
  return db.transaction(async (tx) => {
    await tx.query(`select pg_advisory_xact_lock(hashtextextended('file of keys', 0))`);
    const before = await findMadeAt(path);
    if (before !== undefined && (await isNewerThanData(tx, before)))
      throw new Error(
        `${path} was written at ${before.toISOString()}, and this database has no record of that: the database was ` +
          'restored from an earlier backup and needs "trellis keys restore FILE" first, or the file belongs to another ' +
          'database. The file was not changed; if you do not need it, move it to another directory.',
      );
    return writeWhole(path, async (file, draft) => {
      const exported = await db.transaction((snapshot) => writeKeys(snapshot, file), 'snapshot');
      await proveKeyFile(draft, { dataKeys: exported.count });
      await db.transaction((noting) => recordExport(noting, exported));
      return exported;
    });
  });
}

async function writeKeys(tx: Queryable, file: FileHandle): Promise<Exported> {
  await proveWhole(tx);
  const [now] = await tx.query<{ at: Date }>('select now() as at');
  const madeAt = now!.at;
  const draft = await beginKeyFile(file, madeAt);
  const masterKeys = new Set<string>();
  let count = 0;
  for await (const keys of pagesOfDataKeys(tx, { size: page })) {
    for (const { masterKey } of keys) masterKeys.add(masterKey);
    count += keys.length;
    await draft.addDataKeys(keys);
  }
  if (count === 0) throw new Error('The database holds no data keys: there is nothing to write.');
  await draft.addApiKeys(await listBackedUpKeys(tx));
  await draft.end();
  return { madeAt, count, masterKeys: [...masterKeys].sort() };
}

/**
 * Runs before the file replaces the old one, so the database has a record of each file that exists; and after the snapshot,
 * so a backup made between the two counts as older and revokes what was revoked since. A restore only revokes, so such a
 * backup regains nothing.
 */
async function recordExport(tx: Tx, { madeAt, count, masterKeys }: Exported): Promise<void> {
  await recordKeyFile(tx, madeAt);
  await writeCommandAudit(tx, {
    action: 'data_keys.exported',
    target: madeAt.toISOString(),
    details: { data_keys: count, master_keys: masterKeys.join(',') },
  });
}

async function proveWhole(tx: Queryable): Promise<void> {
  await proveEnvironmentKeys(tx);
  const lost = await listLostConnections(tx);
  if (lost.length === 0) return;
  throw new Error(
    `The data keys of ${lost.length} connections are missing, the first is ${lost[0]?.name}. After a restore without ` +
      'data keys, run "trellis keys restore FILE" first.',
  );
}
