/**
 * Connect sessions: the short-lived permission of an end user to make or renew one connection.
 *
 * Owns: the table `connect_session`. Does not own: the body of `POST /connect/sessions` (`session-input.ts`),
 * authorizations (`attempts.ts`), the connection (`save.ts`).
 */
import { createHash, randomBytes } from 'node:crypto';
import { type InferResult, sql } from 'kysely';
import type { Brand } from '../brand.ts';
import type { ConnectionHead, EndUser, Evidence } from '../connections/store/store.ts';
import { type Db, first, type Queryable, tables, withoutNulls } from '../db/pool.ts';
import { environmentKey } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import type { Caller } from '../http/auth/caller.ts';
import type { DataKey, Vault } from '../vault.ts';
import type { ConnectCause } from './failures.ts';

export const sessionLifeMs = 30 * 60_000;

/** The values that an application fixes for one integration. */
export type ConnectDefaults = {
  user_scopes?: string | undefined;
  authorization_params?: Record<string, string> | undefined;
  connection_config?: Record<string, string> | undefined;
};

/** As sealed; names as on the wire. */
export type SessionSettings = {
  end_user?: EndUser | undefined;
  tags?: Record<string, string> | undefined;
  integrations_config_defaults?: Record<string, ConnectDefaults> | undefined;
  overrides?: Record<string, { docs_connect?: string | undefined }> | undefined;
  webhook_url_override?: string | undefined;
  require_same_account?: boolean | undefined;
  /** The connection that the session renews. */
  reconnect?: { integration: string; connection: string } | undefined;
  /** The scopes that a renewal adds to those of the connection; without it, all are requested again. */
  scopes?: 'missing' | string[] | undefined;
  /** The choice of the end user after the connection is made. */
  setup?: 'sheet' | undefined;
  /** The address to which the connect page returns. */
  return_url?: string | undefined;
};

/** The connection that a session has made; also of a session that was opened again for missing scopes. */
type SessionOutcome = {
  integration: string;
  connection: string;
  missing_scopes: string[];
  /**
   * The row and the time of the grant: another row can get the same ID, and a row another grant. Older releases stored
   * none.
   */
  grant?: { row: number; given_at: string };
  /** The choice is made. */
  setup?: 'done';
};

/** Why the last authorization failed: for the connect page. */
type SessionFailure = { cause: ConnectCause; type: string; evidence: Evidence; at: string };

export type SessionRef = { id: number; environmentId: number };

export type Session = SessionRef & {
  environment: string;
  allowedIntegrations: readonly string[] | undefined;
  /** The row of the connection to renew. */
  connectionRow: number | undefined;
  /** The hash of the secret of the browser that began. */
  browserHash: Buffer | undefined;
  settings: SessionSettings;
  usedAt: Date | undefined;
  outcome: SessionOutcome | undefined;
  failure: SessionFailure | undefined;
  expiresAt: Date;
};

/** A new session. The token is returned once and stored as a hash. */
export async function createSession(
  tx: Queryable,
  given: {
    environmentId: number;
    allowedIntegrations?: readonly string[] | undefined;
    connectionRow?: number | undefined;
    settings: SessionSettings;
    brand: Brand;
    vault: Vault;
    now: Date;
  },
): Promise<{ id: number; token: string; expiresAt: Date }> {
  const token = given.brand.sessionTokenPrefix + randomBytes(32).toString('hex');
  const expiresAt = new Date(given.now.getTime() + sessionLifeMs);
  const key = await environmentKey(tx, given);
  const [row] = await tx.run(
    tables
      .insertInto('connect_session')
      .values({
        environment_id: given.environmentId,
        token_hash: hashOf(token),
        allowed_integrations: given.allowedIntegrations ? [...given.allowedIntegrations] : null,
        connection: given.connectionRow ?? null,
        settings: key.sealJson(given.settings, 'connect session'),
        expires_at: expiresAt,
      })
      .returning('id'),
  );
  return { id: row!.id, token, expiresAt };
}

/**
 * Resolves a token to its caller. Throws `invalid_connect_session_token_format`, and `unknown_connect_session_token`
 * for a token that is unknown, used or expired.
 */
export function createSessionReader(given: {
  db: Db;
  brand: Brand;
  now?: () => Date;
}): (token: string) => Promise<Caller> {
  const { db, brand, now = () => new Date() } = given;
  return async (token) => {
    if (!isToken(token, brand)) throw new AppError('invalid_connect_session_token_format');
    const row = first(
      await db.run(
        tables
          .selectFrom('connect_session')
          .innerJoin('environment', 'environment.id', 'connect_session.environment_id')
          .select(['connect_session.id', 'environment_id', 'environment.name', 'allowed_integrations'])
          .where('token_hash', '=', hashOf(token))
          .where('used_at', 'is', null)
          .where('expires_at', '>', now()),
      ),
    );
    if (row === undefined) throw new AppError('unknown_connect_session_token');
    return {
      kind: 'session',
      environmentId: row.environment_id,
      environment: row.name,
      sessionId: row.id,
      allowedIntegrations: row.allowed_integrations ?? undefined,
    };
  };
}

