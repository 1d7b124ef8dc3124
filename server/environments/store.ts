import { destroyDataKey, insertDataKey } from '../data-keys/store.ts';
import { deleteInSteps } from '../db/delete-in-steps.ts';
import { type Db, isViolationOf, type Queryable, tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { DataKey, Vault } from '../vault.ts';

/** An environment owns keys, integrations, connections and events. */
export type Environment = { id: number; name: string };

/** Makes the environment with its data key, unless one with the name exists; `created` says whether it was made. */
export async function ensureEnvironment(
  db: Queryable,
  { name, vault }: { name: string; vault: Vault },
): Promise<{ environment: Environment; created: boolean }> {
  const known = await findEnvironment(db, name);
  if (known) return { environment: known, created: false };
  const dataKey = await insertDataKey(db, vault);
  const [created] = await db.run(
    tables
      .insertInto('environment')
      .values({ name, data_key: dataKey.id })
      .onConflict((conflict) => conflict.column('name').doNothing())
      .returning(['id', 'name']),
  );
  if (created) return { environment: created, created: true };
  await destroyDataKey(db, dataKey.id);
  return { environment: await getEnvironment(db, name), created: false };
}

/** Throws `not_found` if no environment has the name. */
export async function getEnvironment(db: Queryable, name: string): Promise<Environment> {
  const found = await findEnvironment(db, name);
  if (found === undefined) throw new AppError('not_found', `There is no environment "${name}".`);
  return found;
}

/** All environments, oldest first. */
export async function listEnvironments(db: Queryable): Promise<{ name: string; createdAt: Date }[]> {
  return db.query('select name, created_at as "createdAt" from environment order by id');
}

/** Throws `not_found`, or `environment_exists` if the new name is taken. */
export async function renameEnvironment(
  tx: Queryable,
  { from, to }: { from: string; to: string },
): Promise<{ name: string; createdAt: Date }> {
  try {
    const [renamed] = await tx.query<{ name: string; createdAt: Date }>(
      'update environment set name = $2 where name = $1 returning name, created_at as "createdAt"',
      [from, to],
    );
    if (renamed !== undefined) return renamed;
  } catch (error) {
    if (isViolationOf(error, 'environment_name_unique')) throw new AppError('environment_exists');
    throw error;
  }
  throw new AppError('not_found', `There is no environment "${from}".`);
}

/** Tables whose rows of an environment may be many: an event takes its deliveries along, a run its lines. */
const large = ['event', 'run', 'idempotent_request', 'connect_session', 'connection'];

/**
 * Deletes what an unused environment owns of large tables, in steps, so that `deleteEnvironment` has little left to do. The
 * steps delete nothing once it has a connection. Throws what `deleteEnvironment` throws.
 */
export async function clearEnvironment(db: Db, name: string): Promise<void> {
  const id = await db.transaction((tx) => lockUnused(tx, name));
  for (const table of large) {
    await deleteInSteps(db, {
      table,
      where: `environment_id = $1
        and not exists (select from connection where environment_id = $1 and deleted_at is null)`,
      values: [id],
    });
  }
}

/**
 * Deletes the environment and all that it owns. Throws `not_found`, or `environment_in_use` if it has connections or grants
 * to revoke.
 */
export async function deleteEnvironment(tx: Queryable, name: string): Promise<void> {
  await tx.query('delete from environment where id = $1', [await lockUnused(tx, name)]);
}

async function lockUnused(tx: Queryable, name: string): Promise<number> {
  // The lock prevents new connections: each one locks its environment's row.
  const [found] = await tx.query<{ id: number }>('select id from environment where name = $1 for update', [
    name,
  ]);
  if (found === undefined) throw new AppError('not_found', `There is no environment "${name}".`);
  const connected = await tx.query(
    'select from connection where environment_id = $1 and deleted_at is null limit 1',
    [found.id],
  );
  if (connected.length > 0) throw new AppError('environment_in_use');
  const waiting = await tx.query('select from revocation where environment_id = $1 limit 1', [found.id]);
  if (waiting.length > 0) {
    throw new AppError(
      'environment_in_use',
      'Grants of deleted connections are not revoked at their provider yet. Try again when they are revoked or given up.',
    );
  }
  return found.id;
}

async function findEnvironment(db: Queryable, name: string): Promise<Environment | undefined> {
  const [found] = await db.run(
    tables.selectFrom('environment').select(['id', 'name']).where('name', '=', name),
  );
  return found;
}

/** Environments without their data key, as in a database that was restored without its keys. */
export async function listKeyless(db: Queryable): Promise<string[]> {
  const lost = await db.query<{ name: string }>(
    `select name
     from environment
     where not exists (select from data_key where data_key.id = environment.data_key)
     order by id`,
  );
  return lost.map(({ name }) => name);
}

/**
 * Throws if an environment has lost its data key: a service that cannot read its data must not start, and no file of keys may
 * be written.
 */
export async function proveEnvironmentKeys(db: Queryable): Promise<void> {
  const lost = await listKeyless(db);
  if (lost.length === 0) return;
  throw new Error(
    `The data key of ${lost.map((name) => `"${name}"`).join(', ')} is missing. After a restore without ` +
      'data keys, run "trellis keys restore FILE" first.',
  );
}

/** The key that seals the environment's own data: the integrations' secrets. */
export async function environmentKey(
  db: Queryable,
  { environmentId, vault }: { environmentId: number; vault: Vault },
): Promise<DataKey> {
  const [row] = await db.run(
    tables
      .selectFrom('environment')
      .innerJoin('data_key', 'data_key.id', 'environment.data_key')
      .select('data_key.wrapped')
      .where('environment.id', '=', environmentId),
  );
  if (row === undefined) throw new AppError('not_found', 'The environment was deleted.');
  return vault.unwrap(row.wrapped);
}
