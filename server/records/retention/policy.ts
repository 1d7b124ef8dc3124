import { type Db, first, type Queryable, tables } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';

/**
 * The ages at which payloads and tombstones are removed, counted from a record's `last_modified_at`. Null means never.
 */
export type RetentionPolicy = {
  pruneAfterDays: number | null;
  removeTombstonesAfterDays: number | null;
  /** Whether retention keeps payloads that the slowest consumer of the dataset has not acknowledged. */
  waitForConsumers: boolean;
};

/** The integration of a policy; undefined for all integrations of the environment without a policy of their own. */
type PolicyScope = { environmentId: number; integrationKey: string | undefined };

export type ScopedPolicy = RetentionPolicy & { integrationKey: string | null; updatedAt: Date };

/** Lists all policies of an environment, starting with the policy of the environment itself. */
export async function listPolicies(q: Queryable, environmentId: number): Promise<ScopedPolicy[]> {
  return q.run(
    tables
      .selectFrom('retention')
      .leftJoin('integration', 'integration.id', 'retention.integration_id')
      .select([
        'integration.key as integrationKey',
        'prune_after_days as pruneAfterDays',
        'remove_tombstones_after_days as removeTombstonesAfterDays',
        'wait_for_consumers as waitForConsumers',
        'retention.updated_at as updatedAt',
      ])
      .where('retention.environment_id', '=', environmentId)
      .orderBy('integration.key', (key) => key.asc().nullsFirst()),
  );
}

/** Sets or replaces a policy. Throws `unknown_provider_config`. */
export async function setPolicy(q: Queryable, at: PolicyScope, policy: RetentionPolicy): Promise<void> {
  const values = {
    prune_after_days: policy.pruneAfterDays,
    remove_tombstones_after_days: policy.removeTombstonesAfterDays,
    wait_for_consumers: policy.waitForConsumers,
    updated_at: new Date(),
  };
  const integrationId = await integrationIdOf(q, at);
  await q.run(
    tables
      .insertInto('retention')
      .values({ environment_id: at.environmentId, integration_id: integrationId, ...values })
      .onConflict((conflict) => conflict.constraint('retention_place_unique').doUpdateSet(values)),
  );
}

/** Removes a policy and returns whether there was one. Throws `unknown_provider_config`. */
export async function removePolicy(q: Queryable, at: PolicyScope): Promise<boolean> {
  const integrationId = await integrationIdOf(q, at);
  const removed = await q.run(
    tables
      .deleteFrom('retention')
      .where('environment_id', '=', at.environmentId)
      .where('integration_id', integrationId === null ? 'is' : '=', integrationId)
      .returning('id'),
  );
  return removed.length > 0;
}

/**
 * Returns the default `restore` of a save. If a policy prunes by age, a full re-sync must not restore the payloads that
 * the policy pruned.
 */
export async function defaultRestore(
  db: Db,
  of: { environmentId: number; integrationId: number },
): Promise<'always' | 'on_change'> {
  const rows = await db.query<{ prunes: boolean }>(
    `select prune_after_days is not null as prunes
     from retention
     where environment_id = $1 and (integration_id = $2 or integration_id is null)
     order by integration_id nulls last
     limit 1`,
    [of.environmentId, of.integrationId],
  );
  return first(rows)?.prunes ? 'on_change' : 'always';
}

async function integrationIdOf(q: Queryable, at: PolicyScope): Promise<number | null> {
  if (at.integrationKey === undefined) return null;
  const found = first(
    await q.run(
      tables
        .selectFrom('integration')
        .select('id')
        .where('environment_id', '=', at.environmentId)
        .where('key', '=', at.integrationKey),
    ),
  );
  if (found === undefined) {
    throw new AppError(
      'unknown_provider_config',
      `This environment has no integration with the ID "${at.integrationKey}".`,
    );
  }
  return found.id;
}
