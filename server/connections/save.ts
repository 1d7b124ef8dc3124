import { sql } from 'kysely';
import { type Credentials, ownClientOf } from '../auth-modes/mode.ts';
import { insertDataKey } from '../data-keys/store.ts';
import { isViolationOf, type Queryable, tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Integration } from '../integrations/store.ts';
import { requireNodesSince } from '../nodes/nodes.ts';
import type { DataKey, Vault } from '../vault.ts';
import { type Connection, type EndUser, getById } from './store.ts';
import { resume } from './suspension.ts';
import { digestColumns } from './token-digests.ts';

/** How credentials get into a connection, or out of favour: each in the transaction of its event. */

/** Facts about a grant that are kept in plain text. */
export type GrantFacts = {
  account?: { id: string; email?: string | undefined } | undefined;
  scopesRequested?: string[] | undefined;
  scopesGranted?: string[] | undefined;
  accessExpiresAt?: Date | undefined;
  refreshExpiresAt?: Date | undefined;
};

export type NewConnection = {
  integration: Integration;
  /** A UUID where absent. */
  connectionId?: string | undefined;
  credentials: Credentials;
  grant: GrantFacts;
  metadata?: Record<string, unknown> | undefined;
  connectionConfig?: Record<string, unknown> | undefined;
  tags?: Record<string, string> | undefined;
  endUser?: EndUser | undefined;
  webhookUrlOverride?: string | undefined;
  /** Now, and when a grant that is new was given. */
  at: Date;
};

/** The migration of `own_client_id`: services without it renew by the integration's client, or forget whose it is. */
const ownClientsSince = 42;

/** Throws `unavailable` while a node lives that does not know of grants to a client of the connection's own. */
export async function requireOwnClientsKnown(q: Queryable): Promise<void> {
  await requireNodesSince(q, { migration: ownClientsSince, what: "a connection's own OAuth client" });
}

/** Clients that get their token for themselves are known to all: they are read nowhere but in the credentials. */
async function requireKnown(q: Queryable, credentials: Credentials): Promise<void> {
  if (credentials.type === 'OAUTH2' && credentials.config_override !== undefined)
    await requireOwnClientsKnown(q);
}

/**
 * Inserts a connection with a data key of its own. Fails on `connection_id_unique` where the ID is taken, throws
 * `unavailable` as `requireOwnClientsKnown` does where it brings a client along.
 */
export async function insertConnection(
  tx: Queryable,
  { vault, ...given }: NewConnection & { vault: Vault },
): Promise<Connection> {
  await requireKnown(tx, given.credentials);
  const { key, id } = await insertDataKey(tx, vault);
  const [inserted] = await tx
    .run(
      tables
        .insertInto('connection')
        .values({
          environment_id: given.integration.environmentId,
          integration_id: given.integration.id,
          connection_id: given.connectionId ?? crypto.randomUUID(),
          data_key: id,
          metadata: key.sealJson(given.metadata ?? {}, 'metadata'),
          connection_config: key.sealJson(given.connectionConfig ?? {}, 'connection config'),
          tags: JSON.stringify(given.tags ?? {}),
          end_user: given.endUser ? JSON.stringify(given.endUser) : null,
          webhook_url_override: given.webhookUrlOverride ?? null,
          ...credentialColumns(key, given),
          refresh_expires_at: given.grant.refreshExpiresAt ?? null,
          granted_at: given.at,
        })
        .returning('id'),
    )
    .catch((error: unknown) => {
      if (isViolationOf(error, 'connection_integration_id_fkey')) {
        throw new AppError('unknown_provider_config', 'The integration was deleted.', { cause: error });
      }
      throw error;
    });
  return getById(tx, { id: inserted!.id, vault });
}

/**
 * Puts new credentials in place of a connection's own, whatever its state was: it is active again. What else is
 * given is replaced, the rest stays. `current` was read under a lock that still holds (`findConnectionForUpdate`):
 * nothing that another writer stored is lost. Throws `unknown_connection` where it was deleted meanwhile, and
 * `unavailable` as `insertConnection` does.
 */
