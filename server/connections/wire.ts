import { z } from 'zod';
import { isRenewable, modeOf, renewalOf } from '../auth-modes/mode.ts';
import type { Catalog } from '../providers/catalog.ts';
import { healthToWire } from './health.ts';
import type { Connection, EndUser, ListedConnection } from './store.ts';

/** A connection ID, and what official clients accept as one. */
export const connectionId = z
  .string()
  .min(1)
  .max(255)
  .regex(/^[a-zA-Z0-9,.;:=+~[\]|@${}"'\\/_ -]+$/, 'holds a character that an ID may not have');

const json = z.record(z.string(), z.unknown());

/** The same object wherever health is shown. */
export const healthWire = z.object({
  status: z.enum(['active', 'needs_reauth', 'blocked']),
  kind: z.enum(['connection', 'integration', 'transient']).nullable(),
  cause: z.string().nullable(),
  evidence: z.record(z.string(), z.union([z.string(), z.number()])).nullable(),
  since: z.string().nullable(),
  next_step: z.string().nullable(),
  reconnect: z
    .object({
      method: z.literal('POST'),
      path: z.literal('/connect/sessions/reconnect'),
      body: z.object({
        integration_id: z.string(),
        connection_id: z.string(),
        scopes: z.literal('missing').optional(),
      }),
    })
    .nullable(),
  missing_scopes: z.array(z.string()),
  warnings: z.array(
    z.object({
      code: z.string(),
      at: z.string().nullable(),
      evidence: z.record(z.string(), z.union([z.string(), z.number()])),
      next_step: z.string(),
    }),
  ),
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
  account: z.object({ id: z.string(), email: z.string().nullable() }).nullable(),
  scopes: z.object({ requested: z.array(z.string()), granted: z.array(z.string()) }).nullable(),
  /** When the token came and when it ends, never the token; null where neither it nor what renews it has an end. */
  token: z
    .object({
      refreshed_at: z.string(),
      expires_at: z.string().nullable(),
      refresh_expires_at: z.string().nullable(),
    })
    .nullable(),
  last_used_at: z.string().nullable(),
  health: healthWire,
};
export const connectionSummary = z.object({ ...wireFields, created: z.string() });
export const connectionWire = z.object({
  ...wireFields,
  connection_config: json,
  webhook_url_override: z.string().nullable(),
  created_at: z.string(),
  updated_at: z.string(),
  last_fetched_at: z.string().nullable(),
  credentials: json.optional(),
});

/** A connection as lists show it: never with credentials. */
export function toSummary(
  connection: ListedConnection,
  { catalog }: { catalog: Catalog },
): z.input<typeof connectionSummary> {
  return { ...commonFields(connection, catalog), created: connection.createdAt.toISOString() };
}

/** One connection without its credentials. */
export function toWire(
  connection: Connection,
  { catalog }: { catalog: Catalog },
): z.input<typeof connectionWire> {
  return {
    ...commonFields(connection, catalog),
    connection_config: connection.connectionConfig,
    webhook_url_override: connection.webhookUrlOverride ?? null,
    created_at: connection.createdAt.toISOString(),
    updated_at: connection.updatedAt.toISOString(),
    last_fetched_at: connection.lastFetchedAt?.toISOString() ?? null,
  };
}

/** The credentials without what renews them. */
export function credentialsToWire({ credentials }: Pick<Connection, 'credentials'>): Record<string, unknown> {
  return modeOf(credentials).toWire(credentials);
}

/** The credentials with what renews them, for a caller who asked for it and may have it. */
export function renewableCredentialsToWire({ credentials }: Connection): Record<string, unknown> {
  return isRenewable(credentials)
    ? renewalOf(credentials).toWireWithSecret(credentials)
    : modeOf(credentials).toWire(credentials);
}

function commonFields(connection: ListedConnection, catalog: Catalog) {
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
    health: healthToWire(connection, catalog.find(connection.providerName)),
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
