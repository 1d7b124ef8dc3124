import { sql } from 'kysely';
import { first, isViolationOf, type Queryable, tables } from '../db/pool.ts';
import { environmentKey } from '../environments/store.ts';
import { AppError, fieldError } from '../errors.ts';
import type { ProxyRule } from '../http/proxy-rule.ts';
import type { Catalog } from '../providers/catalog.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { withSandbox } from '../providers/sandbox.ts';
import type { DataKey, Vault } from '../vault.ts';
import type { IntegrationFault } from './fault.ts';

/**
 * Integrations: a provider plus our client for it, one row each.
 *
 * Owns: the table `integration`, the sealing of its secrets, test credentials. Does not own: what a provider is
 * (`providers/`), connections, or who may call (`routes.ts`).
 */
export type OAuthClient = { clientId: string; clientSecret: string };

export type Integration = {
  id: number;
  environmentId: number;
  /** The integration ID: `unique_key` and `provider_config_key` on the wire. */
  key: string;
  /** Already moved to the sandbox's addresses where `isTest`. */
  provider: ProviderDefinition;
  displayName: string;
  isTest: boolean;
  /** Undefined for auth modes without one, and for a test integration while the sandbox is off. */
  client: OAuthClient | undefined;
  webhookSecret: string | undefined;
  /** The one before it, which proves a sender as well until then: senders are not all moved at once. */
  formerWebhookSecret: { secret: string; until: Date } | undefined;
  /** Undefined: the provider's default scopes. */
  scopes: string[] | undefined;
  integrationConfig: Record<string, string>;
  custom: Record<string, string> | undefined;
  forwardWebhooks: boolean;
  proxyRules: readonly ProxyRule[];
  fault: IntegrationFault | undefined;
  /** What only some of its connections show; the others are well. */
  partialFault: IntegrationFault | undefined;
  createdAt: Date;
  updatedAt: Date;
};

/** The sandbox's own client, which test credentials stand for. */
export type TestClient = OAuthClient & { url: string };

/** What every function here needs to read a row. */
export type IntegrationReading = { vault: Vault; catalog: Catalog; testClient: TestClient | undefined };

export type IntegrationChange = {
  key?: string;
  displayName?: string;
  isTest?: boolean;
  client?: OAuthClient;
  webhookSecret?: string;
  scopes?: string[];
  integrationConfig?: Record<string, string>;
  custom?: Record<string, string>;
  forwardWebhooks?: boolean;
  proxyRules?: readonly ProxyRule[];
};

type At = { environmentId: number; key: string };
type Sealed = {
  client_secret?: string;
  webhook_secret?: string;
  former_webhook_secret?: { secret: string; until: string };
};
/** How long a webhook secret is good beside the one that took its place. */
const formerMs = 24 * 3600_000;

const columns = [
  'id',
  'environment_id',
  'key',
  'provider',
  'display_name',
  'is_test',
  'client_id',
  'secrets',
  'scopes',
  'integration_config',
  'custom',
  'forward_webhooks',
  'proxy_rules',
  'fault',
  'partial_fault',
  'created_at',
  'updated_at',
] as const;
type Row = {
  id: number;
  environment_id: number;
  key: string;
  provider: string;
  display_name: string;
  is_test: boolean;
  client_id: string | null;
  secrets: Buffer | null;
  scopes: string[] | null;
  integration_config: unknown;
  custom: unknown;
  forward_webhooks: boolean;
  proxy_rules: unknown;
  fault: unknown;
  partial_fault: unknown;
  created_at: Date;
  updated_at: Date;
};

/** All integrations of an environment, by provider name, then ID. */
export async function listIntegrations(
  db: Queryable,
  { environmentId, ...reading }: IntegrationReading & { environmentId: number },
): Promise<Integration[]> {
  const key = await environmentKey(db, { environmentId, vault: reading.vault });
  const rows = await db.run(
    tables
      .selectFrom('integration')
      .select(columns)
      .where('environment_id', '=', environmentId)
      .orderBy('provider')
      .orderBy('key'),
  );
  return rows.map((row) => fromRow(row, key, reading));
}

/** Undefined where the environment has no such integration. */
export async function findIntegration(
  db: Queryable,
  { environmentId, key, ...reading }: IntegrationReading & At,
): Promise<Integration | undefined> {
  const row = first(
    await db.run(
      tables
        .selectFrom('integration')
        .select(columns)
        .where('environment_id', '=', environmentId)
        .where('key', '=', key),
    ),
  );
  return row && fromRow(row, await environmentKey(db, { environmentId, vault: reading.vault }), reading);
}

