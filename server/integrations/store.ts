/**
 * Integrations: a provider plus our client for it, one row each.
 *
 * Owns: the table `integration`, the sealing of its secrets, test credentials. Does not own: the providers
 * (`providers/`), connections, or permissions (`routes.ts`).
 */
import { type Selectable, sql } from 'kysely';
import { deleteInSteps } from '../db/delete-in-steps.ts';
import { type Db, first, isViolationOf, type Queryable, tables } from '../db/pool.ts';
import type { Integration as IntegrationTable } from '../db/tables.ts';
import { environmentKey } from '../environments/store.ts';
import { AppError, fieldError } from '../errors.ts';
import type { ProxyRule } from '../http/auth/proxy-rule.ts';
import type { Catalog } from '../providers/catalog.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import {
  catalogForIntegration,
  catalogOfEnvironment,
  environmentName,
} from '../providers/environment-definitions.ts';
import { withSandbox } from '../providers/sandbox.ts';
import type { DataKey, Vault } from '../vault.ts';
import type { IntegrationFault } from './fault.ts';

export type OAuthClient = { clientId: string; clientSecret: string };

export type Integration = {
  id: number;
  environmentId: number;
  /** The integration ID: `unique_key` and `provider_config_key` on the wire. */
  key: string;
  /** With the sandbox's addresses if `isTest`. */
  provider: ProviderDefinition;
  displayName: string;
  isTest: boolean;
  /** Undefined for auth modes without one, and for a test integration while the sandbox is off. */
  client: OAuthClient | undefined;
  webhookSecret: string | undefined;
  /** The previous secret, which is accepted until then: senders do not all change at once. */
  formerWebhookSecret: { secret: string; until: Date } | undefined;
  /** Undefined: the provider's default scopes. */
  scopes: string[] | undefined;
  integrationConfig: Record<string, string>;
  custom: Record<string, string> | undefined;
  forwardWebhooks: boolean;
  proxyRules: readonly ProxyRule[];
  fault: IntegrationFault | undefined;
  /** A fault of some of its connections only. */
  partialFault: IntegrationFault | undefined;
  /** When the client of a fault is tried next; undefined: not by time. */
  probeAt: Date | undefined;
  createdAt: Date;
  updatedAt: Date;
};

/** The sandbox's own client, for test credentials. */
export type TestClient = OAuthClient & { url: string };

/** The dependencies of every function that reads a row. */
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
/** How long the previous webhook secret is accepted after a change. */
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
  'probe_at',
  'created_at',
  'updated_at',
] as const;
type IntegrationRow = Pick<Selectable<IntegrationTable>, (typeof columns)[number]>;

const selectAt = ({ environmentId, key }: At) =>
  tables
    .selectFrom('integration')
    .select(columns)
    .where('environment_id', '=', environmentId)
    .where('key', '=', key);

/** The integrations of an environment, or those with these keys, by provider name, then ID. */
export async function listIntegrations(
  db: Queryable,
  given: IntegrationReading & { environmentId: number; keys?: readonly string[] | undefined },
): Promise<Integration[]> {
  const { environmentId, keys, ...reading } = given;
  const key = await environmentKey(db, { environmentId, vault: reading.vault });
  const rows = await db.run(
    tables
      .selectFrom('integration')
      .select(columns)
      .where('environment_id', '=', environmentId)
      .$if(keys !== undefined, (all) => all.where(sql<boolean>`key = any(${keys})`))
      .orderBy('provider')
      .orderBy('key'),
  );
  const names = rows.map(({ provider }) => provider);
  const catalog = await catalogOfEnvironment(db, { catalog: reading.catalog, environmentId, names });
  return rows
    .filter(({ provider }) => !isDeleted(provider, catalog))
    .map((row) => fromRow(row, key, { ...reading, catalog }));
}

