import type { Credentials } from '../auth-modes/mode.ts';
import { first, type Queryable, type Tx, tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { IntegrationFault } from '../integrations/fault.ts';
import type { DataKey, Vault } from '../vault.ts';
import type { Fault, Outage } from './health.ts';
import { fromRow, headFrom, openRecord, selectConnections, selectHeads } from './rows.ts';
import { resume } from './suspension.ts';

/**
 * Connections: one authorized account each.
 *
 * Owns: the table `connection`, the data key of each and what it seals, and what happens in the transaction of a
 * change. Does not own: how a row is read (`rows.ts`), lists (`list.ts`), getting or refreshing tokens (`credentials.ts`), what a fault
 * means (`health.ts`), the dance that makes a connection (`connect/`).
 */
export const connectionStatuses = ['active', 'needs_reauth', 'blocked'] as const;
export type ConnectionStatus = (typeof connectionStatuses)[number];

export type EndUser = {
  id: string;
  email?: string | null | undefined;
  display_name?: string | null | undefined;
  tags?: Record<string, string> | null | undefined;
  organization?: { id: string; display_name?: string | null | undefined } | null | undefined;
};

/** Live refresh tokens of an account with one OAuth client, and how many the provider lets live. */
export type TokenSlots = { used: number; limit: number };

/** A connection without what its data key seals. */
export type ConnectionHead = {
  id: number;
  environmentId: number;
  integrationId: number;
  integrationKey: string;
  providerName: string;
  isTest: boolean;
  connectionId: string;
  credentialsVersion: number;
  account: { id: string; email: string | undefined } | undefined;
  scopesRequested: string[] | undefined;
  scopesGranted: string[] | undefined;
  accessExpiresAt: Date | undefined;
  refreshExpiresAt: Date | undefined;
  grantedAt: Date;
  /** Set while the account's live tokens come near to what the provider lets live. */
  tokenSlots: TokenSlots | undefined;
  /** Set after a refresh that did not succeed: when the next may be tried. */
  refreshNotBefore: Date | undefined;
  /** When a refresh last succeeded that was made because the API refused an access token. */
  renewedAt: Date | undefined;
  /** When the credentials were stored that there are: by the user's consent, an import or a refresh. */
  refreshedAt: Date;
  status: ConnectionStatus;
  fault: Fault | undefined;
  /** Set while the provider gives no judgement on refreshes. */
  outage: Outage | undefined;
  /** The integration's fault that suspends the refreshes of this connection alone, and until when: both or none. */
  suspension: IntegrationFault | undefined;
  suspendedUntil: Date | undefined;
  /** Whether its OAuth client is its own: the integration's faults are none of it. */
  hasOwnClient: boolean;
  /** Scopes that an API has missed, whatever was granted by our books. */
  scopesLacking: string[] | undefined;
  integrationFault: IntegrationFault | undefined;
  tags: Record<string, string>;
  endUser: EndUser | undefined;
  webhookUrlOverride: string | undefined;
  createdAt: Date;
  updatedAt: Date;
  lastFetchedAt: Date | undefined;
  /** When the credentials were last used; behind by a minute at most (`credentials.ts`). */
  lastUsedAt: Date | undefined;
};

/** A connection as lists show it: metadata is the one sealed thing in it. */
export type ListedConnection = ConnectionHead & { metadata: Record<string, unknown> };

export type Connection = ListedConnection & {
  dataKey: DataKey;
  credentials: Credentials;
  connectionConfig: Record<string, unknown>;
};

type At = { environmentId: number; integrationKey: string; connectionId: string };

/** Undefined where the environment has no such connection. */
export async function findConnection(
  db: Queryable,
  { environmentId, integrationKey, connectionId, vault }: At & { vault: Vault },
): Promise<Connection | undefined> {
  const row = first(
    await db.run(
      selectConnections()
        .where('connection.environment_id', '=', environmentId)
        .where('integration.key', '=', integrationKey)
        .where('connection.connection_id', '=', connectionId),
    ),
  );
  return row && fromRow(row, vault);
}

/**
 * As `findConnection`, and nobody else changes the connection until the transaction ends: what is read is what every
 * earlier writer stored. Take it after the locks of a session or a unit, before that of a token's holder.
 */
export async function findConnectionForUpdate(
  tx: Tx,
  { environmentId, integrationKey, connectionId, vault }: At & { vault: Vault },
): Promise<Connection | undefined> {
  const row = first(
    await tx.run(
      selectConnections()
        .where('connection.environment_id', '=', environmentId)
        .where('integration.key', '=', integrationKey)
        .where('connection.connection_id', '=', connectionId)
        .forNoKeyUpdate('connection'),
    ),
  );
  return row && fromRow(row, vault);
}

/** Throws `unknown_connection` (400) where the environment has no such connection. */
export async function getConnection(db: Queryable, at: At & { vault: Vault }): Promise<Connection> {
  const found = await findConnection(db, at);
  if (found === undefined) throw new AppError('unknown_connection', unknownMessage(at));
  return found;
}

/** The sentence for a connection that is not there. */
export function unknownMessage({ integrationKey, connectionId }: Omit<At, 'environmentId'>): string {
  return `The integration "${integrationKey}" has no connection "${connectionId}" in this environment.`;
}

/** Changes what is given; an empty `webhookUrlOverride` clears it. Throws `unknown_connection` where it is deleted. */
export async function updateConnection(
  tx: Queryable,
  {
    id,
    ...change
  }: {
    id: number;
    tags?: Record<string, string> | undefined;
    endUser?: EndUser | undefined;
    webhookUrlOverride?: string | undefined;
  },
): Promise<void> {
  const updated = await tx.run(
    tables
      .updateTable('connection')
      .set({
        ...(change.tags && { tags: JSON.stringify(change.tags) }),
        ...(change.endUser && { end_user: JSON.stringify(change.endUser) }),
        ...(change.webhookUrlOverride !== undefined && {
          webhook_url_override: change.webhookUrlOverride || null,
        }),
        updated_at: new Date(),
      })
      .where('id', '=', id)
      .where('deleted_at', 'is', null)
      .returning('id'),
  );
  if (updated.length === 0)
    throw new AppError('unknown_connection', 'The connection was deleted.', { status: 404 });
}

/** Locks the connection and gives its metadata to `change`, whose answer is stored. */
export async function changeMetadata(
  tx: Queryable,
  {
    connection,
    change,
  }: { connection: Connection; change: (now: Record<string, unknown>) => Record<string, unknown> },
): Promise<void> {
  const [row] = await tx.run(
    tables
      .selectFrom('connection')
      .select('metadata')
      .where('id', '=', connection.id)
      .where('deleted_at', 'is', null)
      .forUpdate(),
  );
  if (row === undefined)
    throw new AppError('unknown_connection', 'The connection was deleted.', { status: 404 });
  const metadata = change(openRecord(connection.dataKey, row.metadata, 'metadata'));
  await tx.run(
    tables
      .updateTable('connection')
      .set({ metadata: connection.dataKey.sealJson(metadata, 'metadata'), updated_at: new Date() })
      .where('id', '=', connection.id),
  );
}

/**
 * Destroys a connection's data key, and with it everything that it sealed, and blanks what stands in plain text.
 * The row stays, so that its datasets can be removed in the background. Throws `unknown_connection` where another
 * call was first.
 */
export async function destroyConnection(tx: Queryable, { id, at }: { id: number; at: Date }): Promise<void> {
  // Waits for the writers that hold the row, which an update that touches no key would not.
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
}

/**
 * Keeps the connection from being deleted until the transaction ends, so that nothing is written after its key is
 * gone. Throws `unknown_connection` where it is deleted already.
 */
export async function holdConnection(tx: Queryable, id: number): Promise<void> {
  const rows = await tx.query('select from connection where id = $1 and deleted_at is null for key share', [
    id,
  ]);
  if (rows.length === 0) throw new AppError('unknown_connection', 'The connection was deleted.');
}

/** Notes that the credentials were read. */
export async function noteFetched(db: Queryable, id: number): Promise<void> {
  await db.run(tables.updateTable('connection').set({ last_fetched_at: new Date() }).where('id', '=', id));
}

/** Throws `unknown_connection` where the row is gone. */
export async function getById(
  db: Queryable,
  { id, vault }: { id: number; vault: Vault },
): Promise<Connection> {
  const [row] = await db.run(selectConnections().where('connection.id', '=', id));
  if (row === undefined) throw new AppError('unknown_connection');
  return fromRow(row, vault);
}

/** What is in plain text of a connection; undefined where it is gone. */
export async function findHead(
  db: Queryable,
  { id, environmentId }: { id: number; environmentId: number },
): Promise<ConnectionHead | undefined> {
  const row = first(
    await db.run(
      selectHeads().where('connection.id', '=', id).where('connection.environment_id', '=', environmentId),
    ),
  );
  return row && headFrom(row);
}

/**
 * What is in plain text of a connection, locked until the transaction ends; undefined where it is gone. For a change
 * of state that no opened credentials take part in.
 */
export async function findHeadForUpdate(
  tx: Queryable,
  { id, environmentId }: { id: number; environmentId: number },
): Promise<ConnectionHead | undefined> {
  const row = first(
    await tx.run(
      selectHeads()
        .where('connection.id', '=', id)
        .where('connection.environment_id', '=', environmentId)
        .forNoKeyUpdate('connection'),
    ),
  );
  return row && headFrom(row);
}