/** Those of the environment that have one of these keys, in no order. */
export async function findIntegrations(
  db: Queryable,
  { environmentId, keys, ...reading }: IntegrationReading & { environmentId: number; keys: string[] },
): Promise<Integration[]> {
  const key = await environmentKey(db, { environmentId, vault: reading.vault });
  const rows = await db.run(
    tables
      .selectFrom('integration')
      .select(columns)
      .where('environment_id', '=', environmentId)
      .where(sql<boolean>`key = any(${keys})`),
  );
  return rows.map((row) => fromRow(row, key, reading));
}

/** Throws `unknown_provider_config` (404) where the environment has no such integration. */
export async function getIntegration(db: Queryable, at: IntegrationReading & At): Promise<Integration> {
  const found = await findIntegration(db, at);
  if (found === undefined) {
    throw new AppError(
      'unknown_provider_config',
      `This environment has no integration with the ID "${at.key}".`,
    );
  }
  return found;
}

/**
 * As `getIntegration`, and nobody else changes or deletes the integration, or gives it a connection, until the
 * transaction ends.
 */
export async function getIntegrationForUpdate(
  tx: Queryable,
  at: IntegrationReading & At,
): Promise<Integration> {
  await tx.run(
    tables
      .selectFrom('integration')
      .select('id')
      .where('environment_id', '=', at.environmentId)
      .where('key', '=', at.key)
      .forUpdate(),
  );
  return getIntegration(tx, at);
}

/** Fails on `integration_key_unique` where the ID is taken; `asTaken` says so to a caller. */
export async function createIntegration(
  tx: Queryable,
  given: IntegrationReading & At & { provider: string } & IntegrationChange,
): Promise<Integration> {
  const { environmentId, ...reading } = given;
  const definition = reading.catalog.get(given.provider);
  const key = await environmentKey(tx, { environmentId, vault: reading.vault });
  const values = {
    environment_id: environmentId,
    key: given.key,
    provider: given.provider,
    display_name: given.displayName ?? definition.display_name,
    is_test: given.isTest ?? false,
    client_id: given.client?.clientId ?? null,
    secrets: sealSecrets(key, given),
    scopes: given.scopes ?? null,
    integration_config: JSON.stringify(given.integrationConfig ?? {}),
    custom: given.custom ? JSON.stringify(given.custom) : null,
    forward_webhooks: given.forwardWebhooks ?? true,
    proxy_rules: JSON.stringify(given.proxyRules ?? []),
  };
  const [row] = await tx.run(tables.insertInto('integration').values(values).returning(columns));
  return fromRow(row!, key, reading);
}

/**
 * Changes what is given and nothing else; the ID, and whether the credentials are test ones, only while there is no
 * connection: its tokens must not reach another provider than the one that gave them. `current` is read for update.
 * Any call moves `updatedAt` to `at`.
 */
export async function updateIntegration(
  tx: Queryable,
  {
    current,
    change,
    at,
    ...reading
  }: IntegrationReading & { current: Integration; change: IntegrationChange; at: Date },
): Promise<Integration> {
  const key = await environmentKey(tx, { environmentId: current.environmentId, vault: reading.vault });
  const isTest = change.client ? false : (change.isTest ?? current.isTest);
  const isRenamed = change.key !== undefined && change.key !== current.key;
  if ((isRenamed || isTest !== current.isTest) && (await hasConnections(tx, current.id))) {
    const [path, what] = isRenamed
      ? [['unique_key'], 'The ID']
      : [['credentials', 'type'], 'Test credentials and real ones'];
    throw fieldError('invalid_body', path, `${what} cannot change while the integration has connections.`);
  }
  const client = change.client ?? (isTest ? undefined : current.client);
  const webhookSecret = change.webhookSecret ?? current.webhookSecret;
  const formerWebhookSecret = formerOf(current, { webhookSecret, at });
  const values = {
    key: change.key ?? current.key,
    display_name: change.displayName ?? current.displayName,
    is_test: isTest,
    client_id: client?.clientId ?? null,
    secrets: sealSecrets(key, {
      ...(client && { client }),
      ...(webhookSecret && { webhookSecret }),
      ...(formerWebhookSecret && { formerWebhookSecret }),
    }),
    scopes: change.scopes ?? current.scopes ?? null,
    integration_config: JSON.stringify(change.integrationConfig ?? current.integrationConfig),
    custom: change.custom
      ? JSON.stringify(change.custom)
      : current.custom
        ? JSON.stringify(current.custom)
        : null,
    forward_webhooks: change.forwardWebhooks ?? current.forwardWebhooks,
    proxy_rules: JSON.stringify(change.proxyRules ?? current.proxyRules),
    updated_at: at,
    // What was wrong may be right now, also for connections that are blocked or refused a setting: the next refresh finds
    // out. Until one has, the fault stands.
    ...(current.fault && current.fault.cause !== 'api_disabled' && { probes: 0, probe_at: at }),
  };
  const [row] = await tx.run(
    tables.updateTable('integration').set(values).where('id', '=', current.id).returning(columns),
  );
  if (row === undefined) throw new AppError('unknown_provider_config');
  await tx.query(
    `update connection
     set refresh_not_before = null
     where integration_id = $1
       and environment_id = $2
       and (status = 'blocked' or outage->>'cause' = 'settings_refused')
       and refresh_not_before is not null
       and deleted_at is null`,
    [current.id, current.environmentId],
  );
  await tx.query(
    `update connection
     set withheld_until = $3
     where integration_id = $1
       and environment_id = $2
       and withheld_until > $3`,
    [current.id, current.environmentId, at],
  );
  return fromRow(row, key, reading);
}