/** Undefined if the environment has no such integration. */
export async function findIntegration(
  db: Queryable,
  { environmentId, key, ...reading }: IntegrationReading & At,
): Promise<Integration | undefined> {
  const row = first(await db.run(selectAt({ environmentId, key })));
  if (row === undefined) return undefined;
  const names = [row.provider];
  const catalog = await catalogOfEnvironment(db, { catalog: reading.catalog, environmentId, names });
  if (isDeleted(row.provider, catalog)) return undefined;
  const vaultKey = await environmentKey(db, { environmentId, vault: reading.vault });
  return fromRow(row, vaultKey, { ...reading, catalog });
}

/**
 * Whether a definition of the environment was deleted, after its integrations, since these were read. Without one of the
 * operator's definitions, reads of its integrations fail.
 */
const isDeleted = (provider: string, catalog: Pick<Catalog, 'find'>) =>
  environmentName.test(provider) && catalog.find(provider) === undefined;

/** Throws `unknown_provider_config` (404) if the environment has no such integration. */
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
 * As `getIntegration`. Locks the row: until the transaction ends, no other transaction changes or deletes the
 * integration, or gives it a connection.
 */
export async function getIntegrationForUpdate(
  tx: Queryable,
  at: IntegrationReading & At,
): Promise<Integration> {
  await tx.run(selectAt(at).forUpdate());
  return getIntegration(tx, at);
}

export function unknownProvider(name: string): AppError {
  return new AppError('invalid_body', `No provider is called "${name}". GET /providers lists them.`, {
    errors: [{ code: 'custom', message: 'The provider does not exist.', path: ['provider'] }],
  });
}

/** Fails on `integration_key_unique` if the ID is taken; `throwTaken` converts that error. */
export async function createIntegration(
  tx: Queryable,
  given: IntegrationReading & At & { provider: string } & IntegrationChange,
): Promise<Integration> {
  const { environmentId, ...others } = given;
  const of = { environmentId, name: given.provider };
  const catalog = await catalogForIntegration(tx, { ...of, catalog: given.catalog });
  const reading = { ...others, catalog };
  const definition = catalog.find(given.provider);
  if (definition === undefined) throw unknownProvider(given.provider);
  const key = await environmentKey(tx, { environmentId, vault: reading.vault });
  const defaults = { isTest: false, integrationConfig: {}, forwardWebhooks: true, proxyRules: [] };
  const settings = { ...defaults, displayName: definition.display_name, ...given };
  const values = {
    ...settingColumns(key, settings),
    environment_id: environmentId,
    provider: given.provider,
  };
  const [row] = await tx.run(tables.insertInto('integration').values(values).returning(columns));
  return fromRow(row!, key, reading);
}

/**
 * Changes the given fields only. The ID, and the choice between test and real credentials, can change only without
 * connections: their tokens must not reach another provider than the one that issued them. `current` is read for
 * update. Every call sets `updatedAt` to `at`.
 */
export async function updateIntegration(
  tx: Queryable,
  given: IntegrationReading & { current: Integration; change: IntegrationChange; at: Date },
): Promise<Integration> {
  const { current, change, at, ...reading } = given;
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
    ...settingColumns(key, { ...current, ...change, isTest, client, webhookSecret, formerWebhookSecret }),
    updated_at: at,
    // The change may have remedied the fault, also for connections that are blocked or refused a setting: the next
    // refresh shows it. Until then, the fault stays.
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
  const { environmentId } = current;
  const names = [current.provider.name];
  const catalog = await catalogOfEnvironment(tx, { catalog: reading.catalog, environmentId, names });
  return fromRow(row, key, { ...reading, catalog });
}

/**
 * Deletes what an integration without connections has in large tables, in steps, so that `deleteIntegration` has little left
 * to do. The steps delete nothing if it has a connection.
 */
export async function clearIntegration(db: Db, { id }: Integration): Promise<void> {
  const isUnused = 'not exists (select from connection where integration_id = $1 and deleted_at is null)';
  const own = `integration_id = $1 and ${isUnused}`;
  const ofConnections = `connection_id in (select id from connection where integration_id = $1) and ${isUnused}`;
  for (const [table, where] of [
    ['webhook_body', own],
    ['webhook_seen', own],
    ['run', ofConnections],
    ['sync', ofConnections],
    ['connection', own],
  ] as const)
    await deleteInSteps(db, { table, where, values: [id] });
}

