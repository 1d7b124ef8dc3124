import { type Credentials, ownClientOf } from '../auth-modes/mode.ts';
import { tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { IntegrationFault } from '../integrations/fault.ts';
import type { DataKey, Vault } from '../vault.ts';
import type { Fault, Outage } from './health.ts';
import type {
  Connection,
  ConnectionHead,
  ConnectionStatus,
  EndUser,
  ListedConnection,
  TokenSlots,
} from './store.ts';

/** How rows of `connection` are read: no more columns, and no more opened, than what is asked for needs. */

const headColumns = [
  'connection.id',
  'connection.environment_id',
  'connection.integration_id',
  'connection.connection_id',
  'connection.credentials_version',
  'connection.account_id',
  'connection.account_email',
  'connection.scopes_requested',
  'connection.scopes_granted',
  'connection.scopes_lacking',
  'connection.access_expires_at',
  'connection.refresh_expires_at',
  'connection.refresh_not_before',
  'connection.renewed_at',
  'connection.refreshed_at',
  'connection.granted_at',
  'connection.token_slots',
  'connection.status',
  'connection.fault',
  'connection.outage',
  'connection.withheld',
  'connection.withheld_until',
  'connection.has_own_client',
  'connection.tags',
  'connection.end_user',
  'connection.webhook_url_override',
  'connection.created_at',
  'connection.updated_at',
  'connection.last_fetched_at',
  'connection.last_used_at',
  'integration.key as integration_key',
  'integration.provider',
  'integration.is_test',
  'integration.fault as integration_fault',
] as const;
export const selectHeads = () =>
  tables
    .selectFrom('connection')
    .innerJoin('integration', 'integration.id', 'connection.integration_id')
    .select(headColumns)
    .where('connection.deleted_at', 'is', null);
/** A connection whose key is gone counts as deleted, also where a backup was restored without that key. */
export const selectListed = () =>
  selectHeads()
    .leftJoin('data_key', 'data_key.id', 'connection.data_key')
    .select(['data_key.wrapped as data_key', 'connection.metadata']);
export const selectConnections = () =>
  selectListed().select(['connection.credentials', 'connection.connection_config']);
type RowOf<Q> = Q extends () => { executeTakeFirstOrThrow(): Promise<infer R> } ? R : never;
type HeadRow = RowOf<typeof selectHeads>;
type ListedRow = RowOf<typeof selectListed>;
type Row = RowOf<typeof selectConnections>;

/** Opens everything. Throws `unknown_connection` where the row is of a connection that was deleted. */
export function fromRow(row: Row, vault: Vault): Connection {
  if (row.data_key === null || row.credentials === null) throw new AppError('unknown_connection');
  const dataKey = vault.unwrap(row.data_key);
  const credentials = dataKey.openJson(row.credentials, 'credentials') as Credentials;
  return {
    ...headFrom(row),
    dataKey,
    credentials,
    // A service that did not know of the column may have stored them.
    hasOwnClient: ownClientOf(credentials) !== undefined,
    metadata: openRecord(dataKey, row.metadata, 'metadata'),
    connectionConfig: openRecord(dataKey, row.connection_config, 'connection config'),
  };
}

/** Opens the metadata alone. */
export function listedFrom(row: ListedRow, vault: Vault): ListedConnection {
  const { data_key: wrapped, metadata } = row;
  const isSealed = wrapped !== null && metadata !== null;
  return {
    ...headFrom(row),
    metadata: isSealed ? openRecord(vault.unwrap(wrapped), metadata, 'metadata') : {},
  };
}

/** Opens nothing. */
export function headFrom(row: HeadRow): ConnectionHead {
  return {
    id: row.id,
    environmentId: row.environment_id,
    integrationId: row.integration_id,
    integrationKey: row.integration_key,
    providerName: row.provider,
    isTest: row.is_test,
    connectionId: row.connection_id,
    credentialsVersion: row.credentials_version,
    account:
      row.account_id !== null ? { id: row.account_id, email: row.account_email ?? undefined } : undefined,
    scopesRequested: row.scopes_requested ?? undefined,
    scopesGranted: row.scopes_granted ?? undefined,
    accessExpiresAt: row.access_expires_at ?? undefined,
    refreshExpiresAt: row.refresh_expires_at ?? undefined,
    refreshNotBefore: row.refresh_not_before ?? undefined,
    renewedAt: row.renewed_at ?? undefined,
    refreshedAt: row.refreshed_at,
    grantedAt: row.granted_at,
    tokenSlots: (row.token_slots as TokenSlots | null) ?? undefined,
    status: row.status as ConnectionStatus,
    fault: (row.fault as Fault | null) ?? undefined,
    outage: (row.outage as Outage | null) ?? undefined,
    suspension: (row.withheld as IntegrationFault | null) ?? undefined,
    suspendedUntil: row.withheld_until ?? undefined,
    hasOwnClient: row.has_own_client,
    scopesLacking: row.scopes_lacking ?? undefined,
    integrationFault: (row.integration_fault as IntegrationFault | null) ?? undefined,
    tags: row.tags as Record<string, string>,
    endUser: (row.end_user as EndUser | null) ?? undefined,
    webhookUrlOverride: row.webhook_url_override ?? undefined,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    lastFetchedAt: row.last_fetched_at ?? undefined,
    lastUsedAt: row.last_used_at ?? undefined,
  };
}

/** A sealed object; an empty one where there is none. */
export function openRecord(key: DataKey, sealed: Buffer | null, context: string): Record<string, unknown> {
  return sealed === null ? {} : (key.openJson(sealed, context) as Record<string, unknown>);
}
