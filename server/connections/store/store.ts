/**
 * Connections: one authorized account each.
 *
 * Owns: the table `connection`, how its rows are read, what events and audit entries say about a connection. Does not
 * own: writes (`save.ts`, `suspension.ts`, `refresh/lease.ts`, `health/status-transitions.ts`), lists (`list.ts`),
 * the meaning of a fault (`health/health.ts`), refreshes (`refresh/`), the flow that makes a connection (`connect/`).
 *
 * The folders and files of `server/connections/` import in one direction: `store/` < `health/` < `revocation/` <
 * `refresh/` < `verify.ts`, `import.ts` and `disconnect.ts` (beside the folders) < `routes/`.
 */
import { type AuditEntry, writeAudit } from '../../activity/audit.ts';
import { type Credentials, ownClientOf } from '../../auth-modes/modes.ts';
import { first, type Queryable, type Tx, tables, type WithoutNulls, withoutNulls } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { ConnectionSubject, EventData, EventType } from '../../events/event-types.ts';
import { queueEvent } from '../../events/outbox.ts';
import { actorOf, type Caller } from '../../http/auth/caller.ts';
import type { IntegrationFault } from '../../integrations/fault.ts';
import type { DataKey, Vault } from '../../vault.ts';

export const connectionStatuses = ['active', 'needs_reauth', 'blocked'] as const;
export type ConnectionStatus = (typeof connectionStatuses)[number];

export type EndUser = {
  id: string;
  email?: string | null | undefined;
  display_name?: string | null | undefined;
  tags?: Record<string, string> | null | undefined;
  organization?: { id: string; display_name?: string | null | undefined } | null | undefined;
};

/** Live refresh tokens of an account with one OAuth client, and the provider's limit for them. */
export type TokenSlots = { used: number; limit: number };

/** Why a connection does not work. `health/health.ts` has the status and next step of each cause. */
export type Cause =
  | 'grant_dead'
  | 'credentials_refused'
  | 'testing_expired'
  | 'access_time_ended'
  | 'session_policy'
  | 'no_refresh_token'
  | 'refresh_reply_lost'
  | 'security_event'
  | 'revoked_by_disconnect'
  | 'blocked_by_admin'
  | 'scopes_refused';

/** The provider's error codes and HTTP status, never a token and never the provider's text. */
export type Evidence = Record<string, string | number>;

export type Fault = {
  cause: Cause;
  evidence: Evidence;
  /** ISO 8601. */
  since: string;
  next_step: string;
};

export type OutageCause = 'provider_not_answering' | 'settings_refused';

/**
 * A series of refreshes that brought no token and did not end the connection: the provider did not judge them, or it
 * refused a setting of a connection with its own client.
 */
export type Outage = Omit<Fault, 'cause'> & { cause: OutageCause; attempts: number };

/** The names by which callers find a connection. */
export type ConnectionPlace = { environmentId: number; integrationKey: string; connectionId: string };

const headColumns = [
  'connection.id',
  'connection.environment_id as environmentId',
  'connection.integration_id as integrationId',
  'integration.key as integrationKey',
  'integration.provider as providerName',
  'integration.is_test as isTest',
  'connection.connection_id as connectionId',
  'connection.credentials_version as credentialsVersion',
  'connection.account_id',
  'connection.account_email',
  'connection.scopes_requested as scopesRequested',
  'connection.scopes_granted as scopesGranted',
  'connection.access_expires_at as accessExpiresAt',
  'connection.refresh_expires_at as refreshExpiresAt',
  'connection.granted_at as grantedAt',
  /** Set after a failed refresh: the earliest time of the next attempt. */
  'connection.refresh_not_before as refreshNotBefore',
  /** The last successful refresh that followed a 401 of the provider's API. */
  'connection.renewed_at as renewedAt',
  /** When the current credentials were stored: by the user's consent, an import or a refresh. */
  'connection.refreshed_at as refreshedAt',
  /** The connection has its own OAuth client, so faults of the integration's client do not affect it. */
  'connection.has_own_client as hasOwnClient',
  /** Scopes that an API reported as missing, whatever the stored grant says. */
  'connection.scopes_lacking as scopesLacking',
  /** The credentials were stored without a proof that the provider accepts them, and there is none since. */
  'connection.is_unverified as isUnverified',
  /** The end of `suspension`: both or none. */
  'connection.withheld_until as suspendedUntil',
  'connection.webhook_url_override as webhookUrlOverride',
  'connection.created_at as createdAt',
  'connection.updated_at as updatedAt',
  'connection.last_fetched_at as lastFetchedAt',
  /** The last use of the credentials, at most a minute late (`refresh/credentials.ts`). */
  'connection.last_used_at as lastUsedAt',
] as const;
export const selectHeads = (from: Pick<typeof tables, 'selectFrom'> = tables) =>
  from
    .selectFrom('connection')
    .innerJoin('integration', 'integration.id', 'connection.integration_id')
    .select(headColumns)
    .select(({ ref }) => [
      ref('connection.status').$castTo<ConnectionStatus>().as('status'),
      ref('connection.fault').$castTo<Fault | null>().as('fault'),
      /** Set while the provider does not judge refreshes. */
      ref('connection.outage').$castTo<Outage | null>().as('outage'),
      /** The integration's fault that suspends the refreshes of this connection only. */
      ref('connection.withheld').$castTo<IntegrationFault | null>().as('suspension'),
      ref('integration.fault').$castTo<IntegrationFault | null>().as('integrationFault'),
      /** Set while the number of the account's live tokens is near the provider's limit. */
      ref('connection.token_slots').$castTo<TokenSlots | null>().as('tokenSlots'),
      ref('connection.tags').$castTo<Record<string, string>>().as('tags'),
      ref('connection.end_user').$castTo<EndUser | null>().as('endUser'),
    ])
    .where('connection.deleted_at', 'is', null);
