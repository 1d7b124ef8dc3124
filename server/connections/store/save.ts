/**
 * Writes of connections: credentials, settings, deletion.
 *
 * Owns: the data key of each connection, the digests of refresh tokens. Does not own: `status`, `fault` and `outage`
 * after a refresh (`health/status-transitions.ts`), the lease of a refresh (`refresh/lease.ts`). The caller writes
 * event and audit entry in the same transaction.
 */
import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import { type Credentials, ownClientOf, refreshTokenOf } from '../../auth-modes/modes.ts';
import { insertDataKey } from '../../data-keys/store.ts';
import { isViolationOf, type Queryable, tables } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { Integration } from '../../integrations/store.ts';
import { requireNodesSince } from '../../nodes/nodes.ts';
import type { DataKey, Vault } from '../../vault.ts';
import { type Connection, type EndUser, getById, openRecord } from './store.ts';
import { resume } from './suspension.ts';

/** Facts about a grant that are stored in plain text. */
export type GrantFacts = {
  account?: { id: string; email?: string | undefined } | undefined;
  scopesRequested?: string[] | undefined;
  scopesGranted?: string[] | undefined;
  accessExpiresAt?: Date | undefined;
  refreshExpiresAt?: Date | undefined;
  /** Requested scopes were not granted. */
  lacksScopes?: boolean | undefined;
  /** Nothing proves that the provider accepts the credentials. */
  isUnverified?: boolean | undefined;
};

export type NewConnection = {
  integration: Integration;
  /** Absent: a new UUID. */
  connectionId?: string | undefined;
  credentials: Credentials;
  grant: GrantFacts;
  metadata?: Record<string, unknown> | undefined;
  connectionConfig?: Record<string, unknown> | undefined;
  tags?: Record<string, string> | undefined;
  endUser?: EndUser | undefined;
  webhookUrlOverride?: string | undefined;
  /** The current time, and the time of the grant if it is new. */
  at: Date;
};

/**
 * The migration that adds `own_client_id`. Older nodes refresh with the integration's client, or lose the client's
 * ID.
 */
const ownClientsSince = 42;

/** Throws `unavailable` while a running node does not support connections with their own OAuth client. */
export async function requireOwnClientsSupported(q: Queryable): Promise<void> {
  await requireNodesSince(q, { migration: ownClientsSince, what: "a connection's own OAuth client" });
}

/** All versions support own clients in the mode of client credentials: they read them from the credentials. */
async function requireSupported(q: Queryable, credentials: Credentials): Promise<void> {
  if (credentials.type === 'OAUTH2' && credentials.config_override !== undefined)
    await requireOwnClientsSupported(q);
}

/**
 * Inserts a connection with a new data key. Violates `connection_id_unique` if the ID is taken. Throws `unavailable`
 * if the connection has its own OAuth client and `requireOwnClientsSupported` throws.
 */
