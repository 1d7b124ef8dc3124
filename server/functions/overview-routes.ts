/** Routes that list the functions of an environment with their recent runs, and its syncs. */
import { z } from 'zod';
import { connectionId } from '../connections/routes/wire.ts';
import type { Db } from '../db/pool.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { integrationKey } from '../integrations/wire.ts';
import type { Vault } from '../vault.ts';
import { functionName } from './deploys/definition.ts';
import { countFunctions, type DeployedFunction, listFunctions } from './deploys/store.ts';
import { type RunState, runStates } from './runs/runs.ts';
import { countSyncs, listedSyncWire, listSyncs, syncCountsWire, syncStates } from './syncs/sync-list.ts';
import { functionPage, functionType, functionWire, kindOf, pagination, toWire as wireOf } from './wire.ts';

type OverviewDeps = { db: Db; vault: Vault; now: () => Date; open: () => Promise<void> };

const dayMs = 86_400_000;
/** Without schemas, which only the route of one function returns. */
const listed = functionWire
  .omit({ metadata_schema: true, checkpoint_schema: true, json_schema: true })
  .extend({
    provider_config_key: z.string(),
    provider: z.string(),
    /** The newest run; null if there is none. */
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
nameSchemas({ ListedFunction: listed });

export function overviewRoutes(app: App, { db, vault, now, open }: OverviewDeps): void {
  const read = { config: { access: { by: 'key', scope: 'functions:read' } }, preParsing: open } as const;

  app.get(
    '/functions',
    {
      ...read,
      schema: {
        operationId: 'listAllFunctions',
        list: { items: 'data', by: 'page' },
        summary: 'List the functions of the environment',
        description:
          'By integration, kind and name, with the latest run and the failures of the last day. Schemas are in the ' +
          'response for one function.',
        errors: ['functions_off'],
        querystring: z.strictObject({
          provider_config_key: integrationKey.optional(),
          type: functionType.optional(),
          enabled: z.enum(['true', 'false']).optional(),
          ...functionPage,
        }),
        response: { 200: z.object({ data: z.array(listed), pagination }) },
      },
    },
    async ({ query, caller: { environmentId } }) => {
      const { page, limit, search, enabled } = query;
      const which = {
        environmentId,
        integrationKey: query.provider_config_key,
        search,
        kind: query.type && kindOf(query.type),
        isEnabled: enabled === undefined ? undefined : enabled === 'true',
      };
      const found = await listFunctions(db, { ...which, limit, offset: page * limit });
      const since = new Date(now().getTime() - dayMs);
      const rows = await db.query<RecentRuns>(recentRunsSql, [
        environmentId,
        found.map(({ id }) => id),
        since,
      ]);
      const recent = new Map(rows.map((row) => [row.id, row]));
      return {
        data: found.map((one) => toWire(one, recent.get(one.id))),
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
        list: { items: 'syncs', by: { parameter: 'after', next: 'next_after' } },
        summary: 'List the syncs of connections',
        description:
          'One entry for each function, connection and variant, in the order of creation. `counts` covers all entries that ' +
          'match the filters other than `state`, up to 10,000.',
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
      const { syncs, next } = await listSyncs(db, { ...filter, state, vault, after, limit });
      return { syncs, counts: await countSyncs(db, filter), next_after: next };
    },
  );
}

function toWire(found: DeployedFunction, recent: RecentRuns | undefined): z.input<typeof listed> {
  const { metadata_schema: _, checkpoint_schema: __, json_schema: ___, ...rest } = wireOf(found);
  const last = recent?.last ?? null;
  return {
    ...rest,
    provider_config_key: found.integrationKey,
    provider: found.provider,
    last_run: last && {
      ...last,
      queued_at: new Date(last.queued_at).toISOString(),
      ended_at: last.ended_at && new Date(last.ended_at).toISOString(),
    },
    failures: recent?.failures ?? 0,
  };
}

type RecentRuns = {
  /** The function. */
  id: number;
  last: { id: string; state: RunState; queued_at: string; ended_at: string | null } | null;
  failures: number;
};

/** Failures are counted up to this number. */
const maxFailures = 1_000;

/** The newest run of each function in $2, and its number of failures since $3. */
const recentRunsSql = `
  select
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
  where function.environment_id = $1 and function.id = any($2)`;