/** Deletes an integration, read for update, that has no connection; throws `integration_in_use` where it has. */
export async function deleteIntegration(tx: Queryable, integration: Integration): Promise<void> {
  if (await hasConnections(tx, integration.id)) throw new AppError('integration_in_use');
  await tx.run(tables.deleteFrom('integration').where('id', '=', integration.id));
}

/** The OAuth client, or the error that says why there is none. */
export function clientOf(integration: Integration): OAuthClient {
  if (integration.client) return integration.client;
  if (integration.isTest) throw new AppError('test_credentials_unavailable', undefined, { status: 424 });
  throw new AppError('integration_misconfigured', 'The integration has no client ID and client secret.');
}

/** Whether there is a client secret or a connection, so that something secret could be sent to its addresses. */
export async function hasSecrets(tx: Queryable, { id, client }: Integration): Promise<boolean> {
  return client !== undefined || hasConnections(tx, id);
}

async function hasConnections(tx: Queryable, integrationId: number): Promise<boolean> {
  const found = await tx.run(
    tables
      .selectFrom('connection')
      .select('id')
      .where('integration_id', '=', integrationId)
      .where('deleted_at', 'is', null)
      .limit(1),
  );
  return found.length > 0;
}

/** Clearing the secret ends the one before it too; what was set to the same stays as it was. */
function formerOf(
  current: Integration,
  { webhookSecret, at }: { webhookSecret: string | undefined; at: Date },
): Integration['formerWebhookSecret'] {
  if (!webhookSecret) return undefined;
  const { webhookSecret: secret, formerWebhookSecret: former } = current;
  if (secret && secret !== webhookSecret) return { secret, until: new Date(at.getTime() + formerMs) };
  return former && former.until > at ? former : undefined;
}

function sealSecrets(
  key: DataKey,
  {
    client,
    webhookSecret,
    formerWebhookSecret: former,
  }: Pick<IntegrationChange, 'client' | 'webhookSecret'> & {
    formerWebhookSecret?: NonNullable<Integration['formerWebhookSecret']>;
  },
): Buffer | null {
  const secrets: Sealed = {
    ...(client && { client_secret: client.clientSecret }),
    ...(webhookSecret && { webhook_secret: webhookSecret }),
    ...(former && {
      former_webhook_secret: { secret: former.secret, until: former.until.toISOString() },
    }),
  };
  return Object.keys(secrets).length > 0 ? key.sealJson(secrets, 'integration secrets') : null;
}

function fromRow(row: Row, key: DataKey, { catalog, testClient }: IntegrationReading): Integration {
  const secrets = row.secrets ? (key.openJson(row.secrets, 'integration secrets') as Sealed) : {};
  const own =
    row.client_id !== null
      ? { clientId: row.client_id, clientSecret: secrets.client_secret ?? '' }
      : undefined;
  const definition = catalog.get(row.provider);
  const former = secrets.former_webhook_secret;
  return {
    id: row.id,
    environmentId: row.environment_id,
    key: row.key,
    provider: row.is_test && testClient ? withSandbox(definition, testClient.url) : definition,
    displayName: row.display_name,
    isTest: row.is_test,
    client: row.is_test ? testClient : own,
    webhookSecret: secrets.webhook_secret,
    formerWebhookSecret: former && { secret: former.secret, until: new Date(former.until) },
    scopes: row.scopes ?? undefined,
    integrationConfig: row.integration_config as Record<string, string>,
    custom: (row.custom as Record<string, string> | null) ?? undefined,
    forwardWebhooks: row.forward_webhooks,
    proxyRules: row.proxy_rules as ProxyRule[],
    fault: (row.fault as IntegrationFault | null) ?? undefined,
    partialFault: (row.partial_fault as IntegrationFault | null) ?? undefined,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  };
}

/** `integration_exists` for the failure of taking a taken ID; any other error as it is. */
export function asTaken(error: unknown, key: string): unknown {
  if (!isViolationOf(error, 'integration_key_unique')) return error;
  return new AppError('integration_exists', `An integration with the ID "${key}" exists already.`, {
    errors: [{ code: 'custom', message: 'This ID is taken.', path: ['unique_key'] }],
  });
}
