import { first, type Queryable, tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { DataKey, Vault } from '../vault.ts';

/** An environment owns everything else: keys, integrations, connections, events. */
export type Environment = { id: number; name: string };

/** Makes the environment, with a data key of its own, unless one of that name exists. Tells whether it was made. */
export async function ensureEnvironment(
  db: Queryable,
  { name, vault }: { name: string; vault: Vault },
): Promise<{ environment: Environment; created: boolean }> {
  const inserted = await db.run(
    tables
      .insertInto('environment')
      .values({ name, data_key: vault.createDataKey().wrapped })
      .onConflict((conflict) => conflict.column('name').doNothing())
      .returning(['id', 'name']),
  );
  const created = first(inserted);
  return created
    ? { environment: created, created: true }
    : { environment: await getEnvironment(db, name), created: false };
}

/** Throws `not_found` where no environment has the name. */
export async function getEnvironment(db: Queryable, name: string): Promise<Environment> {
  const found = first(
    await db.run(tables.selectFrom('environment').select(['id', 'name']).where('name', '=', name)),
  );
  if (found === undefined) throw new AppError('not_found', `There is no environment "${name}".`);
  return found;
}

/** The key that seals what belongs to the environment as a whole: the integrations' secrets. */
export async function environmentKey(
  db: Queryable,
  { environmentId, vault }: { environmentId: number; vault: Vault },
): Promise<DataKey> {
  const row = first(
    await db.run(tables.selectFrom('environment').select('data_key').where('id', '=', environmentId)),
  );
  if (row === undefined) throw new AppError('not_found', 'The environment was deleted.');
  return vault.unwrap(row.data_key);
}
