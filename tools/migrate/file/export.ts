import { openKept } from '../../../server/connections/refresh/previous-refresh-tokens.ts';
import { type Connection, fromRow, selectConnections } from '../../../server/connections/store/store.ts';
import type { Db } from '../../../server/db/pool.ts';
import { listEndpoints } from '../../../server/deliveries/endpoints.ts';
import { readSettings } from '../../../server/deliveries/settings.ts';
import { signingKeys } from '../../../server/deliveries/signing.ts';
import { connectToWire, readConnectSettings } from '../../../server/environments/connect-settings.ts';
import type { Environment } from '../../../server/environments/store.ts';
import { listVariables } from '../../../server/environments/variables.ts';
import type { ProxyRule } from '../../../server/http/auth/proxy-rule.ts';
import { type IntegrationReading, listIntegrations } from '../../../server/integrations/store.ts';
import { listStoredDefinitions } from '../../../server/providers/environment-definitions.ts';
import { cursorWriter, namedBy } from '../../../server/records/cursor.ts';
import { type DatasetView, listDatasets } from '../../../server/records/datasets.ts';
import { listRecords } from '../../../server/records/read/list.ts';
import { portionBytes, portionRecords } from '../../../server/records/read/page.ts';
import { createScratchBuffer } from '../../../server/records/read/portion.ts';
import { listConsumers } from '../../../server/records/retention/consumers.ts';
import { listPolicies } from '../../../server/records/retention/policy.ts';
import { type EntryInput, lineOf } from './entries.ts';

/**
 * The contents of environments, as entries of a file.
 *
 * One connection and one portion of its records are in memory at a time. Each connection is read at the moment when it is
 * written: a connection that changes meanwhile is in the file as before or as after the change, never a mixture.
 */
type ExportSettings = {
  db: Db;
  reading: IntegrationReading;
  environments: readonly Environment[];
  hasRecords: boolean;
  hasApiKeys: boolean;
  now: Date;
  onProgress: (counts: Readonly<Record<string, number>>) => void;
};

/** Connections whose IDs are read at a time. */
const pageSize = 1_000;

/** The lines of the file. Counts the entries by kind in `counts`. */
export async function* exportedLines(
  settings: ExportSettings,
  counts: Record<string, number>,
): AsyncGenerator<Buffer> {
  for await (const entry of entries(settings)) {
    counts[entry.kind] = (counts[entry.kind] ?? 0) + 1;
    settings.onProgress(counts);
    yield lineOf(entry);
  }
  yield lineOf({ kind: 'end', counts: { ...counts } });
}

async function* entries(settings: ExportSettings): AsyncGenerator<EntryInput> {
  for (const environment of settings.environments) {
    yield { kind: 'environment', name: environment.name };
    yield* settingsOf(settings, environment);
    if (settings.hasApiKeys) yield* apiKeysOf(settings, environment);
    yield* providersOf(settings, environment);
    yield* integrationsOf(settings, environment);
    yield* connectionsOf(settings, environment);
  }
}

async function* settingsOf(
  { db, reading, now }: ExportSettings,
  { id }: Environment,
): AsyncGenerator<EntryInput> {
  const { vault } = reading;
  const { addresses, switches, overlapHours } = await readSettings(db, id);
  yield {
    kind: 'settings',
    switches,
    overlap_hours: overlapHours,
    webhook_url: addresses.primary ?? null,
    webhook_url_secondary: addresses.secondary ?? null,
    connect: connectToWire(await readConnectSettings(db, id)),
  };
  const keys = await signingKeys(db, { environmentId: id, vault, now });
  yield {
    kind: 'signing_keys',
    keys: keys.map(({ secret, createdAt, retiresAt }) => ({
      secret,
      created_at: createdAt.toISOString(),
      retires_at: retiresAt?.toISOString() ?? null,
    })),
  };
  for (const { name, value } of await listVariables(db, { environmentId: id, vault }))
    yield { kind: 'variable', name, value };
  const endpoints = await listEndpoints(db, { environmentId: id, kinds: ['events'], limit: 1_000 });
  for (const { url, description, types, format, disabledCause } of endpoints) {
    yield {
      kind: 'endpoint',
      url,
      description,
      types: [...types],
      is_disabled: disabledCause !== null,
      // Older versions can read the entries of standard endpoints.
      ...(format !== 'standard' && { format }),
    };
  }
}

/** Valid keys, except the key of the setting, which each installation has of its own. */
async function* apiKeysOf({ db }: ExportSettings, { id }: Environment): AsyncGenerator<EntryInput> {
  const rows = await db.query<{
    hash: Buffer;
    hint: string;
    name: string;
    scopes: string[];
    rules: ProxyRule[];
    expiresAt: Date | null;
    rateLimit: number | null;
  }>(
    `select
       hash, hint, name, scopes, proxy_rules as rules, expires_at as "expiresAt", rate_limit as "rateLimit"
     from api_key
     where environment_id = $1 and revoked_at is null and not is_setting
     order by id`,
    [id],
  );
  for (const { hash, rules, expiresAt, rateLimit, ...rest } of rows)
    yield {
      kind: 'api_key',
      ...rest,
      hash: hash.toString('base64'),
      proxy_rules: rules,
      expires_at: expiresAt?.toISOString() ?? null,
      rate_limit: rateLimit,
    };
}

async function* providersOf({ db }: ExportSettings, { id }: Environment): AsyncGenerator<EntryInput> {
  for (const { name, text, content } of await listStoredDefinitions(db, id))
    yield {
      kind: 'provider',
      name,
      definition: text,
      content: JSON.parse(content) as Record<string, unknown>,
    };
}

