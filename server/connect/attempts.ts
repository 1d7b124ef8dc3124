import { sql } from 'kysely';
import type { Kept } from '../auth-modes/mode.ts';
import { first, isViolationOf, type Queryable, tables } from '../db/pool.ts';
import { environmentKey } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import type { OAuthClient } from '../integrations/store.ts';
import type { Vault } from '../vault.ts';
import { findSecret } from './browser-cookies.ts';
import { hashOf } from './sessions.ts';

/** How long an end user may take at the provider. */
const attemptLifeMs = 30 * 60_000;
/** How long the callback may take before the attempt counts as interrupted; longer than any exchange. */
const settlingMs = 5 * 60_000;

/** A pending authorization at the provider, as it was begun. */
export type Attempt = {
  sessionId: number;
  environmentId: number;
  integrationId: number;
  integrationKey: string;
  kept: Kept;
  /** The requested scopes; fewer than `scopesRequested` if the provider adds them to a previous grant. */
  scopes: string[];
  /** The scopes that the connection should have in the end. */
  scopesRequested: string[];
  /** Whether it follows an authorization without a refresh token. */
  isRepeated: boolean;
  connectionConfig: Record<string, string>;
  /** The end user's own client, in place of the integration's. */
  ownClient: OAuthClient | undefined;
  /** The ID of the client that waits on a socket, if any. */
  waiter: string | undefined;
  begunAt: Date;
};

type Sealed = {
  integration: string;
  code_verifier?: string;
  request_token?: { token: string; secret: string };
  scopes: string[];
  scopes_requested: string[];
  is_repeated: boolean;
  connection_config: Record<string, string>;
  own_client?: OAuthClient;
  waiter?: string;
};

/**
 * Stores an attempt under its state and its browser, both as hashes. Throws `unknown_connect_session_token` or
 * `unknown_provider_config` if these were deleted meanwhile.
 */
export async function storeAttempt(
  tx: Queryable,
  { vault, state, browser, ...attempt }: Attempt & { vault: Vault; state: string; browser: string },
): Promise<void> {
  const key = await environmentKey(tx, { environmentId: attempt.environmentId, vault });
  const sealed: Sealed = {
    integration: attempt.integrationKey,
    ...(attempt.kept.codeVerifier !== undefined && { code_verifier: attempt.kept.codeVerifier }),
    ...(attempt.kept.requestToken !== undefined && { request_token: attempt.kept.requestToken }),
    scopes: attempt.scopes,
    scopes_requested: attempt.scopesRequested,
    is_repeated: attempt.isRepeated,
    connection_config: attempt.connectionConfig,
    ...(attempt.ownClient !== undefined && { own_client: attempt.ownClient }),
    ...(attempt.waiter !== undefined && { waiter: attempt.waiter }),
  };
  const insert = tx.run(
    tables.insertInto('auth_attempt').values({
      state_hash: hashOf(state),
      environment_id: attempt.environmentId,
      integration_id: attempt.integrationId,
      session_id: attempt.sessionId,
      browser_hash: hashOf(browser),
      secrets: key.sealJson(sealed, 'auth attempt'),
      created_at: attempt.begunAt,
      expires_at: new Date(attempt.begunAt.getTime() + attemptLifeMs),
    }),
  );
  await insert.catch((error: unknown) => {
    if (isViolationOf(error, 'auth_attempt_session_id_fkey'))
      throw new AppError('unknown_connect_session_token');
    if (isViolationOf(error, 'auth_attempt_integration_id_fkey'))
      throw new AppError('unknown_provider_config');
    throw error;
  });
}

/**
 * Reads an attempt and marks it as taken in the same statement, for any caller: a state presented outside its browser is
 * used up. `secrets` are those that the browser presents, and `browser` is the secret of the attempt. `unknown` is an
 * attempt that never existed, was taken, or has expired. The caller ends a taken attempt with `endAttempt`; the sweep
 * deletes attempts that were not ended.
 */
export async function takeAttempt(
  db: Queryable,
  { state, secrets, vault, now }: { state: string; secrets: readonly string[]; vault: Vault; now: Date },
): Promise<
  | { kind: 'taken'; attempt: Attempt; browser: string }
  | { kind: 'unknown' }
  | ({ kind: 'another browser' } & Pick<Attempt, 'waiter' | 'integrationKey'>)
> {
  const row = first(
    await db.run(
      tables
        .updateTable('auth_attempt')
        .set({
          taken_at: now,
          expires_at: sql`greatest(expires_at, ${new Date(now.getTime() + settlingMs)})`,
        })
        .where('state_hash', '=', hashOf(state))
        .where('taken_at', 'is', null)
        // A late callback is left to the sweep, which reports the attempt as abandoned.
        .where('expires_at', '>', now)
        .returning([
          'environment_id',
          'integration_id',
          'session_id',
          'browser_hash',
          'secrets',
          'created_at',
        ]),
    ),
  );
  if (row === undefined) return { kind: 'unknown' };
  const key = await environmentKey(db, { environmentId: row.environment_id, vault });
  const sealed = key.openJson(row.secrets, 'auth attempt') as Sealed;
  const browser = findSecret(secrets, row.browser_hash);
  if (browser === undefined)
    return { kind: 'another browser', waiter: sealed.waiter, integrationKey: sealed.integration };
  return {
    kind: 'taken',
    browser,
    attempt: {
      sessionId: row.session_id,
      environmentId: row.environment_id,
      integrationId: row.integration_id,
      integrationKey: sealed.integration,
      kept: { codeVerifier: sealed.code_verifier, requestToken: sealed.request_token },
      scopes: sealed.scopes,
      scopesRequested: sealed.scopes_requested,
      isRepeated: sealed.is_repeated,
      connectionConfig: sealed.connection_config,
      ownClient: sealed.own_client,
      waiter: sealed.waiter,
      begunAt: row.created_at,
    },
  };
}

/** An attempt that is over. */
type EndedAttempt = {
  environmentId: number;
  sessionId: number;
  begunAt: Date;
  integration: { key: string; providerName: string; isTest: boolean };
  /** The settings of the session, sealed. */
  settings: Buffer;
  /** Whether the session has made its connection, by this attempt or another. */
  isUsed: boolean;
};

/** Deletes a taken attempt. Undefined if its session or its integration was deleted. */
export async function endAttempt(tx: Queryable, state: string): Promise<EndedAttempt | undefined> {
  const row = first(
    await tx.query<Omit<EndedAttempt, 'integration'> & EndedAttempt['integration']>(
      `delete from auth_attempt
       using integration, connect_session
       where state_hash = $1
         and taken_at is not null
         and integration.id = auth_attempt.integration_id
         and connect_session.id = auth_attempt.session_id
       returning
         auth_attempt.environment_id as "environmentId", auth_attempt.created_at as "begunAt",
         auth_attempt.session_id as "sessionId",
         integration.key, integration.provider as "providerName", integration.is_test as "isTest",
         connect_session.settings, connect_session.used_at is not null as "isUsed"`,
      [hashOf(state)],
    ),
  );
  return row && { ...row, integration: row };
}

/** Whether an attempt of the session may still end: the user may return, or the callback is running. */
export async function hasAttempt(
  db: Queryable,
  { sessionId, environmentId, now }: { sessionId: number; environmentId: number; now: Date },
): Promise<boolean> {
  const found = await db.query(
    `select
     from auth_attempt
     where session_id = $1
       and environment_id = $2
       and expires_at > $3
       and (taken_at is null or taken_at > $4)
     limit 1`,
    [sessionId, environmentId, now, new Date(now.getTime() - settlingMs)],
  );
  return found.length > 0;
}
