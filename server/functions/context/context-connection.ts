/** What a run may ask about its connection, its integration and its environment. */
import { z } from 'zod';
import type { Credentials } from '../../auth-modes/mode.ts';
import { type LiveConnection, placeOf } from '../../connections/reader.ts';
import { changeMetadata } from '../../connections/store.ts';
import { credentialsToWire } from '../../connections/wire.ts';
import type { Db } from '../../db/pool.ts';
import { listVariables } from '../../environments/variables.ts';
import { type Ask, ask, type ContextDeps, type RunFacts } from './context.ts';

type Given = {
  fenced: Db;
  place: Parameters<ContextDeps['reader']['get']>[0];
  connection: () => Promise<LiveConnection>;
  facts: RunFacts;
};

const metadataArgs = z.object({ metadata: z.record(z.string(), z.unknown()) });
/** Of one connection, as JSON. */
const mostMetadataBytes = 1024 * 1024;

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
    const fresh = await credentials.fresh(of);
    facts.secrets.noteCredentials(credentialsToWire({ credentials: fresh }));
    return fresh;
  }
  return [
    ask('getConnection', z.unknown(), async () => {
      const found = await connection();
      return connectionView(found, await told(found));
    }),
    ask('getToken', z.unknown(), async () => tokenOf(await told(await connection()))),
    ask('getIntegration', z.unknown(), async () => {
      const { integration } = await connection();
      return {
        unique_key: integration.key,
        provider: integration.provider.name,
        display_name: integration.displayName,
        integration_config: integration.integrationConfig,
        custom: integration.custom ?? null,
      };
    }),
    ask('getEnvironmentVariables', z.unknown(), async () => {
      const variables = await listVariables(db, { environmentId: facts.environmentId, vault });
      facts.secrets.noteVariables(variables);
      return variables;
    }),
    ask('getWebhookURL', z.unknown(), async () => {
      const path = [facts.environment, place.integrationKey].map(encodeURIComponent).join('/');
      return new URL(`/webhook/${path}`, baseUrl).href;
    }),
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
    end_user: endUser ?? null,
    account: account ?? null,
    scopes: scopesGranted ?? null,
    created_at: connection.createdAt.toISOString(),
    updated_at: connection.updatedAt.toISOString(),
  };
}

/** The one text that is the token, where the credentials have one; else all that is no secret of renewal. */
function tokenOf(credentials: Credentials): unknown {
  return credentials.type === 'OAUTH2' ? credentials.access_token : credentialsToWire({ credentials });
}

function requireSmall<T>(metadata: T): T {
  const bytes = Buffer.byteLength(JSON.stringify(metadata));
  if (bytes > mostMetadataBytes) throw new RangeError(`metadata of ${bytes} bytes`);
  return metadata;
}