async function* integrationsOf(
  { db, reading }: ExportSettings,
  { id }: Environment,
): AsyncGenerator<EntryInput> {
  for (const one of await listIntegrations(db, { ...reading, environmentId: id }))
    yield {
      kind: 'integration',
      unique_key: one.key,
      provider: one.provider.name,
      display_name: one.displayName,
      is_test: one.isTest,
      client:
        one.client === undefined || one.isTest
          ? null
          : { client_id: one.client.clientId, client_secret: one.client.clientSecret },
      webhook_secret: one.webhookSecret ?? null,
      scopes: one.scopes ?? null,
      integration_config: one.integrationConfig,
      custom: one.custom ?? null,
      forward_webhooks: one.forwardWebhooks,
      proxy_rules: [...one.proxyRules],
    };
  for (const one of await listPolicies(db, id))
    yield {
      kind: 'retention',
      unique_key: one.integrationKey,
      prune_after_days: one.pruneAfterDays,
      remove_tombstones_after_days: one.removeTombstonesAfterDays,
      wait_for_consumers: one.waitForConsumers,
    };
}

async function* connectionsOf(settings: ExportSettings, { id }: Environment): AsyncGenerator<EntryInput> {
  const { db, reading } = settings;
  for await (const connectionId of idsOfConnections(db, id)) {
    // Read only when it is written: the export of earlier records may take hours, and tokens are refreshed meanwhile.
    const [row] = await db.run(
      selectConnections()
        .select('connection.kept_tokens')
        .where('connection.environment_id', '=', id)
        .where('connection.id', '=', connectionId),
    );
    // It was deleted meanwhile; without its data key it counts as deleted.
    if (row === undefined || row.data_key === null || row.credentials === null) continue;
    const { kept_tokens: kept, ...columns } = row;
    const connection = fromRow(columns, reading.vault);
    yield connectionEntry(connection, openKept(connection, kept));
    yield* datasetsOf(settings, connection);
  }
}

async function* idsOfConnections(db: Db, environmentId: number): AsyncGenerator<number> {
  for (let after = 0; ; ) {
    const rows = await db.query<{ id: number }>(
      `select id
       from connection
       where environment_id = $1 and deleted_at is null and id > $2
       order by id
       limit $3`,
      [environmentId, after, pageSize],
    );
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last.id;
    yield* rows.map((row) => row.id);
  }
}

function connectionEntry(one: Connection, keptTokens: string[]): EntryInput {
  return {
    kind: 'connection',
    unique_key: one.integrationKey,
    connection_id: one.connectionId,
    credentials: { ...one.credentials },
    kept_tokens: keptTokens,
    metadata: one.metadata,
    connection_config: one.connectionConfig,
    tags: one.tags,
    end_user: one.endUser ?? null,
    webhook_url_override: one.webhookUrlOverride ?? null,
    account: one.account ? { id: one.account.id, email: one.account.email ?? null } : null,
    scopes_requested: one.scopesRequested ?? null,
    scopes_granted: one.scopesGranted ?? null,
    scopes_lacking: one.scopesLacking ?? null,
    access_expires_at: one.accessExpiresAt?.toISOString() ?? null,
    refresh_expires_at: one.refreshExpiresAt?.toISOString() ?? null,
    granted_at: one.grantedAt.toISOString(),
    refreshed_at: one.refreshedAt.toISOString(),
    created_at: one.createdAt.toISOString(),
    status: one.status,
    fault: one.fault ?? null,
  };
}

async function* datasetsOf(settings: ExportSettings, connection: Connection): AsyncGenerator<EntryInput> {
  const { db, hasRecords } = settings;
  const consumers = await listConsumers(db, connection.id);
  for (const dataset of await listDatasets(db, connection.id)) {
    const following = consumers
      .filter(({ model, variant }) => model === dataset.model && variant === dataset.variant)
      .map(({ name, cursor }) => ({ name, seq: cursor === undefined ? 0 : (namedBy(cursor)?.seq ?? 0) }))
      .sort((one, other) => one.seq - other.seq);
    yield {
      kind: 'dataset',
      model: dataset.model,
      variant: dataset.variant,
      ignore_fields: dataset.ignoreFields,
      keep_previous: dataset.keepPrevious,
      mass_delete_share: dataset.massDeleteShare,
      mass_delete_number: dataset.massDeleteNumber,
    };
    if (hasRecords) yield* recordsOf(settings, { connection, dataset, following });
    // Without records each consumer begins with the first record.
    else for (const { name } of following) yield { kind: 'consumer', name };
  }
}

async function* recordsOf(
  { db }: ExportSettings,
  given: { connection: Connection; dataset: DatasetView; following: { name: string; seq: number }[] },
): AsyncGenerator<EntryInput> {
  const { connection, dataset } = given;
  const following = [...given.following];
  const scratch = createScratchBuffer();
  let cursor: string | undefined;
  for (let hasMore = true; hasMore; ) {
    const portion = await listRecords(db, {
      connection,
      model: dataset.model,
      variant: dataset.variant,
      cursor,
      limit: portionRecords,
      maxBytes: portionBytes,
      scratch,
    });
    hasMore = portion.hasMore;
    for (const record of portion.records) {
      while (following[0] !== undefined && following[0].seq < record.seq)
        yield { kind: 'consumer', name: following.shift()!.name };
      yield {
        kind: 'record',
        id: record.id,
        is_deleted: record.lastAction === 'DELETED',
        fields: record.fields
          ? (JSON.parse(record.fields.toString('utf8')) as Record<string, unknown>)
          : null,
      };
    }
    const last = portion.records.at(-1);
    if (last === undefined || portion.datasetId === undefined) break;
    cursor = cursorWriter(portion.datasetId, portion.since)(last.seq);
  }
  for (const { name } of following) yield { kind: 'consumer', name };
}
