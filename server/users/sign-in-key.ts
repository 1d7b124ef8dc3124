import { destroyDataKey, insertDataKey } from '../data-keys/store.ts';
import { first, type Queryable } from '../db/pool.ts';
import type { DataKey, Vault } from '../vault.ts';

/**
 * What signs cookies and seals second factors: a subkey of a data key of its own, so that it is the same on every node,
 * stays through a rotation of the master keys, and never stands in the database. Throws where the data key was lost, as in
 * a database that was restored without its keys.
 */
export async function signInSecret(db: Queryable, vault: Vault): Promise<string> {
  const key = (await findKey(db, vault)) ?? (await makeKey(db, vault));
  return key.subkey('sign-in').export().toString('base64');
}

async function makeKey(db: Queryable, vault: Vault): Promise<DataKey> {
  const { id, key } = await insertDataKey(db, vault);
  const made = await db.query(
    `insert into sign_in_key (data_key)
     values ($1)
     on conflict do nothing
     returning data_key`,
    [id],
  );
  if (made.length > 0) return key;
  // Another node was faster.
  await destroyDataKey(db, id);
  const found = await findKey(db, vault);
  if (found === undefined) throw new Error('The key of the sign-in was removed while it was made.');
  return found;
}

async function findKey(db: Queryable, vault: Vault): Promise<DataKey | undefined> {
  const row = first(
    await db.query<{ wrapped: Buffer | null }>(
      `select wrapped
       from sign_in_key
       left join data_key on data_key.id = sign_in_key.data_key`,
    ),
  );
  if (row === undefined) return undefined;
  if (row.wrapped !== null) return vault.unwrap(row.wrapped);
  throw new Error(
    'The data key of the sign-in is missing. A database that was restored without its data keys needs ' +
      '"trellis keys restore FILE" first.',
  );
}
