/** Functions and syncs of a whole environment, with what has lately come of them. */
import { z } from 'zod';
import { connectionId } from '../connections/wire.ts';
import type { Db, Queryable } from '../db/pool.ts';
import type { App } from '../http/server.ts';
import { text } from '../http/text.ts';
import { integrationKey } from '../integrations/wire.ts';
import type { Vault } from '../vault.ts';
import { functionName } from './deploys/definition.ts';
import { countFunctions, type DeployedFunction, listFunctions } from './deploys/store.ts';
import { type RunState, runStates } from './runs/runs.ts';
import { countSyncs, listedSyncWire, listSyncs, syncCountsWire, syncStates } from './syncs/sync-list.ts';
import { functionWire, kindOf, toWire as wireOf } from './wire.ts';

type Deps = { db: Db; vault: Vault; now: () => Date; open: () => Promise<void> };

const dayMs = 86_400_000;
/** Schemas are read of one function at a time. */
const listed = functionWire
  .omit({ metadata_schema: true, checkpoint_schema: true, json_schema: true })
  .extend({
    provider_config_key: z.string(),
    provider: z.string(),
    /** The newest; null where it never ran, or none is kept. */
    last_run: z
      .object({
        id: z.string(),
        state: z.enum(runStates),
        queued_at: z.string(),
        ended_at: z.string().nullable(),
      })
      .nullable(),
    /** Runs that failed in the last 24 hours; counted up to 1000. */
    failures: z.int(),
  });

export function overviewRoutes(app: App, { db, vault, now, open }: Deps): void {
  const read = { config: { access: { by: 'key', scope: 'functions:read' } }, preParsing: open } as const;

  app.get(
    '/functions',
    {
      ...read,
      schema: {
        operationId: 'listAllFunctions',
        summary: 'Functions of the environment',
        description:
          'By integration, kind and name, with the newest run and the failures of a day. Schemas: see one function.',
        errors: ['functions_off'],
        querystring: z.strictObject({
          provider_config_key: integrationKey.optional(),
          type: z.enum(['sync', 'action', 'on-event']).optional(),
          enabled: z.enum(['true', 'false']).optional(),
          search: text({ max: 255 }).optional(),
          page: z.coerce.number().int().min(0).max(1_000_000).default(0),
          limit: z.coerce.number().int().min(1).max(100).default(20),
        }),
        response: {
          200: z.object({
            data: z.array(listed),
            pagination: z.object({ total: z.int(), page: z.int(), limit: z.int() }),
          }),
        },
      },
    },
    async ({ query, caller: { environmentId } }) => {
      const { page, limit, search, enabled } = query;
      const which = {
        ...{ environmentId, integrationKey: query.provider_config_key, search, kind: kindOf(query.type) },
        isEnabled: enabled === undefined ? undefined : enabled === 'true',
      };
      const found = await listFunctions(db, { ...which, limit, offset: page * limit });
      const lately = await latelyOf(db, {
        environmentId,
        functionIds: found.map(({ id }) => id),
        since: new Date(now().getTime() - dayMs),
      });
      return {
        data: found.map((one) => toWire(one, lately.get(one.id))),
        pagination: { total: await countFunctions(db, which), page, limit },
      };
    },
  );

  app.get(
    '/functions/syncs',
    {
      ...read,
      schema: {
        operationId: 'listSyncs',
        summary: 'Syncs of connections',
        description:
          'One for each function, connection and variant, in the order in which they were made; `counts` are of all that ' +
          'the filters but `state` let through.',
        errors: ['functions_off'],
        querystring: z.strictObject({
          provider_config_key: integrationKey.optional(),
          function: functionName.optional(),
          connection_id: connectionId.optional(),
          state: z.enum(syncStates).optional(),
          after: z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER).default(0),
          limit: z.coerce.number().int().min(1).max(1000).default(100),
        }),
        response: {
          200: z.object({
            syncs: z.array(listedSyncWire),
            counts: syncCountsWire,
            next_after: z.number().nullable(),
          }),
        },
      },
    },
    async ({ query, caller: { environmentId } }) => {
      const { state, after, limit } = query;
      const filter = {
        environmentId,
        integrationKey: query.provider_config_key,
        function: query.function,
        connectionId: query.connection_id,
      };
      const found = await listSyncs(db, { ...filter, state, vault, after, limit: limit + 1 });
      const syncs = found.slice(0, limit);
      const next = found.length > limit ? (syncs.at(-1)?.id ?? null) : null;
      return { syncs, counts: await countSyncs(db, filter), next_after: next };
    },
  );
}

function toWire(found: DeployedFunction, lately: Lately | undefined): z.input<typeof listed> {
  const { metadata_schema: _, checkpoint_schema: __, json_schema: ___, ...rest } = wireOf(found);
  const last = lately?.lastRun ?? null;
  return {
    ...rest,
    provider_config_key: found.integrationKey,
    provider: found.provider,
    last_run: last && {
      id: last.id,
      state: last.state,
      queued_at: last.queuedAt.toISOString(),
      ended_at: last.endedAt?.toISOString() ?? null,
    },
    failures: lately?.failures ?? 0,
  };
}

/** What has lately come of functions, for lists of them. */

type LatestRun = {
  id: string;
  state: RunState;
  queuedAt: Date;
  endedAt: Date | null;
};
type Lately = { lastRun: LatestRun | null; failures: number };

/** More than these are not counted. */
const maxFailures = 1_000;

/** Of each of these functions its newest run, and how many of its runs have failed since `since`. */
async function latelyOf(
  q: Queryable,
  {
    environmentId,
    functionIds,
    since,
  }: { environmentId: number; functionIds: readonly number[]; since: Date },
): Promise<Map<number, Lately>> {
  const rows = await q.query<{ id: number; last: Record<string, string | null> | null; failures: number }>(
    `select
       function.id,
       (
         select to_jsonb(last)
         from (
           select run.id, run.state, run.queued_at, run.ended_at
           from run
           where run.function_id = function.id
           order by run.id desc
           limit 1
         ) as last
       ) as last,
       (
         select count(*)
         from (
           select
           from run
           where run.function_id = function.id and run.state = 'failed' and run.ended_at > $3
           limit ${maxFailures}
         ) as failed
       ) as failures
     from function
     where function.environment_id = $1 and function.id = any($2)`,
    [environmentId, functionIds, since],
  );
  return new Map(rows.map(({ id, last, failures }) => [id, { lastRun: last && runOf(last), failures }]));
}

function runOf({
  id,
  state,
  queued_at: queuedAt,
  ended_at: endedAt,
}: Record<string, string | null>): LatestRun {
  return {
    id: id!,
    state: state as RunState,
    queuedAt: new Date(queuedAt!),
    endedAt: endedAt ? new Date(endedAt) : null,
  };
}
