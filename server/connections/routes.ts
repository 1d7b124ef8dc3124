import { z } from 'zod';
import type { Fetch } from '../auth-modes/token-response.ts';
import { type Db, retryOnViolation } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { type Caller, hasScope } from '../http/caller.ts';
import type { App } from '../http/server.ts';
import { text, webAddress } from '../http/text.ts';
import { getIntegration, type Integration, type IntegrationReading } from '../integrations/store.ts';
import { integrationKey } from '../integrations/wire.ts';
import type { Logger } from '../log.ts';
import { auditConnection } from './audit.ts';
import { noteClientVerdict } from './client-verdict.ts';
import type { CredentialSource } from './credentials.ts';
import { healthToWire, isRefusal } from './health.ts';
import { type ConnectionHooks, noHooks } from './hooks.ts';
import { importConnection, readImported, tryImported } from './import.ts';
import { countConnections, listConnections, sorts } from './list.ts';
import { metadataRoutes } from './metadata-routes.ts';
import { type ConnectionReader, type LiveConnection, placeOf } from './reader.ts';
import {
  type Connection,
  connectionStatuses,
  findConnection,
  noteFetched,
  updateConnection,
} from './store.ts';
import { endUserInput, tagsInput, tagsOf } from './tags.ts';
import {
  connectionId,
  connectionSummary,
  connectionWire,
  credentialsToWire,
  healthWire,
  renewableCredentialsToWire,
  toSummary,
  toWire,
} from './wire.ts';

type Deps = {
  db: Db;
  reading: IntegrationReading;
  reader: ConnectionReader;
  credentials: CredentialSource;
  /** What the application's own code does when a connection is made. */
  hooks?: ConnectionHooks;
  /** The guarded way to the network; test integrations alone may reach the sandbox. */
  fetchFor: (integration: Integration) => Fetch;
  log: Logger;
  now: () => Date;
};

const status = z.enum(connectionStatuses);
/** `active,blocked` as a list. */
const statuses = text({ max: 255 }).transform((given, context) => {
  const read = z.array(status).min(1).safeParse(given.split(','));
  if (read.success) return read.data;
  context.addIssue({ code: 'custom', message: `must be a list of ${connectionStatuses.join(', ')}` });
  return z.NEVER;
});
const flag = z.enum(['true', 'false']).default('false');
const success = z.object({ success: z.literal(true) });
const params = z.object({ id: connectionId });
const ofIntegration = z.strictObject({ provider_config_key: integrationKey });
const json = z.record(z.string(), z.unknown());
const settings = {
  tags: tagsInput.optional(),
  end_user: endUserInput.optional(),
  webhook_url_override: z.union([z.literal(''), webAddress()]).optional(),
};