/** The session that a request acts for. Throws if the caller is not a session. */
export function callerSession(caller: Caller): SessionRef {
  if (caller.kind !== 'session') throw new AppError('invalid_connect_session_token_format');
  return { id: caller.sessionId, environmentId: caller.environmentId };
}

/**
 * The session whose token a request has as Bearer, in any state. Throws `invalid_connect_session_token_format` and
 * `unknown_connect_session_token`.
 */
export async function bearerSession(
  { db, brand, reading: { vault } }: { db: Queryable; brand: Brand; reading: { vault: Vault } },
  { headers }: { headers: { authorization?: string | undefined } },
): Promise<Session> {
  const [, token = ''] = /^Bearer +([^\s]+) *$/i.exec(headers.authorization ?? '') ?? [];
  if (!token.startsWith(brand.sessionTokenPrefix)) throw new AppError('invalid_connect_session_token_format');
  const rows = isToken(token, brand)
    ? await db.run(selectSessions().where('token_hash', '=', hashOf(token)))
    : [];
  return getFirst(db, { rows, vault });
}

/** Throws `unknown_connect_session_token` if the environment has no such session. */
export async function getSession(
  db: Queryable,
  { id, environmentId, vault }: SessionRef & { vault: Vault },
): Promise<Session> {
  const one = selectSessions()
    .where('connect_session.id', '=', id)
    .where('connect_session.environment_id', '=', environmentId);
  return getFirst(db, { rows: await db.run(one), vault });
}

/** With the caller that created it, which is unknown until its audit entry has a position. */
export type ListedSession = Session & { createdAt: Date; createdBy: string | undefined };

/** The newest sessions of an environment, or those before an ID, newest first. */
export async function listSessions(
  db: Queryable,
  given: { environmentId: number; before: number; limit: number; vault: Vault },
): Promise<ListedSession[]> {
  const { environmentId, before, limit } = given;
  const rows = await db.run(
    selectSessions()
      .select((eb) => [
        'connect_session.created_at as createdAt',
        eb
          .selectFrom('audit')
          .select('actor')
          .where('audit.environment_id', '=', environmentId)
          .where('target', '=', sql<string>`'session:' || connect_session.id`)
          .where('action', '=', 'connect_session.created')
          .where('position', 'is not', null)
          .limit(1)
          .as('createdBy'),
      ])
      .where('connect_session.environment_id', '=', environmentId)
      .where('connect_session.id', '<', before)
      .orderBy('connect_session.id', 'desc')
      .limit(limit),
  );
  const key = await environmentKey(db, given);
  return rows.map(({ createdAt, createdBy, ...row }) => ({
    ...readSession(row, key),
    createdAt,
    createdBy: createdBy ?? undefined,
  }));
}

/**
 * Binds the session to the browser that begins first, and clears the failure of a previous authorization. False if it
 * is bound to another browser.
 */
export async function bindSession(
  tx: Queryable,
  { id, browserHash }: { id: number; browserHash: Buffer },
): Promise<boolean> {
  const bound = await tx.query(
    `update connect_session
     set browser_hash = $2, failure = null
     where id = $1
       and (browser_hash is null or browser_hash = $2)
     returning id`,
    [id, browserHash],
  );
  return bound.length === 1;
}

/** Marks the session as used, in the transaction of its connection. Throws if it is used or deleted. */
export async function useSession(tx: Queryable, { id, at }: { id: number; at: Date }): Promise<void> {
  const used = await tx.run(
    tables
      .updateTable('connect_session')
      .set({ used_at: at, failure: null })
      .where('id', '=', id)
      .where('used_at', 'is', null)
      .returning('id'),
  );
  if (used.length === 0) throw new AppError('unknown_connect_session_token');
}

/** Stores the connection of a session that was just used. A choice from before it was opened again stays made. */
export async function storeOutcome(
  tx: Queryable,
  { id, outcome }: { id: number; outcome: Omit<SessionOutcome, 'setup'> },
): Promise<void> {
  await tx.query(
    `update connect_session
     set outcome = coalesce(outcome, '{}') || $2
     where id = $1`,
    [id, JSON.stringify(outcome)],
  );
}

