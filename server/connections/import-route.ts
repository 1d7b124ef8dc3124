import { z } from 'zod';
import type { Fetch } from '../auth-modes/token-response.ts';
import { type Db, retryOnViolation } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { type Caller, hasScope } from '../http/caller.ts';
import type { App } from '../http/server.ts';
import { webAddress } from '../http/text.ts';
import { getIntegration, type Integration, type IntegrationReading } from '../integrations/store.ts';
import { integrationKey } from '../integrations/wire.ts';
import type { Logger } from '../log.ts';
import { noteClientVerdict } from './client-verdict.ts';
import { type ConnectionHooks, noHooks } from './hooks.ts';
import { importConnection, readImported, tryImported } from './import.ts';
import { type ConnectionReader, placeOf } from './reader.ts';
import { endUserInput, tagsInput, tagsOf } from './tags.ts';
import { connectionId, connectionWire, credentialsToWire, toWire } from './wire.ts';

export type ImportDeps = {
  db: Db;
  reading: IntegrationReading;
  reader: ConnectionReader;
  /** What the application's own code does when a connection is made. */
  hooks?: ConnectionHooks;
  /** The guarded way to the network; test integrations alone may reach the sandbox. */
  fetchFor: (integration: Integration) => Fetch;
  log: Logger;
  now: () => Date;
};

const json = z.record(z.string(), z.unknown());
/** What an application may set when a connection is imported, and change later. */
export const connectionSettings = {
  tags: tagsInput.optional(),
  end_user: endUserInput.optional(),
  webhook_url_override: z.union([z.literal(''), webAddress()]).optional(),
};

/** Tokens and keys that an application has from elsewhere become a connection. */
export function importRoute(app: App, deps: ImportDeps): void {
  const { db, reading, reader, hooks = noHooks, fetchFor, now } = deps;
  const { catalog } = reading;

  app.post(
    '/connections',
    {
      config: { access: { by: 'key', scope: 'connections:write' } },
      schema: {
        operationId: 'importConnection',
        summary: 'Import a connection',
        description:
          'An existing ID gets the new credentials; its metadata and tags become what the body holds, beside the tags of ' +
          'its end user. Where the provider has a call for it, the credentials are tried first. The answer shows those ' +
          'that were sent, and those that are stored to keys that may read them.',
        errors: [
          'unknown_provider_config',
          'test_credentials_unavailable',
          'connection_test_failed',
          { code: 'integration_misconfigured', status: 400 },
          'connection_validation_failed',
          'address_not_allowed',
          'unknown_connection',
        ],
        example: {
          body: {
            provider_config_key: 'google-sheet',
            connection_id: 'ada-sheets',
            credentials: { type: 'OAUTH2', access_token: 'token-of-the-account' },
          },
        },
        body: z.strictObject({
          provider_config_key: integrationKey,
          connection_id: connectionId.optional(),
          credentials: json,
          metadata: json.optional(),
          connection_config: json.optional(),
          ...connectionSettings,
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
      // If the connection was deleted while its credentials were replaced, the import creates it again.
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
