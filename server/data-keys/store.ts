/**
 * Wrapped data keys.
 *
 * Owns: the tables `data_key` and `key_file`; with `master-keys.ts` the table `master_key` and which key may wrap;
 * with `rotate.ts` the rotation. Does not own: cryptography (`vault.ts`), the owners of data keys (`connections/`,
 * `environments/`), the format of the key file that belongs to a backup (`ops/backup/key-file.ts`).
 *
 * Triggers delete a data key together with its owner, in the same transaction.
 */
import type { MasterKey } from '../config/config.ts';
import { first, type Queryable, type Tx } from '../db/pool.ts';
import { type DataKey, proofOf, type Vault } from '../vault.ts';

/**
 * Stores a new data key, wrapped by the first master key of the ring that is not retired. So after a rotation, a node
 * with the old settings wraps with the new key. Throws if all keys are retired.
 */
export async function insertDataKey(tx: Queryable, vault: Vault): Promise<{ id: string; key: DataKey }> {
  for (const master of vault.masterKeys) {
    const { key, wrapped } = vault.createDataKey(master);
    let id = await insert(tx, { master, wrapped });
    if (id === undefined) {
      await registerMasterKey(tx, master);
      // Another transaction may have registered it first; the statement waited for its commit.
      id = await insert(tx, { master, wrapped });
    }
    if (id !== undefined) return { id, key };
  }
  throw new Error('All master keys of TRELLIS_ENCRYPTION_KEYS are retired.');
}

/** Undefined if the master key is retired or unknown. The key cannot be retired before the transaction ends. */
async function insert(
  tx: Queryable,
  { master, wrapped }: { master: MasterKey; wrapped: Buffer },
): Promise<string | undefined> {
  const inserted = await tx.query<{ id: string }>(
    `insert into data_key (master_key, wrapped)
     select id, $2
     from master_key
     where id = $1 and retired_at is null
     for key share
     returning id`,
    [master.id, wrapped],
  );
  return first(inserted)?.id;
}

/** Registers a master key before it wraps its first data key. */
export async function registerMasterKey(db: Queryable, master: MasterKey): Promise<void> {
  await db.query(
    `insert into master_key (id, proof)
     values ($1, $2)
     on conflict do nothing`,
    [master.id, proofOf(master)],
  );
}

/** Deletes a stored key that got no owner. */
export async function destroyDataKey(db: Queryable, id: string): Promise<void> {
  await db.query('delete from data_key where id = $1', [id]);
}

export type WrappedKey = { id: string; masterKey: string; wrapped: Buffer };

/** All data keys in pages, or those of one master key. Reads each page when the iteration reaches it. */
export async function* pagesOfDataKeys(
  db: Queryable,
  { size, masterKey }: { size: number; masterKey?: string },
): AsyncGenerator<WrappedKey[]> {
  for (let after = '00000000-0000-0000-0000-000000000000'; ; ) {
    const rows = await db.query<WrappedKey>(
      `select id, master_key as "masterKey", wrapped
       from data_key
       where id > $1 ${masterKey === undefined ? '' : 'and master_key = $3'}
       order by id
       limit $2`,
      [after, size, ...(masterKey === undefined ? [] : [masterKey])],
    );
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last.id;
    yield rows;
  }
}

/** Replaces all stored keys with these, wrapped by the first master key of the ring. */
export async function replaceDataKeys(
  tx: Queryable,
  { keys, vault }: { keys: readonly Pick<WrappedKey, 'id' | 'wrapped'>[]; vault: Vault },
): Promise<void> {
  const page = 5_000;
  await tx.query('delete from data_key');
  for (let from = 0; from < keys.length; from += page) {
    const some = keys.slice(from, from + page);
    await tx.query(
      `insert into data_key (id, master_key, wrapped)
       select id, $1, wrapped
       from unnest($2::uuid[], $3::bytea[]) as given (id, wrapped)`,
      [vault.masterKeys[0].id, some.map(({ id }) => id), some.map(({ wrapped }) => vault.rewrap(wrapped))],
    );
  }
}

/**
 * Adds these keys to the stored ones; a stored key wins over one of the same ID. Then the first master key of the
 * ring wraps all of them. No other transaction creates or deletes a data key before this one ends.
 */
export async function addDataKeys(
  tx: Tx,
  { keys, vault }: { keys: readonly Pick<WrappedKey, 'id' | 'wrapped'>[]; vault: Vault },
): Promise<void> {
  await tx.query('lock table data_key in exclusive mode');
  const all = new Map(keys.map((key) => [key.id, key]));
  for await (const stored of pagesOfDataKeys(tx, { size: 5_000 }))
    for (const key of stored) all.set(key.id, key);
  await replaceDataKeys(tx, { keys: [...all.values()], vault });
}

/**
 * Records for a year that a key file of this time was written from this database, or restored into it. Neither a file
 * nor the database alone shows which of them is older.
 */
export async function recordKeyFile(tx: Queryable, madeAt: Date): Promise<void> {
  await tx.query('insert into key_file (made_at) values ($1) on conflict do nothing', [madeAt]);
  await tx.query(`delete from key_file where made_at < $1::timestamptz - interval '1 year'`, [madeAt]);
}

/**
 * Whether this database continues from the time of this key file. Then a key that the file lacks was deleted from the
 * database, or created after the file. Another file, however recent, does not prove that.
 */
export async function continuesFrom(db: Queryable, madeAt: Date): Promise<boolean> {
  const known = await db.query('select from key_file where made_at = $1', [madeAt]);
  return known.length > 0;
}

/** Whether a key file is newer than the data, as after the restore of a backup, or belongs to another database. */
export async function isNewerThanData(db: Queryable, madeAt: Date): Promise<boolean> {
  const known = await db.query('select from key_file where made_at >= $1 limit 1', [madeAt]);
  return known.length === 0;
}
