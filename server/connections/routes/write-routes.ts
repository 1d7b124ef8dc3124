import { z } from 'zod';
import { type Db, retryOnViolation } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { type Caller, hasScope } from '../../http/auth/caller.ts';
import { nameSchemas } from '../../http/openapi/schema-names.ts';
import type { App } from '../../http/server.ts';
import { webAddress } from '../../http/text.ts';
import { getIntegration } from '../../integrations/store.ts';
import { integrationKey } from '../../integrations/wire.ts';
import type { Vault } from '../../vault.ts';
import { disconnect, revokeChoices } from '../disconnect.ts';
import { importConnection, readImported, tryImported } from '../import.ts';
import type { RevocationDeps } from '../revocation/revocations.ts';
import { type ConnectionHooks, noHooks } from '../store/hooks.ts';
import { type ConnectionReader, placeOf } from '../store/reader.ts';
import { changeMetadata } from '../store/save.ts';
import { auditConnection, findConnection } from '../store/store.ts';
import { endUserInput, tagsInput, tagsOf } from '../store/tags.ts';
import { recordClientResult } from '../verify.ts';
import { connectionId, connectionWire, credentialsToWire, toWire } from './wire.ts';

export type WriteDeps = RevocationDeps & {
  reader: ConnectionReader;
  hooks?: ConnectionHooks;
  now: () => Date;
  /** Runs after a connection was deleted. Never awaited. */
  afterDelete: () => void;
};

const json = z.record(z.string(), z.unknown());
/** The settings that an application may send with an import and change later. */
export const connectionSettings = {
  tags: tagsInput.optional(),
  end_user: endUserInput.optional(),
  webhook_url_override: z.union([z.literal(''), webAddress()]).optional(),
};

