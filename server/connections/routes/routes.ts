import { z } from 'zod';
import { AppError, fieldError } from '../../errors.ts';
import { connectionStates } from '../../events/connection-states.ts';
import { type Caller, hasScope } from '../../http/auth/caller.ts';
import { success } from '../../http/openapi/schema-names.ts';
import type { App } from '../../http/server.ts';
import { text } from '../../http/text.ts';
import { expediteProbe } from '../../integrations/fault.ts';
import { integrationKey } from '../../integrations/wire.ts';
import { catalogOfEnvironment } from '../../providers/environment-definitions.ts';
import { healthToWire, healthWire, isRefusal } from '../health/health.ts';
import type { CredentialSource } from '../refresh/credentials.ts';
import { countConnections, listConnections, positionForm, sorts } from '../store/list.ts';
import type { ConnectionReader, LiveConnection } from '../store/reader.ts';
import { recordFetched, replaceSettings } from '../store/save.ts';
import {
  auditConnection,
  type Connection,
  connectionStatuses,
  findConnectionForUpdate,
} from '../store/store.ts';
import { tagsKept, tagsOf } from '../store/tags.ts';
import {
  connectionId,
  connectionSummary,
  connectionWire,
  credentialsToWire,
  renewableCredentialsToWire,
  toSummary,
  toWire,
} from './wire.ts';
import {
  connectionSettings,
  deleteRoute,
  importRoute,
  metadataRoutes,
  type WriteDeps,
} from './write-routes.ts';

const status = z.enum(connectionStatuses);
/** `active,blocked` as a list. */
const statuses = text({ max: 255 }).transform((given, context) => {
  const read = z.array(status).min(1).safeParse(given.split(','));
  if (read.success) return read.data;
  context.addIssue({ code: 'custom', message: `must be a list of ${connectionStatuses.join(', ')}` });
  return z.NEVER;
});
const flag = z.enum(['true', 'false']).default('false');
const params = z.object({ id: connectionId });
/** The errors of all routes that read a connection. */
const readErrors = [
  'not_found',
  { code: 'unknown_provider_config', status: 400 },
  { code: 'test_credentials_unavailable', status: 424 },
] as const;
const ofIntegration = z.strictObject({ provider_config_key: integrationKey });
/** The connections of a list without `limit`, and the maximum of `limit`. */
const firstSize = 10_000;
const maxSize = 2_000;

