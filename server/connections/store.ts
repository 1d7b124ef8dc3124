import { sql } from 'kysely';
import type { Credentials } from '../auth-modes/mode.ts';
import { first, type Queryable, tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { DataKey, Vault } from '../vault.ts';
import type { Fault } from './health.ts';

/**
 * Connections: one authorized account each.
 *
 * Owns: the table `connection`, the data key of each and what it seals, and what happens in the transaction of a
 * change. Does not own: getting or refreshing tokens (`credentials.ts`), what a fault means (`health.ts`), the
 * dance that makes a connection (`connect/`).
 */
export type ConnectionStatus = 'active' | 'needs_reauth' | 'blocked';

export type EndUser = {
  id: string;
  email?: string | null | undefined;
  display_name?: string | null | undefined;
  tags?: Record<string, string> | null | undefined;
  organization?: { id: string; display_name?: string | null | undefined } | null | undefined;
};

export type Connection = {
  id: number;
  environmentId: number;
  integrationId: number;
  integrationKey: string;
  providerName: string;
  isTest: boolean;
  connectionId: string;
  dataKey: DataKey;
  credentials: Credentials;
  credentialsVersion: number;
  metadata: Record<string, unknown>;
  connectionConfig: Record<string, unknown>;
  account: { id: string; email: string | undefined } | undefined;
  scopesRequested: string[] | undefined;
  scopesGranted: string[] | undefined;
  accessExpiresAt: Date | undefined;
  refreshExpiresAt: Date | undefined;
  status: ConnectionStatus;
  fault: Fault | undefined;
  tags: Record<string, string>;
  endUser: EndUser | undefined;
  webhookUrlOverride: string | undefined;
  createdAt: Date;
  updatedAt: Date;
  lastFetchedAt: Date | undefined;
};

type At = { environmentId: number; integrationKey: string; connectionId: string };

const selectConnections = () =>
  tables
    .selectFrom('connection')
    .innerJoin('integration', 'integration.id', 'connection.integration_id')
    .selectAll('connection')
    .select(['integration.key as integration_key', 'integration.provider', 'integration.is_test'])
    .where('connection.deleted_at', 'is', null);
type Row =
  ReturnType<typeof selectConnections> extends { executeTakeFirstOrThrow(): Promise<infer R> } ? R : never;

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

export type ConnectionFilter = {
  environmentId: number;
  connectionId?: string | undefined;
  /** A part of the ID, or of the end user's name or e-mail address. */
  search?: string | undefined;
  endUserId?: string | undefined;
  endUserOrganizationId?: string | undefined;
  integrationKeys?: string[] | undefined;
  /** All of them must be there. */
  tags?: Record<string, string> | undefined;
  limit: number;
  /** Counted from 0. */
  page: number;
};

/** Connections of an environment, newest first. */
export async function listConnections(
  db: Queryable,
  { vault, ...filter }: ConnectionFilter & { vault: Vault },
): Promise<Connection[]> {
  let query = selectConnections()
    .where('connection.environment_id', '=', filter.environmentId)
    .orderBy('connection.created_at', 'desc')
    .orderBy('connection.id', 'desc')
    .limit(filter.limit)
    .offset(filter.limit * filter.page);
  if (filter.connectionId !== undefined)
    query = query.where('connection.connection_id', '=', filter.connectionId);
  if (filter.integrationKeys) query = query.where('integration.key', 'in', filter.integrationKeys);
  if (filter.endUserId !== undefined) query = query.where(sql`end_user->>'id'`, '=', filter.endUserId);
  if (filter.endUserOrganizationId !== undefined) {
    query = query.where(sql`end_user->'organization'->>'id'`, '=', filter.endUserOrganizationId);
  }
  if (filter.tags) query = query.where(sql<boolean>`tags @> ${JSON.stringify(filter.tags)}::jsonb`);
  if (filter.search !== undefined) {
    const part = `%${filter.search.replace(/[\\%_]/g, '\\$&')}%`;
    query = query.where((where) =>
      where.or([
        where('connection.connection_id', 'ilike', part),
        where(sql`end_user->>'display_name'`, 'ilike', part),
        where(sql`end_user->>'email'`, 'ilike', part),
      ]),
    );
  }
  return (await db.run(query)).map((row) => fromRow(row, vault));
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
  if (row === undefined) throw new AppError('unknown_connection');
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
export async function destroyConnection(tx: Queryable, id: number): Promise<void> {
  // Waits for the writers that hold the row, which an update that touches no key would not.
  await tx.query('select from connection where id = $1 for update', [id]);
  const destroyed = await tx.run(
    tables
      .updateTable('connection')
      .set({
        data_key: null,
        credentials: null,
        metadata: null,
        connection_config: null,
        account_id: null,
        account_email: null,
        tags: '{}',
        end_user: null,
        fault: null,
        webhook_url_override: null,
        deleted_at: new Date(),
      })
      .where('id', '=', id)
      .where('deleted_at', 'is', null)
      .returning('id'),
  );
  if (destroyed.length === 0) throw new AppError('unknown_connection', 'The connection was deleted already.');
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

function fromRow(row: Row, vault: Vault): Connection {
  if (row.data_key === null || row.credentials === null) throw new AppError('unknown_connection');
  const dataKey = vault.unwrap(row.data_key);
  return {
    id: row.id,
    environmentId: row.environment_id,
    integrationId: row.integration_id,
    integrationKey: row.integration_key,
    providerName: row.provider,
    isTest: row.is_test,
    connectionId: row.connection_id,
    dataKey,
    credentials: dataKey.openJson(row.credentials, 'credentials') as Credentials,
    credentialsVersion: row.credentials_version,
    metadata: openRecord(dataKey, row.metadata, 'metadata'),
    connectionConfig: openRecord(dataKey, row.connection_config, 'connection config'),
    account:
      row.account_id !== null ? { id: row.account_id, email: row.account_email ?? undefined } : undefined,
    scopesRequested: row.scopes_requested ?? undefined,
    scopesGranted: row.scopes_granted ?? undefined,
    accessExpiresAt: row.access_expires_at ?? undefined,
    refreshExpiresAt: row.refresh_expires_at ?? undefined,
    status: row.status as ConnectionStatus,
    fault: (row.fault as Fault | null) ?? undefined,
    tags: row.tags as Record<string, string>,
    endUser: (row.end_user as EndUser | null) ?? undefined,
    webhookUrlOverride: row.webhook_url_override ?? undefined,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    lastFetchedAt: row.last_fetched_at ?? undefined,
  };
}

function openRecord(key: DataKey, sealed: Buffer | null, context: string): Record<string, unknown> {
  return sealed === null ? {} : (key.openJson(sealed, context) as Record<string, unknown>);
}
