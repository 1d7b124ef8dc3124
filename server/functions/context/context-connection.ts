/** Calls of a run about its connection, its integration and its environment. */
import { z } from 'zod';
import type { Credentials } from '../../auth-modes/modes.ts';
import { credentialsToWire, endUserToWire, errorsToWire } from '../../connections/routes/wire.ts';
import { type LiveConnection, placeOf } from '../../connections/store/reader.ts';
import { changeMetadata } from '../../connections/store/save.ts';
import type { Db } from '../../db/pool.ts';
import { listVariables } from '../../environments/variables.ts';
import { AppError } from '../../errors.ts';
import { toWire as integrationToWire } from '../../integrations/wire.ts';
import {
  type ContextDeps,
  noRow,
  type RunFacts,
  requireRow,
  type ServiceCall,
  serviceCall,
} from './service-call.ts';

type ConnectionCallParts = {
  fenced: Db;
  place: Parameters<ContextDeps['reader']['get']>[0];
  connection: () => Promise<LiveConnection>;
  facts: RunFacts;
};

const connectionArgs = z.object({ forceRefresh: z.boolean().default(false) });
const metadataArgs = z.object({ metadata: z.record(z.string(), z.unknown()) });
/** The maximum size of a connection's metadata, as JSON. */
const maxMetadataBytes = 1024 * 1024;

export function connectionCalls(
  { db, vault, reader, credentials, baseUrl, webhookBaseUrl }: ContextDeps,
  { fenced, place, connection, facts }: ConnectionCallParts,
): [string, ServiceCall][] {
  type Metadata = Record<string, unknown>;
  async function change(to: (now: Metadata) => Metadata): Promise<null> {
    const known = await connection();
    await fenced.transaction((tx) =>
      changeMetadata(tx, { connection: known, change: (now) => requireSmall(to(now)) }),
    );
    reader.forget(placeOf(known));
    return null;
  }
  async function freshCredentials(of: LiveConnection): Promise<Credentials> {
    return hideInLog(await credentials.fresh(of));
  }
  async function refreshed(of: LiveConnection): Promise<LiveConnection> {
    if (facts.connectionRow === noRow)
      throw new AppError(
        'invalid_body',
        'Credentials of a connection that is not stored yet cannot be renewed.',
      );
    const known = requireRow(await credentials.refreshedLiving(of), facts.connectionRow);
    hideInLog(known.credentials);
    return known;
  }
  function hideInLog(fresh: Credentials): Credentials {
    facts.secrets.addCredentials(credentialsToWire({ credentials: fresh }));
    return fresh;
  }
  const webhookUrl = () => {
    const path = [facts.environment, place.integrationKey].map(encodeURIComponent).join('/');
    return `${webhookBaseUrl}/webhook/${path}`;
  };
  return [
    serviceCall('getConnection', connectionArgs, async ({ forceRefresh }) => {
      const found = await connection();
      if (!forceRefresh) return connectionView(found, await freshCredentials(found));
      const known = await refreshed(found);
      return connectionView(known, known.credentials);
    }),
    serviceCall('getToken', z.unknown(), async () => tokenOf(await freshCredentials(await connection()))),
    serviceCall('getIntegration', z.unknown(), async () => {
      const { integration } = await connection();
      const { unique_key, provider, display_name, logo, forward_webhooks, ...rest } = integrationToWire(
        integration,
        { baseUrl },
      );
      const { integration_config, custom, created_at, updated_at } = rest;
      return {
        unique_key,
        provider,
        display_name,
        logo,
        forward_webhooks,
        webhook_url: webhookUrl(),
        integration_config,
        custom,
        created_at,
        updated_at,
      };
    }),
    serviceCall('getEnvironmentVariables', z.unknown(), async () => {
      const variables = await listVariables(db, { environmentId: facts.environmentId, vault });
      facts.secrets.addVariables(variables);
      return variables;
    }),
    serviceCall('getWebhookURL', z.unknown(), async () => webhookUrl()),
    serviceCall('getMetadata', z.unknown(), async () => (await connection()).metadata),
    serviceCall('setMetadata', metadataArgs, ({ metadata }) => change(() => metadata)),
    serviceCall('updateMetadata', metadataArgs, ({ metadata }) => change((now) => ({ ...now, ...metadata }))),
  ];
}

function connectionView(connection: LiveConnection, fresh: Credentials): Record<string, unknown> {
  const { account, endUser, scopesGranted } = connection;
  return {
    id: connection.id,
    connection_id: connection.connectionId,
    provider_config_key: connection.integrationKey,
    provider: connection.providerName,
    metadata: connection.metadata,
    connection_config: connection.connectionConfig,
    credentials: credentialsToWire({ credentials: fresh }),
    tags: connection.tags,
    errors: errorsToWire(connection),
    end_user: endUserToWire(endUser),
    webhook_url_override: connection.webhookUrlOverride ?? null,
    account: account ?? null,
    scopes: scopesGranted ?? null,
    created_at: connection.createdAt.toISOString(),
    updated_at: connection.updatedAt.toISOString(),
    last_fetched_at: connection.lastFetchedAt?.toISOString() ?? null,
  };
}

/** The access token, of OAuth 1.0a with its secret; for other credentials all fields except those that renew them. */
function tokenOf(credentials: Credentials): unknown {
  if (credentials.type === 'OAUTH1')
    return { oAuthToken: credentials.oauth_token, oAuthTokenSecret: credentials.oauth_token_secret };
  return credentials.type === 'OAUTH2' ? credentials.access_token : credentialsToWire({ credentials });
}

function requireSmall<T>(metadata: T): T {
  const bytes = Buffer.byteLength(JSON.stringify(metadata));
  if (bytes > maxMetadataBytes) throw new RangeError(`metadata of ${bytes} bytes`);
  return metadata;
}