/** The routes of connections: list, read, change, health, refresh, and those of `write-routes.ts`. */
export function connectionRoutes(app: App, deps: WriteDeps & { credentials: CredentialSource }): void {
  const { db, reading, reader, credentials: source, now } = deps;
  const { vault } = reading;
  metadataRoutes(app, { db, vault, reader });
  importRoute(app, deps);
  deleteRoute(app, deps);
  const at = (caller: Caller, id: string, key: string) => ({
    environmentId: caller.environmentId,
    integrationKey: key,
    connectionId: id,
  });

  app.get(
    '/connections',
    {
      config: { access: { by: 'key', scope: 'connections:read' } },
      schema: {
        operationId: 'listConnections',
        list: {
          items: 'connections',
          by: 'page',
          sizes: { first: firstSize, following: maxSize },
          positions: { parameter: 'before', last: 'last_position' },
        },
        summary: 'List connections, newest first',
        description:
          '`search` is part of the ID, or of the ID, name or e-mail address of the account or the end user. ' +
          '`sort=last_used` lists the most recently used connections first. With `count=true` the response has the number ' +
          'of connections on all pages, up to 10,000.',
        querystring: z.looseObject({
          connectionId: text({ max: 255 }).optional(),
          search: text({ max: 255 }).optional(),
          endUserId: text({ max: 255 }).optional(),
          endUserOrganizationId: text({ max: 255 }).optional(),
          integrationId: text({ max: 8192 }).optional(),
          status: statuses.optional(),
          state: z.enum(connectionStates).optional(),
          syncs: z.enum(['failing']).optional(),
          sort: z.enum(sorts).default('created'),
          count: flag,
          limit: z.coerce.number().int().min(1).max(maxSize).optional(),
          page: z.coerce.number().int().min(0).max(1_000_000).default(0),
          before: z.string().regex(positionForm, 'is not a position of this list').optional(),
        }),
        response: {
          200: z.object({ connections: z.array(connectionSummary), total: z.number().optional() }),
        },
      },
    },
    async ({ query, caller }) => {
      const { sort, count, limit = firstSize, page, integrationId, status: ofStatus, ...others } = query;
      const {
        connectionId: id,
        search,
        endUserId,
        endUserOrganizationId,
        state,
        syncs,
        before,
        ...rest
      } = others;
      if (before !== undefined && sort !== 'created')
        throw fieldError('invalid_query_params', ['before'], 'cannot be combined with `sort=last_used`');
      const filter = {
        environmentId: caller.environmentId,
        connectionId: id,
        search,
        endUserId,
        endUserOrganizationId,
        integrationKeys: integrationId?.split(','),
        statuses: ofStatus,
        state,
        hasFailingSync: syncs === 'failing',
        tags: readTagQuery(rest),
      };
      const connections = await listConnections(db, { filter, vault, sort, limit, page, before });
      const names = connections.map(({ providerName }) => providerName);
      const { environmentId } = caller;
      const catalog = await catalogOfEnvironment(db, { catalog: reading.catalog, environmentId, names });
      return {
        ...(sort === 'created' && { last_position: connections.at(-1)?.position }),
        connections: connections.map((connection) =>
          toSummary(connection, catalog.find(connection.providerName)),
        ),
        ...(count === 'true' && { total: await countConnections(db, filter) }),
      };
    },
  );

  const readOne = {
    config: { access: { by: 'key', scope: 'connections:read' } },
    schema: {
      operationId: 'getConnection',
      summary: 'Get a connection, with fresh credentials if the key may read them',
      description:
        'Keys with `connections:credentials` receive the credentials, refreshed if they are about to expire; other keys ' +
        'receive the connection without credentials.',
      errors: [
        ...readErrors,
        'invalid_credentials',
        { code: 'invalid_credentials', status: 400 },
        'integration_misconfigured',
        'connection_refresh_failed',
      ],
      params,
      querystring: z.strictObject({
        provider_config_key: integrationKey.optional(),
        force_refresh: flag,
        refresh_token: flag,
        refresh_github_app_jwt_token: flag,
      }),
      response: { 200: connectionWire },
    },
  } as const;
  const getOne = async ({
    params: { id },
    query,
    caller,
  }: {
    params: { id: string };
    query: { provider_config_key?: string | undefined; force_refresh: string; refresh_token: string };
    caller: Caller;
  }) => {
    const place = at(caller, id, requiredKey(query.provider_config_key));
    const live = await getLive(reader, place);
    if (!hasScope(caller, 'connections:credentials')) return toWire(live, live.integration.provider);
    const connection = await withFreshCredentials(live, query.force_refresh === 'true');
    await recordFetched(db, connection.id);
    const isRenewable = query.refresh_token === 'true' && hasScope(caller, 'connections:refresh_tokens');
    return {
      ...toWire(connection, live.integration.provider),
      credentials: isRenewable ? renewableCredentialsToWire(connection) : credentialsToWire(connection),
    };
  };
  app.get('/connections/:id', readOne, getOne);

  app.get(
    '/connections/:id/health',
    {
      config: { access: { by: 'key', scope: 'connections:read' } },
      schema: {
        operationId: 'getConnectionHealth',
        summary: 'Get the health of a connection',
        description:
          'The status and, if the connection does not work, the cause, the evidence and the next step.',
        errors: readErrors,
        params,
        querystring: ofIntegration,
        response: { 200: healthWire },
      },
    },
    async ({ params: { id }, query, caller }) => {
      const connection = await getLive(reader, at(caller, id, query.provider_config_key));
      return healthToWire(connection, connection.integration.provider);
    },
  );

  app.post(
    '/connections/:id/refresh',
    {
      config: { access: { by: 'key', scope: 'connections:write' } },
      schema: {
        operationId: 'refreshConnection',
        summary: 'Refresh the credentials now',
        description:
          'Also refreshes valid credentials, and tries a dead connection or a rejected client again.',
        errors: [
          ...readErrors,
          'connection_needs_reauth',
          'connection_blocked',
          'connection_refresh_failed',
          { code: 'invalid_credentials', status: 400 },
          'integration_misconfigured',
        ],
        params,
        querystring: ofIntegration,
        response: { 200: healthWire },
      },
    },
    async ({ params: { id }, query, caller }) => {
      const place = at(caller, id, query.provider_config_key);
      // Reads the current state: a stale cache must not cause the refresh of a dead connection.
      reader.forget(place);
      const connection = await getLive(reader, place);
      const { integration } = connection;
      if (connection.integrationFault !== undefined) await expediteProbe(db, { integration, at: now() });
      const refreshed = await source.refreshed(connection);
      return healthToWire(refreshed, refreshed.integration.provider);
    },
  );

  app.patch(
    '/connections/:id',
    {
      config: { access: { by: 'key', scope: 'connections:write' } },
      schema: {
        operationId: 'changeConnection',
        summary: 'Change tags, end user or webhook address',
        description:
          'Absent fields stay as they are, except that a new end user removes the tags of the previous one. An empty ' +
          '`webhook_url_override` removes the address.',
        errors: [
          'not_found',
          { code: 'unknown_connection', status: 404 },
          { code: 'unknown_provider_config', status: 400 },
          'address_not_allowed',
        ],
        params,
        querystring: ofIntegration,
        example: { body: { tags: { team: 'analysis' } } },
        body: z.strictObject(connectionSettings),
        response: { 200: success },
      },
    },
    async ({ params: { id }, query, body, caller }) => {
      const place = at(caller, id, query.provider_config_key);
      await db.transaction(async (tx) => {
        const connection = await findConnectionForUpdate(tx, { ...place, vault });
        if (connection === undefined)
          throw await notFoundError(reader, place, 'There is no such connection.');
        const { tags, end_user: endUser } = body;
        await replaceSettings(tx, {
          connection,
          at: now(),
          tags: tags ?? (endUser && tagsOf({ endUser, tags: tagsKept(connection, endUser) })),
          endUser,
          webhookUrlOverride: body.webhook_url_override,
        });
        await auditConnection(tx, connection, { caller, action: 'connection.updated' });
      });
      reader.forget(place);
      return { success: true as const };
    },
  );

  async function withFreshCredentials(live: LiveConnection, isForced: boolean): Promise<Connection> {
    try {
      if (isForced) return await source.refreshedLiving(live);
      return { ...live, credentials: await source.fresh(live) };
    } catch (error) {
      if (!isRefusal(error)) throw error;
      const dead = await reader.reread(live);
      throw new AppError('invalid_credentials', dead.fault?.next_step, {
        cause: error,
        payload: {
          connection: toWire(dead, dead.integration.provider),
          health: healthToWire(dead, dead.integration.provider),
        },
      });
    }
  }
}

