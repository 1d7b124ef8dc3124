/**
 * The figures of the dashboard's home page and of the badges in its navigation: the problems of an environment.
 *
 * Every open dashboard calls it twice a minute, so each statement reads a bounded number of rows, or only the rows of
 * problems.
 */
import { z } from 'zod';
import { countByStatus } from '../connections/store/list.ts';
import type { Db } from '../db/pool.ts';
import { listFailingEndpoints } from '../deliveries/endpoints.ts';
import { listFailingSyncs } from '../functions/syncs/sync-list.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { type IntegrationReading, listIntegrations } from '../integrations/store.ts';
import { quotaUse } from '../proxy/quota/quota.ts';

/** The maximum number of entries of each list. */
const maxListed = 100;

const health = z.object({
  /** Counted up to 10,000. */
  connections: z.object({ active: z.number(), needs_reauth: z.number(), blocked: z.number() }),
  /** Functions with failing syncs. */
  syncs: z.array(z.object({ integration_id: z.string(), function: z.string(), failing: z.number() })),
  endpoints: z.array(
    z.object({
      id: z.number(),
      url: z.string(),
      /** Disabled, because it was gone or failed for days. */
      disabled: z.boolean(),
      /** Consecutive failed attempts. */
      failures: z.number(),
      failing_since: z.string().nullable(),
    }),
  ),
  integrations: z.array(
    z.object({ integration_id: z.string(), display_name: z.string(), cause: z.string(), since: z.string() }),
  ),
  /** The limits of OAuth clients as a whole, the one with the largest share in use first. */
  quotas: z.array(
    z.object({
      integration_id: z.string(),
      name: z.string(),
      limit: z.number(),
      window_s: z.number(),
      used: z.number(),
      closed_until: z.string().nullable(),
    }),
  ),
});

nameSchemas({ EnvironmentHealth: health });

export function homeRoutes(app: App, { db, reading }: { db: Db; reading: IntegrationReading }): void {
  app.get(
    '/environment/health',
    {
      config: { access: { by: 'key', scope: 'activity:read' } },
      schema: {
        operationId: 'getEnvironmentHealth',
        summary: 'Get the health of the environment',
        description:
          'Connections by status, and failing syncs, endpoints and integrations, and quotas: 100 of each.',
        querystring: z.strictObject({}),
        response: { 200: health },
      },
    },
    async ({ caller: { environmentId } }): Promise<z.input<typeof health>> => {
      const at = { environmentId, limit: maxListed };
      const [connections, syncs, endpoints, integrations] = await Promise.all([
        countByStatus(db, environmentId),
        listFailingSyncs(db, at),
        listFailingEndpoints(db, at),
        listIntegrations(db, { environmentId, ...reading }),
      ]);
      const uses = await quotaUse(db, integrations);
      return {
        connections,
        syncs: syncs.map(({ integrationKey, function: name, count }) => ({
          integration_id: integrationKey,
          function: name,
          failing: count,
        })),
        endpoints: endpoints.map(({ id, url, disabledCause, failures, failingSince }) => ({
          id,
          url,
          disabled: disabledCause !== null,
          failures,
          failing_since: failingSince?.toISOString() ?? null,
        })),
        integrations: integrations.flatMap(({ key, displayName, fault }) =>
          fault === undefined
            ? []
            : [{ integration_id: key, display_name: displayName, cause: fault.cause, since: fault.since }],
        ),
        quotas: integrations
          .flatMap(({ id, key }) =>
            (uses.get(id) ?? []).map(({ name, limit, windowS, used, closedUntil }) => ({
              integration_id: key,
              name,
              limit,
              window_s: windowS,
              used,
              closed_until: closedUntil?.toISOString() ?? null,
            })),
          )
          .sort((a, b) => b.used / b.limit - a.used / a.limit)
          .slice(0, maxListed),
      };
    },
  );
}