export async function replaceCredentials(
  tx: Queryable,
  {
    vault,
    current,
    at,
    ...given
  }: { vault: Vault; current: Connection } & Omit<NewConnection, 'integration' | 'connectionId'>,
): Promise<Connection> {
  await requireKnown(tx, given.credentials);
  const { dataKey } = current;
  const isSame = isSameGrant(current.credentials, given.credentials);
  await tx.run(
    tables
      .updateTable('connection')
      .set({
        ...settingColumns(dataKey, given),
        // What was known of an old grant says nothing of a new one.
        ...(!isSame && { ...newGrant, granted_at: at }),
        // The same token is refused as before, as long as nobody has tried it.
        ...(isSame && current.suspension && { withheld_until: at }),
        ...credentialColumns(dataKey, given),
        ...(given.grant.refreshExpiresAt && { refresh_expires_at: given.grant.refreshExpiresAt }),
        credentials_version: sql`credentials_version + 1`,
        status: 'active',
        fault: null,
        outage: null,
        scopes_lacking: null,
        refresh_failures: 0,
        refresh_not_before: null,
        refreshed_at: at,
        updated_at: at,
      })
      .where('id', '=', current.id)
      .where('deleted_at', 'is', null),
  );
  if (current.suspension && !isSame) await resume(tx, { ...current, at });
  return getById(tx, { id: current.id, vault });
}

/** What stands in a connection beside its grant. */
export type ConnectionSettings = Pick<
  NewConnection,
  'metadata' | 'connectionConfig' | 'tags' | 'endUser' | 'webhookUrlOverride'
>;

/** Replaces what is given; the grant and its state stay as they are. Throws `unknown_connection` where it was deleted. */
export async function replaceSettings(
  tx: Queryable,
  { vault, current, at, ...given }: { vault: Vault; current: Connection; at: Date } & ConnectionSettings,
): Promise<Connection> {
  await tx.run(
    tables
      .updateTable('connection')
      .set({ ...settingColumns(current.dataKey, given), updated_at: at })
      .where('id', '=', current.id)
      .where('deleted_at', 'is', null),
  );
  return getById(tx, { id: current.id, vault });
}

/**
 * Stores refreshed tokens if the credentials are still those that were refreshed; false where another writer was
 * first. What that means for the status is written by `recovered` of `status-transitions.ts`, in the same transaction.
 */
export async function swapCredentials(
  tx: Queryable,
  {
    current,
    credentials,
    grant,
    at,
  }: { current: Connection; credentials: Credentials; grant: GrantFacts; at: Date },
): Promise<boolean> {
  const swapped = await tx.run(
    tables
      .updateTable('connection')
      .set({
        ...credentialColumns(current.dataKey, { credentials, grant }),
        ...(grant.refreshExpiresAt && { refresh_expires_at: grant.refreshExpiresAt }),
        credentials_version: sql`credentials_version + 1`,
        updated_at: at,
      })
      .where('id', '=', current.id)
      .where('credentials_version', '=', current.credentialsVersion)
      .where('deleted_at', 'is', null)
      .returning('id'),
  );
  return swapped.length === 1;
}

function settingColumns(key: DataKey, given: ConnectionSettings) {
  return {
    ...(given.metadata && { metadata: key.sealJson(given.metadata, 'metadata') }),
    ...(given.connectionConfig && {
      connection_config: key.sealJson(given.connectionConfig, 'connection config'),
    }),
    ...(given.tags && { tags: JSON.stringify(given.tags) }),
    ...(given.endUser && { end_user: JSON.stringify(given.endUser) }),
    ...(given.webhookUrlOverride !== undefined && { webhook_url_override: given.webhookUrlOverride || null }),
  };
}

function credentialColumns(
  key: DataKey,
  { credentials, grant }: Pick<NewConnection, 'credentials' | 'grant'>,
) {
  const ownClient = ownClientOf(credentials);
  return {
    credentials: key.sealJson(credentials, 'credentials'),
    ...digestColumns(credentials),
    has_own_client: ownClient !== undefined,
    own_client_id: ownClient?.clientId ?? null,
    ...(grant.account && { account_id: grant.account.id, account_email: grant.account.email ?? null }),
    ...(grant.scopesRequested && { scopes_requested: grant.scopesRequested }),
    ...(grant.scopesGranted && { scopes_granted: grant.scopesGranted }),
    access_expires_at: grant.accessExpiresAt ?? null,
  };
}

/** Nobody refreshes it yet, and there is no other token of it. */
const newGrant = {
  account_id: null,
  account_email: null,
  scopes_requested: null,
  scopes_granted: null,
  refresh_expires_at: null,
  refresh_owner: null,
  refresh_until: null,
  refresh_sent_at: null,
  kept_tokens: null,
  expiry_told_for: null,
  withheld: null,
  withheld_until: null,
};

/**
 * Two access tokens without a refresh token have nothing in common that could be seen, and what the provider said of a
 * token in the hands of one client it does not say of it in those of another.
 */
function isSameGrant(one: Credentials, other: Credentials): boolean {
  if (one.type !== 'OAUTH2' || other.type !== 'OAUTH2') return false;
  if (ownClientOf(one)?.clientId !== ownClientOf(other)?.clientId) return false;
  return one.refresh_token !== undefined && one.refresh_token === other.refresh_token;
}