/** A connection without its data key counts as deleted, also if a backup was restored without that key. */
export const selectListed = (from?: Pick<typeof tables, 'selectFrom'>) =>
  selectHeads(from)
    .leftJoin('data_key', 'data_key.id', 'connection.data_key')
    .select(['data_key.wrapped as data_key', 'connection.metadata']);
export const selectConnections = () =>
  selectListed().select(['connection.credentials', 'connection.connection_config']);
const selectAt = ({ environmentId, integrationKey, connectionId }: ConnectionPlace) =>
  selectConnections()
    .where('connection.environment_id', '=', environmentId)
    .where('integration.key', '=', integrationKey)
    .where('connection.connection_id', '=', connectionId);
const selectHead = ({ id, environmentId }: { id: number; environmentId: number }) =>
  selectHeads().where('connection.id', '=', id).where('connection.environment_id', '=', environmentId);

type RowOf<Q> = Q extends () => { executeTakeFirstOrThrow(): Promise<infer R> } ? R : never;
type HeadRow = RowOf<typeof selectHeads>;
type ListedRow = RowOf<typeof selectListed>;
type ConnectionRow = RowOf<typeof selectConnections>;
type SealedColumn = Exclude<keyof ConnectionRow, keyof HeadRow>;

/** The part of a connection that its data key does not seal. */
export type ConnectionHead = Omit<WithoutNulls<HeadRow>, 'account_id' | 'account_email'> & {
  account: { id: string; email: string | undefined } | undefined;
};

/** A connection as lists show it: metadata is the only sealed part. */
export type ListedConnection = ConnectionHead & { metadata: Record<string, unknown> };

export type Connection = ListedConnection & {
  dataKey: DataKey;
  credentials: Credentials;
  connectionConfig: Record<string, unknown>;
};

/** Opens all sealed columns. Throws `unknown_connection` if the connection was deleted. */
export function fromRow(
  { data_key: wrapped, credentials: sealed, metadata, connection_config: config, ...row }: ConnectionRow,
  vault: Vault,
): Connection {
  if (wrapped === null || sealed === null) throw new AppError('unknown_connection');
  const dataKey = vault.unwrap(wrapped);
  const credentials = dataKey.openJson(sealed, 'credentials') as Credentials;
  return {
    ...headFrom(row),
    dataKey,
    credentials,
    // A version without this column may have stored the credentials.
    hasOwnClient: ownClientOf(credentials) !== undefined,
    metadata: openRecord(dataKey, metadata, 'metadata'),
    connectionConfig: openRecord(dataKey, config, 'connection config'),
  };
}

/** Opens only the metadata. */
export function listedFrom(
  { data_key: wrapped, metadata, ...row }: ListedRow,
  vault: Vault,
): ListedConnection {
  const isSealed = wrapped !== null && metadata !== null;
  return {
    ...headFrom(row),
    metadata: isSealed ? openRecord(vault.unwrap(wrapped), metadata, 'metadata') : {},
  };
}

/** Opens no sealed column. Each column of the row becomes a field, so the row must have no sealed column. */
export function headFrom({
  account_id: id,
  account_email: email,
  ...row
}: HeadRow & { [Column in SealedColumn]?: never }): ConnectionHead {
  return { ...withoutNulls(row), account: id === null ? undefined : { id, email: email ?? undefined } };
}

/** The head of a row that has sealed columns, without these. */
export function headOf(row: ConnectionRow): ConnectionHead {
  const {
    data_key: _key,
    credentials: _secret,
    metadata: _metadata,
    connection_config: _config,
    ...head
  } = row;
  return headFrom(head);
}