/** Connections, but for their end (`disconnect-routes.ts`): list, read, change, import of tokens, metadata, health. */
export function connectionRoutes(app: App, deps: Deps): void {
  const { db, reading, reader, credentials: source, hooks = noHooks, fetchFor, now } = deps;
  const { vault, catalog } = reading;
  metadataRoutes(app, { db, vault, reader });
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
        summary: 'List connections, newest first',
        description:
          '`search` is a part of the ID, or of what the account or the end user is known by. `sort=last_used` puts those ' +
          'first that were used last. With `count=true` the answer says how many there are on all pages.',
        querystring: z.looseObject({
          connectionId: text({ max: 255 }).optional(),
          search: text({ max: 255 }).optional(),
          endUserId: text({ max: 255 }).optional(),
          endUserOrganizationId: text({ max: 255 }).optional(),
          integrationId: text({ max: 8192 }).optional(),
          status: statuses.optional(),
          sort: z.enum(sorts).default('created'),
          count: flag,
          limit: z.coerce.number().int().min(1).max(2000).optional(),
          page: z.coerce.number().int().min(0).max(1_000_000).default(0),
        }),
        response: {
          200: z.object({ connections: z.array(connectionSummary), total: z.number().optional() }),
        },
      },
    },
    async ({ query, caller }) => {
      const { sort, count, limit = 10_000, page, integrationId, status: ofStatus, ...others } = query;
      const { connectionId: id, search, endUserId, endUserOrganizationId, ...rest } = others;
      const filter = {
        ...{
          environmentId: caller.environmentId,
          connectionId: id,
          search,
          endUserId,
          endUserOrganizationId,
        },
        integrationKeys: integrationId?.split(','),
        statuses: ofStatus,
        tags: readTagQuery(rest),
      };
      const connections = await listConnections(db, { filter, vault, sort, limit, page });
      return {
        connections: connections.map((connection) => toSummary(connection, { catalog })),
        ...(count === 'true' && { total: await countConnections(db, filter) }),
      };
    },
  );

  app.post(
    '/connections',
    {
      config: { access: { by: 'key', scope: 'connections:write' } },
      schema: {
        summary: 'Import a connection',
        description:
          'An existing ID gets the new credentials; its tags and metadata become what the body holds. Where the ' +
          'provider has a call for it, the credentials are tried first. The answer shows those that were sent, and ' +
          'those that are stored to keys that may read them.',
        body: z.strictObject({
          provider_config_key: integrationKey,
          connection_id: connectionId.optional(),
          credentials: json,
          metadata: json.optional(),
          connection_config: json.optional(),
          ...settings,
        }),
        response: { 201: connectionWire },
      },
    },
    async ({ body, caller }, reply) => {
      const integration = await getIntegration(db, {
        ...reading,
        environmentId: caller.environmentId,
        key: body.provider_config_key,
      });
      // What would be tried at the real provider must not be.
      if (integration.isTest && reading.testClient === undefined)
        throw new AppError('test_credentials_unavailable');
      const connectionConfig = body.connection_config ?? {};
      const credentials = readImported(integration, body.credentials);
      const tried = await tryImported(
        { integration, credentials, connectionConfig },
        {
          fetch: fetchFor(integration),
          now: now(),
          noteClient: (fault) => noteClientVerdict(deps, { integration, fault }),
        },
      );
      const given = {
        ...tried,
        metadata: body.metadata ?? {},
        connectionConfig,
        tags: tagsOf({ endUser: body.end_user, tags: body.tags }),
        endUser: body.end_user,
        webhookUrlOverride: body.webhook_url_override,
        at: now(),
      };
      await hooks.validate({
        ...{ integration, connectionConfig, credentials: tried.credentials },
        connectionId: await freeId(db, { caller, key: integration.key, wanted: body.connection_id }),
        ...{ account: undefined, scopesGranted: tried.grant.scopesGranted },
        ...{ accessExpiresAt: tried.grant.accessExpiresAt, metadata: given.metadata },
        ...{ tags: given.tags ?? {}, endUser: body.end_user },
      });
      const save = () =>
        retryOnViolation('connection_id_unique', () =>
          db.transaction((tx) =>
            importConnection(tx, { caller, integration, id: body.connection_id, given, reading, hooks }),
          ),
        );
      // Where the connection was deleted while its credentials were replaced, it is made anew.
      const saved = await save().catch((error: unknown) => {
        if (error instanceof AppError && error.code === 'unknown_connection') return save();
        throw error;
      });
      reader.forget(placeOf(saved));
      hooks.created();
      reply.code(201);
      // What was fetched, or stands in place of what was sent, is for those who may read it.
      const shown = hasScope(caller, 'connections:credentials') ? saved : { credentials };
      return { ...toWire(saved, { catalog }), credentials: credentialsToWire(shown) };
    },
  );

  const readOne = {
    config: { access: { by: 'key', scope: 'connections:read' } },
    schema: {
      summary: 'One connection, with fresh credentials for keys that may have them',
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
    if (!hasScope(caller, 'connections:credentials')) return toWire(live, { catalog });
    const connection = await withFreshCredentials(live, query.force_refresh === 'true');
    await noteFetched(db, connection.id);
    const isRenewable = query.refresh_token === 'true' && hasScope(caller, 'connections:refresh_tokens');
    return {
      ...toWire(connection, { catalog }),
      credentials: isRenewable ? renewableCredentialsToWire(connection) : credentialsToWire(connection),
    };
  };
  app.get('/connections/:id', readOne, getOne);
  // Deprecated, and still what the official command line calls.
  app.get(
    '/connection/:id',
    { ...readOne, schema: { ...readOne.schema, deprecated: true } },
    async (request, reply) => {
      reply.header('deprecation', '@1767225600');
      return getOne(request);
    },
  );

  app.get(
    '/connections/:id/health',
    {
      config: { access: { by: 'key', scope: 'connections:read' } },
      schema: {
        summary: 'Why a connection works or not',
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
        summary: 'Refresh the credentials now',
        params,
        querystring: ofIntegration,
        response: { 200: healthWire },
      },
    },
    async ({ params: { id }, query, caller }) => {
      const place = at(caller, id, query.provider_config_key);
      // As it is now: a dead connection is tried because somebody asks for it, not because it was believed to live.
      reader.forget(place);
      const refreshed = await source.refreshed(await getLive(reader, place));
      return healthToWire(refreshed, refreshed.integration.provider);
    },
  );

  app.patch(
    '/connections/:id',
    {
      config: { access: { by: 'key', scope: 'connections:write' } },
      schema: {
        summary: 'Change tags, end user or webhook address',
        params,
        querystring: ofIntegration,
        body: z.strictObject(settings),
        response: { 200: success },
      },
    },
    async ({ params: { id }, query, body, caller }) => {
      const place = at(caller, id, query.provider_config_key);
      await db.transaction(async (tx) => {
        const connection = await findConnection(tx, { ...place, vault });
        if (connection === undefined) throw new AppError('not_found', 'There is no such connection.');
        await updateConnection(tx, {
          id: connection.id,
          tags: body.tags,
          endUser: body.end_user,
          webhookUrlOverride: body.webhook_url_override,
        });
        await auditConnection(tx, { caller, connection, action: 'connection.updated' });
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
          connection: toWire(dead, { catalog }),
          health: healthToWire(dead, dead.integration.provider),
        },
      });
    }
  }
}

/** The ID that a connection is to get; another where one has it already, since that one goes on meanwhile. */
async function freeId(
  db: Db,
  { caller, key, wanted = crypto.randomUUID() }: { caller: Caller; key: string; wanted?: string | undefined },
): Promise<string> {
  const taken = await db.query(
    `select
     from connection
     join integration on integration.id = connection.integration_id
     where integration.environment_id = $1
       and integration.key = $2
       and connection.connection_id = $3
       and connection.deleted_at is null`,
    [caller.environmentId, key, wanted],
  );
  return taken.length === 0 ? wanted : crypto.randomUUID();
}

/** On this route an unknown connection is 404, as official clients expect. */
async function getLive(
  reader: ConnectionReader,
  place: Parameters<ConnectionReader['get']>[0],
): Promise<LiveConnection> {
  try {
    return await reader.get(place);
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'unknown_connection') throw error;
    throw new AppError('not_found', error.message, { cause: error });
  }
}

function requiredKey(key: string | undefined): string {
  if (key !== undefined) return key;
  const errors = [{ code: 'invalid_type', message: 'Say which integration.', path: ['provider_config_key'] }];
  throw new AppError('invalid_query_params', undefined, { errors });
}

/** `tags[name]=value`, as query strings write it; any other parameter is refused. */
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