/** On these routes an unknown connection is 404, as official clients expect. */
async function getLive(
  reader: ConnectionReader,
  place: Parameters<ConnectionReader['get']>[0],
): Promise<LiveConnection> {
  try {
    return await reader.get(place);
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'unknown_connection') throw error;
    throw await notFoundError(reader, place, error.message);
  }
}

/** The error for a missing connection: 404, or 400 if its integration does not exist. */
async function notFoundError(
  reader: ConnectionReader,
  place: Parameters<ConnectionReader['get']>[0],
  message: string,
): Promise<AppError> {
  try {
    await reader.getIntegration(place);
    return new AppError('not_found', message);
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'unknown_provider_config') throw error;
    return new AppError(error.code, error.message, { status: 400 });
  }
}

function requiredKey(key: string | undefined): string {
  if (key !== undefined) return key;
  const errors = [{ code: 'invalid_type', message: 'Name the integration.', path: ['provider_config_key'] }];
  throw new AppError('invalid_query_params', undefined, { errors });
}

/** Parses `tags[name]=value` of a query string; refuses any other parameter. */
function readTagQuery(rest: Record<string, unknown>): Record<string, string> | undefined {
  const entries = Object.entries(rest).map(([name, value]): [string, string] => {
    const [, key] = /^tags\[([^\]]+)\]$/.exec(name) ?? [];
    if (key === undefined || typeof value !== 'string') {
      const message = `Unrecognized key: "${name}"`;
      throw new AppError('invalid_query_params', undefined, {
        errors: [{ code: 'unrecognized_keys', message, path: [name] }],
      });
    }
    return [key.toLowerCase(), value];
  });
  return entries.length > 0 ? Object.fromEntries(entries) : undefined;
}