/**
 * Whether a connection is the one that the session has made: the same row with the same grant. A connection that was
 * imported under its ID since, or that replaced it, is not.
 */
export function isMadeBy(
  { outcome, usedAt, connectionRow }: Session,
  { id, grantedAt }: Pick<ConnectionHead, 'id' | 'grantedAt'>,
): boolean {
  if (outcome === undefined) return false;
  const { grant } = outcome;
  if (grant !== undefined) return id === grant.row && grantedAt.toISOString() === grant.given_at;
  return id === (connectionRow ?? id) && grantedAt <= (usedAt ?? grantedAt);
}

/**
 * Marks the choice as made, in the transaction that stores it. Throws `unknown_connect_session_token` if it was made
 * before, or if the session has expired.
 */
export async function finishSetUp(
  tx: Queryable,
  { session: { id, environmentId }, at }: { session: Session; at: Date },
): Promise<void> {
  const finished = await tx.query(
    `update connect_session
     set outcome = outcome || '{"setup": "done"}'
     where id = $1
       and environment_id = $2
       and outcome is not null
       and not outcome ? 'setup'
       and expires_at > $3
     returning id`,
    [id, environmentId, at],
  );
  if (finished.length === 0) throw new AppError('unknown_connect_session_token');
}

/** Stores why an authorization failed, unless another one has made the connection. */
export async function storeFailure(
  tx: Queryable,
  { id, failure }: { id: number; failure: SessionFailure },
): Promise<void> {
  await tx.query('update connect_session set failure = $2 where id = $1 and used_at is null', [
    id,
    JSON.stringify(failure),
  ]);
}

/**
 * Opens a used session again, to renew its connection with the missing scopes: for the same browser, with the same
 * expiry. Changes nothing if it is open or has expired.
 */
export async function reopenSession(
  tx: Queryable,
  {
    session: { id, environmentId, settings },
    connection,
    vault,
    at,
  }: {
    session: Session;
    connection: Pick<ConnectionHead, 'id' | 'integrationKey' | 'connectionId'>;
    vault: Vault;
    at: Date;
  },
): Promise<void> {
  const key = await environmentKey(tx, { environmentId, vault });
  const { id: row, integrationKey: integration, connectionId } = connection;
  const reopened: SessionSettings = {
    ...settings,
    reconnect: { integration, connection: connectionId },
    scopes: 'missing',
  };
  await tx.query(
    `update connect_session
     set used_at = null, connection = $3, allowed_integrations = array[$4], settings = $5
     where id = $1
       and environment_id = $2
       and used_at is not null
       and expires_at > $6`,
    [id, environmentId, row, integration, key.sealJson(reopened, 'connect session'), at],
  );
}

/** Deletes a session and its attempts. False if the environment has no such session. */
export async function deleteSession(db: Queryable, { id, environmentId }: SessionRef): Promise<boolean> {
  const deleted = await db.query(
    `delete from connect_session
     where id = $1
       and environment_id = $2
     returning id`,
    [id, environmentId],
  );
  return deleted.length > 0;
}

/** The hash under which a token, a state or a cookie is stored. */
export function hashOf(secret: string): Buffer {
  return createHash('sha256').update(secret).digest();
}

function isToken(token: string, brand: Brand): boolean {
  return (
    token.startsWith(brand.sessionTokenPrefix) &&
    /^[0-9a-f]{64}$/.test(token.slice(brand.sessionTokenPrefix.length))
  );
}

const selectSessions = () =>
  tables
    .selectFrom('connect_session')
    .innerJoin('environment', 'environment.id', 'connect_session.environment_id')
    .select([
      'connect_session.id',
      'environment_id as environmentId',
      'environment.name as environment',
      'allowed_integrations as allowedIntegrations',
      'connection as connectionRow',
      'browser_hash as browserHash',
      'settings',
      'used_at as usedAt',
      'outcome',
      'failure',
      'expires_at as expiresAt',
    ]);
type SessionRow = InferResult<ReturnType<typeof selectSessions>>[number];

async function getFirst(
  db: Queryable,
  { rows: [row], vault }: { rows: SessionRow[]; vault: Vault },
): Promise<Session> {
  if (row === undefined) throw new AppError('unknown_connect_session_token');
  return readSession(row, await environmentKey(db, { environmentId: row.environmentId, vault }));
}

function readSession(row: SessionRow, key: DataKey): Session {
  return {
    ...withoutNulls(row),
    settings: key.openJson(row.settings, 'connect session') as SessionSettings,
    outcome: (row.outcome as SessionOutcome | null) ?? undefined,
    failure: (row.failure as SessionFailure | null) ?? undefined,
  };
}
