import { z } from 'zod';
import { isRenewable, modeNamed, renewalOf } from '../../auth-modes/modes.ts';
import { nameSchemas } from '../../http/openapi/schema-names.ts';
import type { ProviderDefinition } from '../../providers/definition.ts';
import { healthToWire, healthWire } from '../health/health.ts';
import type { Connection, EndUser, ListedConnection } from '../store/store.ts';

/** A connection ID: the characters that official clients accept. */
export const connectionId = z
  .string()
  .min(1)
  .max(255)
  .regex(/^[a-zA-Z0-9,.;:=+~[\]|@${}"'\\/_ -]+$/, 'contains a character that is not allowed in an ID');
nameSchemas({ ConnectionId: connectionId });

const json = z.record(z.string(), z.unknown());

const account = z.object({ id: z.string(), email: z.string().nullable() });
const grantedScopes = z.object({ requested: z.array(z.string()), granted: z.array(z.string()) });
/** When the token was stored and when it expires, never the token. */
const tokenTimes = z.object({
  refreshed_at: z.string(),
  expires_at: z.string().nullable(),
  refresh_expires_at: z.string().nullable(),
});

const wireFields = {
  id: z.number(),
  connection_id: z.string(),
  provider_config_key: z.string(),
  provider: z.string(),
  test: z.boolean(),
  errors: z.array(z.object({ type: z.enum(['auth', 'sync']), log_id: z.string() })),
  end_user: json.nullable(),
  tags: z.record(z.string(), z.string()),
  metadata: json,
  account: account.nullable(),
  scopes: grantedScopes.nullable(),
  /** Null if neither access nor refresh token expires. */
  token: tokenTimes.nullable(),
  last_used_at: z.string().nullable(),
  health: healthWire,
};
export const connectionSummary = z.object({ ...wireFields, created: z.string() });
export const connectionWire = z.object({
  ...wireFields,
  connection_config: json,
  webhook_url_override: z.string().nullable(),
  /** When the provider is next asked for credentials without a caller; null without a fault, or if only the user can end it. */
  next_check_at: z.string().nullable(),
  created_at: z.string(),
  updated_at: z.string(),
  last_fetched_at: z.string().nullable(),
  credentials: json.optional(),
});
nameSchemas({
  Account: account,
  Connection: connectionWire,
  GrantedScopes: grantedScopes,
  ListedConnection: connectionSummary,
  TokenTimes: tokenTimes,
});

/** A connection in lists, without credentials. */
export function toSummary(
  connection: ListedConnection,
  provider: ProviderDefinition | undefined,
): z.input<typeof connectionSummary> {
  return { ...commonFields(connection, provider), created: connection.createdAt.toISOString() };
}

/** One connection without its credentials. */
export function toWire(
  connection: Connection,
  provider: ProviderDefinition | undefined,
): z.input<typeof connectionWire> {
  return {
    ...commonFields(connection, provider),
    connection_config: connection.connectionConfig,
    webhook_url_override: connection.webhookUrlOverride ?? null,
    next_check_at: nextCheckOf(connection)?.toISOString() ?? null,
    created_at: connection.createdAt.toISOString(),
    updated_at: connection.updatedAt.toISOString(),
    last_fetched_at: connection.lastFetchedAt?.toISOString() ?? null,
  };
}

/** The credentials without refresh token or client secret. */
export function credentialsToWire({ credentials }: Pick<Connection, 'credentials'>): Record<string, unknown> {
  return modeNamed(credentials.type).toWire(credentials);
}

/** The credentials with refresh token or client secret, for a caller that requested them and may read them. */
export function renewableCredentialsToWire({ credentials }: Connection): Record<string, unknown> {
  return isRenewable(credentials)
    ? renewalOf(credentials).toWireWithSecret(credentials)
    : modeNamed(credentials.type).toWire(credentials);
}

/** The end of the pause after a failed refresh. */
function nextCheckOf({ status, refreshNotBefore, suspendedUntil }: Connection): Date | undefined {
  if (status === 'needs_reauth') return undefined;
  return status === 'active' ? (suspendedUntil ?? refreshNotBefore) : refreshNotBefore;
}

function commonFields(connection: ListedConnection, provider: ProviderDefinition | undefined) {
  const { account, scopesRequested, scopesGranted } = connection;
  return {
    id: connection.id,
    connection_id: connection.connectionId,
    provider_config_key: connection.integrationKey,
    provider: connection.providerName,
    test: connection.isTest,
    errors: errorsToWire(connection),
    end_user: endUserToWire(connection.endUser),
    tags: connection.tags,
    metadata: connection.metadata,
    account: account ? { id: account.id, email: account.email ?? null } : null,
    scopes: scopesGranted ? { requested: scopesRequested ?? [], granted: scopesGranted } : null,
    token: tokenToWire(connection),
    last_used_at: connection.lastUsedAt?.toISOString() ?? null,
    health: healthToWire(connection, provider),
  };
}

function tokenToWire({ refreshedAt, accessExpiresAt, refreshExpiresAt }: ListedConnection) {
  if (accessExpiresAt === undefined && refreshExpiresAt === undefined) return null;
  return {
    refreshed_at: refreshedAt.toISOString(),
    expires_at: accessExpiresAt?.toISOString() ?? null,
    refresh_expires_at: refreshExpiresAt?.toISOString() ?? null,
  };
}

export function errorsToWire({ status }: Pick<Connection, 'status'>): { type: 'auth'; log_id: string }[] {
  return status === 'active' ? [] : [{ type: 'auth', log_id: '' }];
}

export function endUserToWire(endUser: EndUser | undefined): Record<string, unknown> | null {
  if (endUser === undefined) return null;
  return {
    id: endUser.id,
    display_name: endUser.display_name ?? null,
    email: endUser.email ?? null,
    tags: endUser.tags ?? null,
    organization: endUser.organization
      ? { id: endUser.organization.id, display_name: endUser.organization.display_name ?? null }
      : null,
  };
}