/** Deletes an integration without connections, read for update; else throws `integration_in_use`. */
export async function deleteIntegration(tx: Queryable, integration: Integration): Promise<void> {
  if (await hasConnections(tx, integration.id)) throw new AppError('integration_in_use');
  await tx.run(tables.deleteFrom('integration').where('id', '=', integration.id));
}

/** The OAuth client. Throws if there is none. */
export function clientOf(integration: Integration): OAuthClient {
  if (integration.client) return integration.client;
  if (integration.isTest) throw new AppError('test_credentials_unavailable', undefined, { status: 424 });
  throw new AppError('integration_misconfigured', 'The integration has no client ID and client secret.');
}

/** Whether the integration has a client secret or connections, and so secrets that its addresses could receive. */
export async function hasSecrets(tx: Queryable, { id, client }: Integration): Promise<boolean> {
  return client !== undefined || hasConnections(tx, id);
}

async function hasConnections(tx: Queryable, integrationId: number): Promise<boolean> {
  const found = await tx.query(
    'select from connection where integration_id = $1 and deleted_at is null limit 1',
    [integrationId],
  );
  return found.length > 0;
}

/** A cleared secret removes the previous one too. An unchanged secret changes nothing. */
function formerOf(
  current: Integration,
  { webhookSecret, at }: { webhookSecret: string | undefined; at: Date },
): Integration['formerWebhookSecret'] {
  if (!webhookSecret) return undefined;
  const { webhookSecret: secret, formerWebhookSecret: former } = current;
  if (secret && secret !== webhookSecret) return { secret, until: new Date(at.getTime() + formerMs) };
  return former && former.until > at ? former : undefined;
}

type StoredSettings = Pick<
  Integration,
  'key' | 'displayName' | 'isTest' | 'integrationConfig' | 'forwardWebhooks' | 'proxyRules'
> &
  Partial<Pick<Integration, 'client' | 'webhookSecret' | 'formerWebhookSecret' | 'scopes' | 'custom'>>;

function settingColumns(key: DataKey, settings: StoredSettings) {
  const { client, webhookSecret, formerWebhookSecret: former, custom } = settings;
  const secrets: Sealed = {
    ...(client && { client_secret: client.clientSecret }),
    ...(webhookSecret && { webhook_secret: webhookSecret }),
    ...(former && {
      former_webhook_secret: { secret: former.secret, until: former.until.toISOString() },
    }),
  };
  return {
    key: settings.key,
    display_name: settings.displayName,
    is_test: settings.isTest,
    client_id: client?.clientId ?? null,
    secrets: Object.keys(secrets).length > 0 ? key.sealJson(secrets, 'integration secrets') : null,
    scopes: settings.scopes ?? null,
    integration_config: JSON.stringify(settings.integrationConfig),
    custom: custom ? JSON.stringify(custom) : null,
    forward_webhooks: settings.forwardWebhooks,
    proxy_rules: JSON.stringify(settings.proxyRules),
  };
}

/**
 * The providers of all environments' integrations, without those that the environment defines, by name, each with the unique
 * IDs of its integrations.
 */
export function listUsedProviders(db: Queryable): Promise<{ provider: string; integrations: string }[]> {
  return db.query<{ provider: string; integrations: string }>(
    `select provider, string_agg(distinct key, ', ' order by key) as integrations
     from integration
     where not exists (
       select
       from provider_definition
       where provider_definition.environment_id = integration.environment_id
         and provider_definition.name = integration.provider
     )
     group by provider
     order by provider`,
  );
}

function fromRow(
  row: IntegrationRow,
  key: DataKey,
  { catalog, testClient }: IntegrationReading,
): Integration {
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
    probeAt: row.probe_at ?? undefined,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  };
}

/** Throws `integration_exists` for a violation of the unique ID; any other error unchanged. */
export function throwTaken(error: unknown, key: string): never {
  if (!isViolationOf(error, 'integration_key_unique')) throw error;
  throw new AppError('integration_exists', `An integration with the ID "${key}" exists already.`, {
    errors: [{ code: 'custom', message: 'This ID is taken.', path: ['unique_key'] }],
  });
}
