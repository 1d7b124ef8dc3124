/**
 * What an environment's own code is told: names and values, sealed with the environment's data key.
 *
 * Owns: the table `environment_variable`. Does not own: who may read values (`variable-routes.ts`).
 */
import type { Queryable, Tx } from '../db/pool.ts';
import { fieldError } from '../errors.ts';
import type { Vault } from '../vault.ts';
import { environmentKey } from './store.ts';

export type Variable = { name: string; value: string };
/** Without a value the one that is stored stays. */
export type GivenVariable = { name: string; value?: string | null | undefined };

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
 * Puts these in the place of all there were. Of many at once each is whole, and the last one stays. Throws `invalid_body`
 * where one without a value has none stored either. Answers what became of which names.
 */
export async function replaceVariables(
  tx: Tx,
  { environmentId, vault, given }: { environmentId: number; vault: Vault; given: readonly GivenVariable[] },
): Promise<{ set: string[]; removed: string[] }> {
  // Its row orders them; nobody deletes it meanwhile.
  await tx.query('select from environment where id = $1 for no key update', [environmentId]);
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
  await tx.query('delete from environment_variable where environment_id = $1 and name = any($2)', [
    environmentId,
    removed,
  ]);
  const set = given.filter((variable): variable is Variable => typeof variable.value === 'string');
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
  return { set: set.map(({ name }) => name), removed };
}