/** A sealed object, or an empty one if nothing is stored. */
export function openRecord(key: DataKey, sealed: Buffer | null, context: string): Record<string, unknown> {
  return sealed === null ? {} : (key.openJson(sealed, context) as Record<string, unknown>);
}

/** Undefined if the environment has no such connection. */
export async function findConnection(
  db: Queryable,
  { vault, ...place }: ConnectionPlace & { vault: Vault },
): Promise<Connection | undefined> {
  const row = first(await db.run(selectAt(place)));
  return row && fromRow(row, vault);
}

/**
 * As `findConnection`, and locks the row until the transaction ends: no other transaction changes the connection, and
 * the result has what all earlier transactions stored. Call it after the lock of a session or a revocation unit, and
 * before the lock of a token holder.
 */
export async function findConnectionForUpdate(
  tx: Tx,
  { vault, ...place }: ConnectionPlace & { vault: Vault },
): Promise<Connection | undefined> {
  const row = first(await tx.run(selectAt(place).forNoKeyUpdate('connection')));
  return row && fromRow(row, vault);
}

/** Throws `unknown_connection` (400) if the environment has no such connection. */
export async function getConnection(
  db: Queryable,
  place: ConnectionPlace & { vault: Vault },
): Promise<Connection> {
  const found = await findConnection(db, place);
  if (found === undefined) throw new AppError('unknown_connection', unknownMessage(place));
  return found;
}

/** The message of an error about a connection that does not exist. */
export function unknownMessage(given: Omit<ConnectionPlace, 'environmentId'>): string {
  const { integrationKey, connectionId } = given;
  return `The integration "${integrationKey}" has no connection "${connectionId}" in this environment.`;
}

/** Throws `unknown_connection` if the row does not exist. */
export async function getById(
  db: Queryable,
  { id, vault }: { id: number; vault: Vault },
): Promise<Connection> {
  const [row] = await db.run(selectConnections().where('connection.id', '=', id));
  if (row === undefined) throw new AppError('unknown_connection');
  return fromRow(row, vault);
}

/** The plain-text part of a connection; undefined if the connection does not exist. */
export async function findHead(
  db: Queryable,
  at: { id: number; environmentId: number },
): Promise<ConnectionHead | undefined> {
  const row = first(await db.run(selectHead(at)));
  return row && headFrom(row);
}

/** As `findHead`, and locks the row until the transaction ends: for a change of state that needs no credentials. */
export async function findHeadForUpdate(
  tx: Queryable,
  at: { id: number; environmentId: number },
): Promise<ConnectionHead | undefined> {
  const row = first(await tx.run(selectHead(at).forNoKeyUpdate('connection')));
  return row && headFrom(row);
}

/**
 * Prevents the deletion of the connection until the transaction ends, so that no row is written after its data key is
 * destroyed. Throws `unknown_connection` if the connection was deleted.
 */
export async function holdConnection(tx: Queryable, id: number): Promise<void> {
  // Without parameters, it is sent with `begin`.
  const rows = await tx.query(`select from connection where id = ${id} and deleted_at is null for key share`);
  if (rows.length === 0) throw new AppError('unknown_connection', 'The connection was deleted.');
}

/** The fields that all events about a connection have. */
export function connectionEvent(connection: ConnectionHead): ConnectionSubject {
  return {
    connection_id: connection.connectionId,
    provider_config_key: connection.integrationKey,
    provider: connection.providerName,
    test: connection.isTest,
    account: connection.account ?? null,
    tags: connection.tags,
    end_user: connection.endUser ? { id: connection.endUser.id } : null,
  };
}

type ConnectionEventType = {
  [T in EventType]: EventData[T] extends ConnectionSubject ? T : never;
}[EventType];

/** Queues an event about a connection in its environment. The last parameter has the type, and the fields of only this type. */
export async function queueConnectionEvent<T extends ConnectionEventType>(
  tx: Queryable,
  connection: ConnectionHead,
  { type, ...more }: { type: T } & Omit<EventData[T], keyof ConnectionSubject>,
): Promise<void> {
  const data = { ...connectionEvent(connection), ...more } as unknown as EventData[T];
  await queueEvent(tx, { environmentId: connection.environmentId, type, data });
}

/** Records in the audit log what a caller did to a connection, in the connection's environment. */
export async function auditConnection(
  tx: Queryable,
  connection: ConnectionHead,
  { caller, ...entry }: { caller: Caller } & Pick<AuditEntry, 'action' | 'details'>,
): Promise<void> {
  await writeAudit(tx, {
    environmentId: connection.environmentId,
    actor: actorOf(caller),
    target: `${connection.integrationKey}/${connection.connectionId}`,
    ...entry,
  });
}
