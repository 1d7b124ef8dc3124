import { createHash, randomBytes } from 'node:crypto';
import type { Brand } from '../brand.ts';
import type { Evidence } from '../connections/health.ts';
import type { ConnectionHead, EndUser } from '../connections/store.ts';
import { type Db, first, type Queryable, tables } from '../db/pool.ts';
import { environmentKey } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import type { Caller } from '../http/caller.ts';
import type { Vault } from '../vault.ts';
import type { ConnectCause } from './failures.ts';

/**
 * Connect sessions: the short-lived right of an end user to make or renew one connection.
 *
 * Owns: the table `connect_session`. Does not own: what a body of `POST /connect/sessions` may say
 * (`session-input.ts`), trips to a provider (`attempts.ts`), the connection that comes out (`save.ts`).
 */
export const sessionLifeMs = 30 * 60_000;

/** What an application may fix in advance for one integration. */
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
  /** What a renewal is to add to the scopes that the connection has; without it all are asked for again. */
  scopes?: 'missing' | string[] | undefined;
  /** What the end user is to choose once the connection is made. */
  setup?: 'sheet' | undefined;
  /** Where the connect page leads back to. */
  return_url?: string | undefined;
};

/** What a session has made; also of one that was opened again for what was not granted. */
type SessionOutcome = {
  integration: string;
  connection: string;
  missing_scopes: string[];
  /** Another row may come to have the ID, and another grant the row. A service that did not know of it notes none. */
  grant?: { row: number; given_at: string };
  /** What was to be chosen has been. */
  setup?: 'done';
};

/** Why the last trip made no connection: for the page that waits. */
type SessionFailure = { cause: ConnectCause; type: string; evidence: Evidence; at: string };

export type Session = {
  id: number;
  environmentId: number;
  environment: string;
  allowedIntegrations: readonly string[] | undefined;
  /** The row of the connection that is renewed. */
  connectionRow: number | undefined;
  /** Of the secret of the browser that has begun with it. */
  browserHash: Buffer | undefined;
  settings: SessionSettings;
  usedAt: Date | undefined;
  outcome: SessionOutcome | undefined;
  failure: SessionFailure | undefined;
  expiresAt: Date;
};

/** A new session; the token is told once and stored as a hash. */
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
 * Turns a token into its caller. Throws `invalid_connect_session_token_format`, and
 * `unknown_connect_session_token` for one that is unknown, used or expired.
 */
export function createSessionReader({
  db,
  brand,
  now = () => new Date(),
}: {
  db: Db;
  brand: Brand;
  now?: () => Date;
}): (token: string) => Promise<Caller> {
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

/** The session of a token, used and expired ones too, so that a page can say which it is. */
export async function findSession(
  db: Queryable,
  { token, brand, vault }: { token: string; brand: Brand; vault: Vault },
): Promise<Session | undefined> {
  if (!isToken(token, brand)) return undefined;
  const row = first(await db.run(selectSessions().where('token_hash', '=', hashOf(token))));
  return row && fromRow(db, { row, vault });
}

/** Throws `unknown_connect_session_token` where the environment has no such session any more. */
export async function getSession(
  db: Queryable,
  { id, environmentId, vault }: { id: number; environmentId: number; vault: Vault },
): Promise<Session> {
  const row = first(
    await db.run(
      selectSessions()
        .where('connect_session.id', '=', id)
        .where('connect_session.environment_id', '=', environmentId),
    ),
  );
  if (row === undefined) throw new AppError('unknown_connect_session_token');
  return fromRow(db, { row, vault });
}

/**
 * Ties the session to the browser that begins first, and forgets why a trip before failed; false where another browser
 * was first.
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

/** Uses the session up, in the transaction of what it makes; throws where it is used or gone. */
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

/** Says what a session that was just used up has made. What was chosen before it was opened again stays so. */
export async function noteOutcome(
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
 * Whether a connection is what the session has made: the same row with the same grant. What was imported under its ID
 * since, or connected in its place, is not.
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
 * Says that what was to be chosen has been, in the transaction that stores the choice. Throws
 * `unknown_connect_session_token` where it was before, and where the session has expired.
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

/** Says why a trip made no connection, unless another one has made it. */
export async function noteFailure(
  tx: Queryable,
  { id, failure }: { id: number; failure: SessionFailure },
): Promise<void> {
  await tx.query('update connect_session set failure = $2 where id = $1 and used_at is null', [
    id,
    JSON.stringify(failure),
  ]);
}

/**
 * Opens a used session again, to renew the connection that it made by what was not granted: for the same browser, and
 * until the session ends as it would have. Changes nothing where it is open or has expired.
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
    connection: { row: number; integration: string; id: string };
    vault: Vault;
    at: Date;
  },
): Promise<void> {
  const key = await environmentKey(tx, { environmentId, vault });
  const { integration, id: connectionId } = connection;
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
    [id, environmentId, connection.row, integration, key.sealJson(reopened, 'connect session'), at],
  );
}

/** Ends a session, and every trip that it began. */
export async function deleteSession(
  db: Queryable,
  { id, environmentId }: { id: number; environmentId: number },
): Promise<void> {
  await db.run(
    tables.deleteFrom('connect_session').where('id', '=', id).where('environment_id', '=', environmentId),
  );
}

/** What is stored of a token, a state or a cookie. */
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
      'environment_id',
      'environment.name as environment',
      'allowed_integrations',
      'connection',
      'browser_hash',
      'settings',
      'used_at',
      'outcome',
      'failure',
      'expires_at',
    ]);
type Row = {
  id: number;
  environment_id: number;
  environment: string;
  allowed_integrations: string[] | null;
  connection: number | null;
  browser_hash: Buffer | null;
  settings: Buffer;
  used_at: Date | null;
  outcome: unknown;
  failure: unknown;
  expires_at: Date;
};

async function fromRow(db: Queryable, { row, vault }: { row: Row; vault: Vault }): Promise<Session> {
  const key = await environmentKey(db, { environmentId: row.environment_id, vault });
  return {
    id: row.id,
    environmentId: row.environment_id,
    environment: row.environment,
    allowedIntegrations: row.allowed_integrations ?? undefined,
    connectionRow: row.connection ?? undefined,
    browserHash: row.browser_hash ?? undefined,
    settings: key.openJson(row.settings, 'connect session') as SessionSettings,
    usedAt: row.used_at ?? undefined,
    outcome: (row.outcome as SessionOutcome | null) ?? undefined,
    failure: (row.failure as SessionFailure | null) ?? undefined,
    expiresAt: row.expires_at,
  };
}
