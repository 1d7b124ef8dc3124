import { z } from 'zod';
import { writeAudit } from '../../activity/audit.ts';
import { AppError, fieldError } from '../../errors.ts';
import { actorOf, type Caller } from '../../http/auth/caller.ts';
import { nameSchemas, success } from '../../http/openapi/schema-names.ts';
import type { App } from '../../http/server.ts';
import { integrationKey } from '../../integrations/wire.ts';
import { listPolicies, removePolicy, type ScopedPolicy, setPolicy } from '../retention/policy.ts';
import type { RecordRouteDeps } from './input.ts';

/** At most a hundred years. */
const days = z.number().int().min(1).max(36_500).nullable();

const policyWire = z.object({
  provider_config_key: z.string().nullable(),
  prune_after_days: days,
  remove_tombstones_after_days: days,
  wait_for_consumers: z.boolean(),
  updated_at: z.string(),
});
nameSchemas({ RetentionPolicy: policyWire });

/** Policies that prune and remove records by age. */
export function retentionRoutes(app: App, { db }: RecordRouteDeps): void {
  app.get(
    '/records/retention',
    {
      config: { access: { by: 'key', scope: 'environment:read' } },
      schema: {
        operationId: 'listRetentionPolicies',
        list: { items: 'policies', by: 'whole' },
        summary: 'Retention policies of the environment and its integrations',
        description: 'By a policy, payloads are pruned and tombstones are removed at an age.',
        response: { 200: z.object({ policies: z.array(policyWire) }) },
      },
    },
    async ({ caller }) => ({ policies: (await listPolicies(db, caller.environmentId)).map(toWire) }),
  );

  app.put(
    '/records/retention',
    {
      config: { access: { by: 'key', scope: 'environment:write' } },
      schema: {
        operationId: 'setRetentionPolicy',
        summary: 'Set a retention policy',
        description:
          'For one integration, or, without `integration_id`, for all integrations that do not have a policy. Ages ' +
          'count from `last_modified_at`.',
        errors: ['unknown_provider_config'],
        example: { body: { integration_id: 'google-sheet', prune_after_days: 30 } },
        body: z.strictObject({
          provider_config_key: integrationKey.optional(),
          prune_after_days: days.default(null),
          remove_tombstones_after_days: days.default(null),
          wait_for_consumers: z.boolean().default(true),
        }),
        response: { 200: policyWire },
      },
    },
    async ({ body, caller }) => {
      const { provider_config_key: key, ...wanted } = body;
      if (wanted.prune_after_days === null && wanted.remove_tombstones_after_days === null) {
        throw fieldError('invalid_body', ['prune_after_days'], 'A policy needs at least one number of days.');
      }
      const at = { environmentId: caller.environmentId, integrationKey: key };
      return db.transaction(async (tx) => {
        await setPolicy(tx, at, {
          pruneAfterDays: wanted.prune_after_days,
          removeTombstonesAfterDays: wanted.remove_tombstones_after_days,
          waitForConsumers: wanted.wait_for_consumers,
        });
        await writeAudit(tx, { ...auditEntryOf(caller, key), action: 'retention.set', details: wanted });
        const policies = await listPolicies(tx, caller.environmentId);
        return toWire(
          policies.find(({ integrationKey }) => integrationKey === (key ?? null)) as ScopedPolicy,
        );
      });
    },
  );

  app.delete(
    '/records/retention',
    {
      config: { access: { by: 'key', scope: 'environment:write' } },
      schema: {
        operationId: 'removeRetentionPolicy',
        summary: 'Remove a retention policy',
        description:
          'Payloads and tombstones there are no longer removed by age. Removed payloads and tombstones are not restored.',
        errors: ['not_found', 'unknown_provider_config'],
        querystring: z.strictObject({ provider_config_key: integrationKey.optional() }),
        response: { 200: success },
      },
    },
    async ({ query: { provider_config_key: key }, caller }) => {
      await db.transaction(async (tx) => {
        const at = { environmentId: caller.environmentId, integrationKey: key };
        if (!(await removePolicy(tx, at))) throw new AppError('not_found', 'There is no such policy.');
        await writeAudit(tx, { ...auditEntryOf(caller, key), action: 'retention.removed' });
      });
      return { success: true as const };
    },
  );
}

function auditEntryOf(caller: Caller, key: string | undefined) {
  return {
    environmentId: caller.environmentId,
    actor: actorOf(caller),
    target: key ?? `environment ${caller.environment}`,
  };
}

function toWire(policy: ScopedPolicy): z.input<typeof policyWire> {
  return {
    provider_config_key: policy.integrationKey,
    prune_after_days: policy.pruneAfterDays,
    remove_tombstones_after_days: policy.removeTombstonesAfterDays,
    wait_for_consumers: policy.waitForConsumers,
    updated_at: policy.updatedAt.toISOString(),
  };
}
