import { createHash } from 'node:crypto';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { ConfigError } from '../config.ts';
import type { Db, Queryable } from '../db/pool.ts';
import type { Vault } from '../vault.ts';

/**
 * The file of wrapped data keys that goes with backups of the data.
 *
 * A line that says what it is, a line a key (`id base64`), a line with the SHA-256 of all before it. Whoever keeps only
 * the newest one has no key of a connection that was deleted before, however many backups of the data are kept.
 */
const kind = 'trellis data keys';
const ownerOnly = 0o600;
const page = 5_000;

export type KeyEntry = { id: string; wrapped: Buffer };
/** `madeAt`: by the clock of the database it was made from. */
export type KeyFile = { madeAt: Date; entries: KeyEntry[] };

/**
 * Writes all data keys of one moment, still wrapped, in place of what the file held before; how many. All or nothing:
 * until the new file is on the disk, the old one stands.
 */
export async function writeKeyFile(db: Db, path: string): Promise<number> {
  const draft = `${path}.${process.pid}.draft`;
  const file = await open(draft, 'wx', ownerOnly);
  try {
    const count = await db.transaction((tx) => writeAll(tx, file), 'snapshot');
    await file.sync();
    await file.close();
    await rename(draft, path);
    const folder = await open(dirname(path));
    await folder.sync().finally(() => folder.close());
    return count;
  } catch (error) {
    await file.close();
    await rm(draft, { force: true });
    throw error;
  }
}

async function writeAll(tx: Queryable, file: FileHandle): Promise<number> {
  const hash = createHash('sha256');
  const write = async (text: string) => {
    hash.update(text);
    await file.write(text);
  };
  const [now] = await tx.query<{ at: Date }>('select now() as at');
  await write(`${kind}, version 1, ${now?.at.toISOString()}\n`);
  let count = 0;
  let after = '00000000-0000-0000-0000-000000000000';
  for (;;) {
    const rows = await tx.query<KeyEntry>(
      'select id, wrapped from data_key where id > $1 order by id limit $2',
      [after, page],
    );
    const last = rows.at(-1);
    if (last === undefined) break;
    after = last.id;
    count += rows.length;
    await write(rows.map(({ id, wrapped }) => `${id} ${wrapped.toString('base64')}\n`).join(''));
  }
  await file.write(`sha256 ${hash.digest('hex')}\n`);
  return count;
}

/** Throws ConfigError where it is no such file, or not whole. */
export async function readKeyFile(path: string): Promise<KeyFile> {
  const refuse = (fault: string): never => {
    throw new ConfigError([`${path}: ${fault}`]);
  };
  const hash = createHash('sha256');
  const entries: KeyEntry[] = [];
  let madeAt: Date | undefined;
  let sum: string | undefined;
  const file = await open(path).catch((error: Error) => refuse(error.message));
  try {
    for await (const line of file.readLines()) {
      if (madeAt === undefined) {
        const [, at] = new RegExp(`^${kind}, version 1, (\\S+Z)$`).exec(line) ?? [];
        if (at === undefined) return refuse('is no file of data keys');
        madeAt = new Date(at);
      } else if (line.startsWith('sha256 ')) {
        sum = line.slice('sha256 '.length);
        continue;
      } else {
        const [, id, base64] = /^([0-9a-f-]{36}) ([A-Za-z0-9+/]+=*)$/.exec(line) ?? [];
        if (id === undefined || base64 === undefined) return refuse('holds a line that is no key');
        entries.push({ id, wrapped: Buffer.from(base64, 'base64') });
      }
      hash.update(`${line}\n`);
    }
  } finally {
    await file.close();
  }
  if (madeAt === undefined || sum !== hash.digest('hex')) return refuse('is not whole');
  return { madeAt, entries };
}

/** Stores these keys in the place of all that the database holds, wrapped by the first master key of the ring. */
export async function replaceDataKeys(
  tx: Queryable,
  { entries, vault }: { entries: readonly KeyEntry[]; vault: Vault },
): Promise<void> {
  await tx.query('delete from data_key');
  for (let from = 0; from < entries.length; from += page) {
    const some = entries.slice(from, from + page);
    await tx.query(
      `insert into data_key (id, master_key, wrapped)
       select id, $1, wrapped
       from unnest($2::uuid[], $3::bytea[]) as given (id, wrapped)`,
      [vault.masterKeys[0].id, some.map(({ id }) => id), some.map(({ wrapped }) => vault.rewrap(wrapped))],
    );
  }
}
