/**
 * Variables for an environment's own code: names and values, sealed with the environment's data key.
 *
 * Owns: the table `environment_variable`. Does not own: access to values (`variable-routes.ts`).
 */
import type { Queryable, Tx } from '../db/pool.ts';
import { fieldError } from '../errors.ts';
import type { Vault } from '../vault.ts';
import { environmentKey } from './store.ts';

type Variable = { name: string; value: string };
/** Without a value the stored one stays. */
type GivenVariable = { name: string; value?: string | null | undefined };

const context = 'environment variable';

/** The names, in their order; nothing is opened. */
export async function listNames(db: Queryable, environmentId: number): Promise<string[]> {
  const rows = await db.query<{ name: string }>(
    'select name from environment_variable where environment_id = $1 order by name collate "C"',
    [environmentId],
  );
  return rows.map(({ name }) => name);
}

/** In the order of their names. */
export async function listVariables(
  db: Queryable,
  { environmentId, vault }: { environmentId: number; vault: Vault },
): Promise<Variable[]> {
  const rows = await db.query<{ name: string; value: Buffer }>(
    'select name, value from environment_variable where environment_id = $1 order by name collate "C"',
    [environmentId],
  );
  if (rows.length === 0) return [];
  const key = await environmentKey(db, { environmentId, vault });
  return rows.map(({ name, value }) => ({ name, value: key.open(value, context).toString() }));
}

/**
 * Sets and removes these variables and leaves all others, so parallel changes of different variables are kept. Removing a
 * name that is not stored has no effect. Throws `invalid_body` if there would be more than `max`. Returns the names that
 * were removed.
 */
export async function changeVariables(
  tx: Tx,
  given: {
    environmentId: number;
    vault: Vault;
    set: readonly Variable[];
    remove: readonly string[];
    max: number;
  },
): Promise<{ removed: string[] }> {
  const { environmentId, remove, max } = given;
  await lockVariables(tx, environmentId);
  const known = await listNames(tx, environmentId);
  const kept = known.filter((name) => !remove.includes(name));
  if (new Set([...kept, ...given.set.map(({ name }) => name)]).size > max) {
    throw fieldError('invalid_body', ['set'], `would result in more than ${max} variables`);
  }
  const removed = known.filter((name) => remove.includes(name));
  await removeVariables(tx, environmentId, removed);
  await setVariables(tx, given);
  return { removed };
}

/**
 * Replaces all variables. Parallel calls run one after another, and the last one stays. Throws `invalid_body` for a variable
 * without a value that has no stored one. Returns the change of each name.
 */
export async function replaceVariables(
  tx: Tx,
  { environmentId, vault, given }: { environmentId: number; vault: Vault; given: readonly GivenVariable[] },
): Promise<{ set: string[]; removed: string[] }> {
  await lockVariables(tx, environmentId);
  const known = await listNames(tx, environmentId);
  const without = given.findIndex(({ name, value }) => typeof value !== 'string' && !known.includes(name));
  if (without >= 0) {
    throw fieldError(
      'invalid_body',
      ['variables', without, 'value'],
      'is missing: no variable of this name is stored',
    );
  }
  const removed = known.filter((name) => !given.some((variable) => variable.name === name));
  await removeVariables(tx, environmentId, removed);
  const set = given.filter((variable): variable is Variable => typeof variable.value === 'string');
  await setVariables(tx, { environmentId, vault, set });
  return { set: set.map(({ name }) => name), removed };
}

/** The lock on the environment's row orders writers of its variables, and keeps the environment. */
async function lockVariables(tx: Tx, environmentId: number): Promise<void> {
  await tx.query('select from environment where id = $1 for no key update', [environmentId]);
}

async function removeVariables(tx: Tx, environmentId: number, names: string[]): Promise<void> {
  await tx.query('delete from environment_variable where environment_id = $1 and name = any($2)', [
    environmentId,
    names,
  ]);
}

async function setVariables(
  tx: Tx,
  { environmentId, vault, set }: { environmentId: number; vault: Vault; set: readonly Variable[] },
): Promise<void> {
  const key = await environmentKey(tx, { environmentId, vault });
  await tx.query(
    `insert into environment_variable (environment_id, name, value)
     select $1, name, value
     from unnest($2::text[], $3::bytea[]) as given (name, value)
     on conflict (environment_id, name) do update set value = excluded.value`,
    [
      environmentId,
      set.map(({ name }) => name),
      key.sealMany(set.map(({ value }) => ({ plain: value, context }))),
    ],
  );
}
