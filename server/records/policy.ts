import { type Db, first, type Queryable, tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';

/** The ages at which payloads and tombstones are removed, counted from a record's `last_modified_at`. Undefined: never. */
export type RetentionPolicy = {
  pruneAfterDays: number | undefined;
  removeTombstonesAfterDays: number | undefined;
  /** Whether nothing goes that the slowest consumer of the dataset has not acknowledged. */
  waitForConsumers: boolean;
};

/** Of an integration, or of all integrations of the environment that have none of their own. */
type PolicyPlace = { environmentId: number; integrationKey: string | undefined };

export type PlacedPolicy = RetentionPolicy & { integrationKey: string | undefined; updatedAt: Date };

/** All policies of an environment, its own first. */
export async function listPolicies(q: Queryable, environmentId: number): Promise<PlacedPolicy[]> {
  const rows = await q.run(
    tables
      .selectFrom('retention')
      .leftJoin('integration', 'integration.id', 'retention.integration_id')
      .select([
        'integration.key',
        'prune_after_days',
        'remove_tombstones_after_days',
        'wait_for_consumers',
        'retention.updated_at',
      ])
      .where('retention.environment_id', '=', environmentId)
      .orderBy('integration.key', (key) => key.asc().nullsFirst()),
  );
  return rows.map((row) => ({
    integrationKey: row.key ?? undefined,
    pruneAfterDays: row.prune_after_days ?? undefined,
    removeTombstonesAfterDays: row.remove_tombstones_after_days ?? undefined,
    waitForConsumers: row.wait_for_consumers,
    updatedAt: row.updated_at,
  }));
}

/** Sets the policy of a place, in place of the one there was. Throws `unknown_provider_config`. */
export async function setPolicy(q: Queryable, at: PolicyPlace, policy: RetentionPolicy): Promise<void> {
  const values = {
    prune_after_days: policy.pruneAfterDays ?? null,
    remove_tombstones_after_days: policy.removeTombstonesAfterDays ?? null,
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

/** Whether there was one. Throws `unknown_provider_config`. */
export async function removePolicy(q: Queryable, at: PolicyPlace): Promise<boolean> {
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
 * The default of a save for equal pruned records: if a policy prunes by age, a full re-sync must not restore the payloads
 * that the policy pruned.
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

async function integrationIdOf(q: Queryable, at: PolicyPlace): Promise<number | null> {
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