/** Creates a connection from tokens and keys that the application already has. */
export function importRoute(app: App, deps: WriteDeps): void {
  const { db, reading, reader, hooks = noHooks, fetchFor, now } = deps;
  const { vault } = reading;

  app.post(
    '/connections',
    {
      config: { access: { by: 'key', scope: 'connections:write' }, idempotent: true },
      schema: {
        operationId: 'importConnection',
        summary: 'Import a connection',
        description:
          'A connection with this ID gets the new credentials, metadata and tags; the tags of its end user are added. If ' +
          "the provider's definition names a call for it, the credentials are tested first. The response has the sent " +
          'credentials, or the stored ones for keys that may read them.',
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
            integration_id: 'google-sheet',
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
      const { provider_config_key: key, connection_id: id } = body;
      const { environmentId } = caller;
      const integration = await getIntegration(db, { ...reading, environmentId, key });
      // Test credentials must never be sent to the real provider.
      if (integration.isTest && reading.testClient === undefined)
        throw new AppError('test_credentials_unavailable');
      const connectionConfig = body.connection_config ?? {};
      const credentials = readImported(integration, body.credentials);
      const tried = await tryImported(
        { integration, credentials, connectionConfig },
        {
          fetch: fetchFor({ isTest: integration.isTest }),
          now: now(),
          onClientResult: (fault) => recordClientResult(deps, { integration, fault }),
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
      const known =
        id === undefined
          ? undefined
          : await findConnection(db, { environmentId, integrationKey: key, connectionId: id, vault });
      await hooks.validate({
        integration,
        connectionConfig,
        credentials: tried.credentials,
        // The connection with the given ID stays in use while the new credentials are validated.
        connectionId: id === undefined || known ? crypto.randomUUID() : id,
        account: undefined,
        scopesGranted: tried.grant.scopesGranted,
        accessExpiresAt: tried.grant.accessExpiresAt,
        metadata: given.metadata,
        tags: given.tags ?? {},
        endUser: body.end_user,
      });
      const save = () =>
        retryOnViolation('connection_id_unique', () =>
          db.transaction((tx) => importConnection(tx, { caller, integration, id, given, reading, hooks })),
        );
      // If the connection was deleted while its credentials were replaced, the import creates it again.
      const saved = await save().catch((error: unknown) => {
        if (error instanceof AppError && error.code === 'unknown_connection') return save();
        throw error;
      });
      reader.forget(placeOf(saved));
      hooks.afterCommit();
      reply.code(201);
      // Credentials other than the sent ones are shown only to callers that may read them.
      const shown = hasScope(caller, 'connections:credentials') ? saved : { credentials };
      return { ...toWire(saved, integration.provider), credentials: credentialsToWire(shown) };
    },
  );
}

const metadataBody = z.strictObject({
  connection_id: z.union([connectionId, z.array(connectionId).min(1).max(1000)]),
  provider_config_key: integrationKey,
  metadata: z.record(z.string(), z.unknown()),
});
nameSchemas({ MetadataChange: metadataBody });

/** Changes the metadata of all named connections, or of none. */
export function metadataRoutes(
  app: App,
  { db, vault, reader }: { db: Db; vault: Vault; reader: ConnectionReader },
): void {
  const config = { access: { by: 'key', scope: 'connections:write' } } as const;
  const schema = {
    description:
      'For one or several connections. If a named connection cannot be changed, no connection is changed.',
    errors: [{ code: 'unknown_connection', status: 404 }],
    body: metadataBody,
  } as const;
  app.post(
    '/connections/metadata',
    {
      config,
      schema: {
        ...schema,
        operationId: 'replaceMetadata',
        summary: 'Replace metadata',
        response: { 201: metadataBody },
      },
    },
    async ({ body, caller }, reply) => {
      await changeAll(caller, body, () => body.metadata);
      reply.code(201);
      return body;
    },
  );
  app.patch(
    '/connections/metadata',
    {
      config,
      schema: {
        ...schema,
        operationId: 'mergeMetadata',
        summary: 'Merge into metadata, one level deep',
        description: `${schema.description} A given field replaces the stored field.`,
        response: { 200: metadataBody },
      },
    },
    async ({ body, caller }) => {
      await changeAll(caller, body, (now) => ({ ...now, ...body.metadata }));
      return body;
    },
  );

  async function changeAll(
    caller: Caller,
    body: z.output<typeof metadataBody>,
    change: (now: Record<string, unknown>) => Record<string, unknown>,
  ): Promise<void> {
    // All calls lock in one order, so that two of them cannot deadlock.
    const at = (connectionId: string) => ({
      environmentId: caller.environmentId,
      integrationKey: body.provider_config_key,
      connectionId,
    });
    const ids = [...new Set([body.connection_id].flat())].sort();
    await db.transaction(async (tx) => {
      for (const id of ids) {
        const connection = await findConnection(tx, { ...at(id), vault });
        if (connection === undefined) {
          throw new AppError('unknown_connection', `There is no connection "${id}".`, { status: 404 });
        }
        await changeMetadata(tx, { connection, change });
        await auditConnection(tx, connection, { caller, action: 'connection.metadata_changed' });
      }
    });
    for (const id of ids) reader.forget(at(id));
  }
}

/** Deletes a connection and optionally revokes its grant. */
export function deleteRoute(app: App, deps: WriteDeps): void {
  app.delete(
    '/connections/:id',
    {
      config: { access: { by: 'key', scope: 'connections:write' } },
      schema: {
        operationId: 'deleteConnection',
        summary: 'Delete a connection, destroy its data key and revoke its grant',
        description:
          'By default the grant is revoked if no other connection of this installation needs it. `revoke=always` always ' +
          'revokes it, if `confirm_others` is the number of other connections that lose access; `revoke=never` keeps it.',
        errors: ['unknown_connection', 'revocation_ends_others'],
        params: z.object({ id: connectionId }),
        querystring: z.strictObject({
          provider_config_key: integrationKey,
          revoke: z.enum(revokeChoices).default('auto'),
          confirm_others: z.coerce.number().int().min(0).default(0),
        }),
        response: {
          200: z.object({
            success: z.literal(true),
            revocation: z.enum(['done', 'queued', 'shared', 'failed', 'none']),
          }),
        },
      },
    },
    async ({ params: { id }, query, caller }) => {
      const { provider_config_key: integrationKey, revoke, confirm_others: confirmedOthers } = query;
      const at = { environmentId: caller.environmentId, integrationKey, connectionId: id };
      const { revocation } = await disconnect(deps, { at, caller, revoke, confirmedOthers });
      deps.afterDelete();
      return { success: true as const, revocation };
    },
  );
}
