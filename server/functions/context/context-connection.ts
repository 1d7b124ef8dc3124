/** What a run may ask about its connection, its integration and its environment. */
import { z } from 'zod';
import type { Credentials } from '../../auth-modes/mode.ts';
import { type LiveConnection, placeOf } from '../../connections/reader.ts';
import { changeMetadata } from '../../connections/store.ts';
import { credentialsToWire, endUserToWire, errorsToWire } from '../../connections/wire.ts';
import type { Db } from '../../db/pool.ts';
import { listVariables } from '../../environments/variables.ts';
import { AppError } from '../../errors.ts';
import { toWire as integrationToWire } from '../../integrations/wire.ts';
import { type Ask, ask, type ContextDeps, noRow, type RunFacts, requireRow } from './context.ts';

type Given = {
  fenced: Db;
  place: Parameters<ContextDeps['reader']['get']>[0];
  connection: () => Promise<LiveConnection>;
  facts: RunFacts;
};

const connectionArgs = z.object({ forceRefresh: z.boolean().default(false) });
const metadataArgs = z.object({ metadata: z.record(z.string(), z.unknown()) });
/** Of one connection, as JSON. */
const maxMetadataBytes = 1024 * 1024;

export function connectionAsks(
  { db, vault, reader, credentials, baseUrl }: ContextDeps,
  { fenced, place, connection, facts }: Given,
): [string, Ask][] {
  type Metadata = Record<string, unknown>;
  async function change(to: (now: Metadata) => Metadata): Promise<null> {
    const known = await connection();
    await fenced.transaction((tx) =>
      changeMetadata(tx, { connection: known, change: (now) => requireSmall(to(now)) }),
    );
    reader.forget(placeOf(known));
    return null;
  }
  async function told(of: LiveConnection): Promise<Credentials> {
    return noted(await credentials.fresh(of));
  }
  async function renewed(of: LiveConnection): Promise<LiveConnection> {
    if (facts.connectionRow === noRow)
      throw new AppError(
        'invalid_body',
        'Credentials of a connection that is not stored yet are not renewed.',
      );
    const known = requireRow(await credentials.refreshedLiving(of), facts.connectionRow);
    noted(known.credentials);
    return known;
  }
  function noted(fresh: Credentials): Credentials {
    facts.secrets.noteCredentials(credentialsToWire({ credentials: fresh }));
    return fresh;
  }
  const webhookUrl = () => {
    const path = [facts.environment, place.integrationKey].map(encodeURIComponent).join('/');
    return new URL(`/webhook/${path}`, baseUrl).href;
  };
  return [
    ask('getConnection', connectionArgs, async ({ forceRefresh }) => {
      const found = await connection();
      if (!forceRefresh) return connectionView(found, await told(found));
      const known = await renewed(found);
      return connectionView(known, known.credentials);
    }),
    ask('getToken', z.unknown(), async () => tokenOf(await told(await connection()))),
    ask('getIntegration', z.unknown(), async () => {
      const { integration } = await connection();
      const { unique_key, provider, display_name, logo, forward_webhooks, ...rest } = integrationToWire(
        integration,
        { baseUrl },
      );
      const { integration_config, custom, created_at, updated_at } = rest;
      return {
        ...{ unique_key, provider, display_name, logo, forward_webhooks, webhook_url: webhookUrl() },
        ...{ integration_config, custom, created_at, updated_at },
      };
    }),
    ask('getEnvironmentVariables', z.unknown(), async () => {
      const variables = await listVariables(db, { environmentId: facts.environmentId, vault });
      facts.secrets.noteVariables(variables);
      return variables;
    }),
    ask('getWebhookURL', z.unknown(), async () => webhookUrl()),
    ask('getMetadata', z.unknown(), async () => (await connection()).metadata),
    ask('setMetadata', metadataArgs, ({ metadata }) => change(() => metadata)),
    ask('updateMetadata', metadataArgs, ({ metadata }) => change((now) => ({ ...now, ...metadata }))),
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

/** The one text that is the token, where the credentials have one; else all that is no secret of renewal. */
function tokenOf(credentials: Credentials): unknown {
  return credentials.type === 'OAUTH2' ? credentials.access_token : credentialsToWire({ credentials });
}

function requireSmall<T>(metadata: T): T {
  const bytes = Buffer.byteLength(JSON.stringify(metadata));
  if (bytes > maxMetadataBytes) throw new RangeError(`metadata of ${bytes} bytes`);
  return metadata;
}
