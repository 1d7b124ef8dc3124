import type { MasterKey } from '../config/config.ts';
import { first, type Queryable, type Tx } from '../db/pool.ts';
import { type DataKey, proofOf, type Vault } from '../vault.ts';

/**
 * Wrapped data keys.
 *
 * Owns: the tables `data_key` and `master_key`, which master key may wrap (`master-keys.ts`), rewrapping
 * (`rotate.ts`). Does not own: cryptography (`vault.ts`), what a key belongs to (`connections/`, `environments/`), the
 * file of keys that goes with a backup (`cli/key-file.ts`).
 *
 * A key goes when what it belongs to goes, in the same transaction: triggers see to it.
 */

/**
 * A new data key, stored, wrapped by the first master key of the ring that is not retired. A node that was not told of
 * a rotation yet therefore wraps with the key that came out of it. Throws where all are retired.
 */
export async function insertDataKey(tx: Queryable, vault: Vault): Promise<{ id: string; key: DataKey }> {
  for (const master of vault.masterKeys) {
    const { key, wrapped } = vault.createDataKey(master);
    let id = await insert(tx, { master, wrapped });
    if (id === undefined) {
      await registerMasterKey(tx, master);
      // Also where somebody else has just noted it, for whose commit that waited.
      id = await insert(tx, { master, wrapped });
    }
    if (id !== undefined) return { id, key };
  }
  throw new Error('All master keys of TRELLIS_ENCRYPTION_KEYS are retired.');
}

/** Undefined where the master key is retired or unknown. It is not retired before the transaction ends. */
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

/** Notes a master key that is going to wrap, unless it was noted before. */
export async function registerMasterKey(db: Queryable, master: MasterKey): Promise<void> {
  await db.query(
    `insert into master_key (id, proof)
     values ($1, $2)
     on conflict do nothing`,
    [master.id, proofOf(master)],
  );
}

/** For a key that was stored and came to belong to nothing. */
export async function destroyDataKey(db: Queryable, id: string): Promise<void> {
  await db.query('delete from data_key where id = $1', [id]);
}

export type WrappedKey = { id: string; masterKey: string; wrapped: Buffer };

/** All data keys in pages, or those that one master key wraps. Each page is read when it is asked for. */
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

/** Stores these keys in the place of all that the database holds, wrapped by the first master key of the ring. */
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
 * Stores these keys beside those that the database holds, which stand where both have one; all are wrapped by the first
 * master key of the ring afterwards. Nobody else makes or destroys a data key before the transaction ends.
 */
export async function addDataKeys(
  tx: Tx,
  { keys, vault }: { keys: readonly Pick<WrappedKey, 'id' | 'wrapped'>[]; vault: Vault },
): Promise<void> {
  await tx.query('lock table data_key in exclusive mode');
  const all = new Map(keys.map((key) => [key.id, key]));
  for await (const held of pagesOfDataKeys(tx, { size: 5_000 })) for (const key of held) all.set(key.id, key);
  await replaceDataKeys(tx, { keys: [...all.values()], vault });
}