export async function insertConnection(
  tx: Queryable,
  { vault, ...given }: NewConnection & { vault: Vault },
): Promise<Connection> {
  await requireSupported(tx, given.credentials);
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
 * Replaces the credentials of a connection in any status; the connection becomes active. Other given settings are
 * replaced, absent ones stay. `current` is read under a lock that still holds (`findConnectionForUpdate`), so no
 * other write is lost. Throws `unknown_connection` if the connection was deleted, and `unavailable` as
 * `insertConnection` does.
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
  await requireSupported(tx, given.credentials);
  const { dataKey } = current;
  const isSame = isSameGrant(current.credentials, given.credentials);
  await tx.run(
    tables
      .updateTable('connection')
      .set({
        ...settingColumns(dataKey, given),
        // Facts about the old grant do not apply to the new one.
        ...(!isSame && { ...newGrant, granted_at: at }),
        // The provider probably still refuses this token: the connection stays suspended, and its next refresh may
        // start now.
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

/** The parts of a connection that are independent of its grant. */
export type ConnectionSettings = Pick<
  NewConnection,
  'metadata' | 'connectionConfig' | 'tags' | 'endUser' | 'webhookUrlOverride'
>;

/**
 * Replaces the given settings; an empty `webhookUrlOverride` clears the stored one. The grant and the status stay.
 * Throws `unknown_connection` (404) if the connection was deleted.
 */
export async function replaceSettings(
  tx: Queryable,
  { connection, at, ...given }: { connection: Connection; at: Date } & ConnectionSettings,
): Promise<void> {
  const updated = await tx.run(
    tables
      .updateTable('connection')
      .set({ ...settingColumns(connection.dataKey, given), updated_at: at })
      .where('id', '=', connection.id)
      .where('deleted_at', 'is', null)
      .returning('id'),
  );
  if (updated.length === 0)
    throw new AppError('unknown_connection', 'The connection was deleted.', { status: 404 });
}

/**
 * Stores refreshed tokens if the credentials still have the version that was refreshed (compare and swap). False if
 * another writer was first. `isUnproven`: the provider has not accepted the credentials, so they do not verify the
 * connection. The caller writes the status in the same transaction (`recovered` of
 * `health/status-transitions.ts`).
 */
export async function swapCredentials(
  tx: Queryable,
  given: { current: Connection; credentials: Credentials; grant: GrantFacts; isUnproven?: boolean; at: Date },
): Promise<boolean> {
  const { current, credentials, grant, isUnproven = false, at } = given;
  const swapped = await tx.run(
    tables
      .updateTable('connection')
      .set({
        ...credentialColumns(current.dataKey, { credentials, grant }),
        ...(isUnproven && { is_unverified: sql<boolean>`is_unverified` }),
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
    ...(grant.scopesGranted && {
      scopes_granted: grant.scopesGranted,
      lacks_scopes: grant.lacksScopes ?? false,
    }),
    is_unverified: grant.isUnverified ?? false,
    access_expires_at: grant.accessExpiresAt ?? null,
  };
}

/** Columns of a grant that has no refresh under way and no previous refresh token. */
const newGrant = {
  account_id: null,
  account_email: null,
  scopes_requested: null,
  scopes_granted: null,
  lacks_scopes: false,
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
 * Compares refresh tokens and clients. Two access tokens without a refresh token cannot be matched to one grant. What
 * the provider says about a token for one client does not apply to the same token for another client.
 */
function isSameGrant(one: Credentials, other: Credentials): boolean {
  if (ownClientOf(one)?.clientId !== ownClientOf(other)?.clientId) return false;
  const token = refreshTokenOf(one);
  return token !== undefined && token === refreshTokenOf(other);
}

/** Locks the connection, passes its metadata to `change`, and stores the result. Throws as `replaceSettings` does. */
export async function changeMetadata(
  tx: Queryable,
  given: { connection: Connection; change: (now: Record<string, unknown>) => Record<string, unknown> },
): Promise<void> {
  const { connection, change } = given;
  const [row] = await tx.run(
    tables.selectFrom('connection').select('metadata').where('id', '=', connection.id).forUpdate(),
  );
  const metadata = change(openRecord(connection.dataKey, row?.metadata ?? null, 'metadata'));
  await replaceSettings(tx, { connection, metadata, at: new Date() });
}

/**
 * Destroys a connection's data key, which makes all sealed values unreadable, and clears the plain-text columns. The
 * row stays until its datasets, which are closed for writes, are removed in the background. Throws `unknown_connection` if
 * another call was first.
 */
export async function destroyConnection(tx: Queryable, { id, at }: { id: number; at: Date }): Promise<void> {
  // Waits for transactions that hold the row (`holdConnection`); an update of non-key columns would not.
  const [before] = await tx.query<{ integrationId: number; environmentId: number; isSuspended: boolean }>(
    `select integration_id as "integrationId", environment_id as "environmentId", withheld is not null as "isSuspended"
     from connection
     where id = $1
     for update`,
    [id],
  );
  const destroyed = await tx.run(
    tables
      .updateTable('connection')
      .set({
        data_key: null,
        credentials: null,
        kept_tokens: null,
        refresh_prefix_digest: null,
        refresh_token_digest: null,
        retry_at: null,
        metadata: null,
        connection_config: null,
        account_id: null,
        account_email: null,
        tags: '{}',
        end_user: null,
        fault: null,
        outage: null,
        withheld: null,
        withheld_until: null,
        webhook_url_override: null,
        own_client_id: null,
        deleted_at: at,
      })
      .where('id', '=', id)
      .where('deleted_at', 'is', null)
      .returning('id'),
  );
  if (destroyed.length === 0) throw new AppError('unknown_connection', 'The connection was deleted already.');
  if (before?.isSuspended) await resume(tx, { ...before, at });
  const datasets = await tx.query<{ id: number }>(
    'select id from dataset_name where connection = $1 order by id',
    [id],
  );
  await closeDatasets(tx, datasets);
}

/** Closes datasets: no write follows. In the order of their ids, as all transactions lock several datasets. */
export async function closeDatasets(tx: Queryable, datasets: readonly { id: number }[]): Promise<void> {
  if (datasets.length === 0) return;
  // Sent together.
  await tx.query(
    datasets.map(({ id }) => `update dataset set closed = true where id = ${id} and not closed`).join(';\n'),
  );
}

/** Records that a caller read the credentials. */
export async function recordFetched(db: Queryable, id: number): Promise<void> {
  await db.run(tables.updateTable('connection').set({ last_fetched_at: new Date() }).where('id', '=', id));
}

/** Half of a digest is enough for the index: the caller decrypts each match and compares the token. */
const digestBytes = 16;

/** The length of a token's shortest prefix in security events (developers.google.com/identity/protocols/risc). */
export const prefixLength = 16;

/**
 * The digest columns for these credentials; null without a refresh token. A security event names a refresh token by
 * its prefix or by its hash, and these columns find the connection.
 */
export function digestColumns(credentials: Credentials) {
  const token = refreshTokenOf(credentials);
  return {
    refresh_prefix_digest: token === undefined ? null : prefixDigest(token),
    refresh_token_digest: token === undefined ? null : halfOf(twiceHashed(token)),
  };
}

/** `prefix`: a token, or at least its first `prefixLength` characters. */
export function prefixDigest(prefix: string): Buffer {
  return halfOf(createHash('sha256').update(prefix.slice(0, prefixLength)).digest());
}

/** SHA-512 of SHA-512, as security events have it. */
export function twiceHashed(token: string): Buffer {
  return createHash('sha512').update(createHash('sha512').update(token).digest()).digest();
}

/** The stored part of a digest. */
export function halfOf(digest: Buffer): Buffer {
  return digest.subarray(0, digestBytes);
}
