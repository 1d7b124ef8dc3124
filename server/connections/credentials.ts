import type { Credentials } from '../auth-modes/mode.ts';
import { refreshToken, type TokenOutcome } from '../auth-modes/oauth2.ts';
import { credentialsFrom, type OAuth2Credentials } from '../auth-modes/oauth2-credentials.ts';
import type { TokenFault } from '../auth-modes/token-fault.ts';
import type { Fetch } from '../auth-modes/token-response.ts';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { queueEvent } from '../events/outbox.ts';
import { clientOf, type Integration } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import { missingScopes } from '../providers/scopes.ts';
import { TemplateError } from '../providers/template-grammar.ts';
import { connectionEvent } from './event.ts';
import { diagnose, lacksRefreshToken } from './health.ts';
import type { ConnectionReader, LiveConnection } from './reader.ts';
import { setFault, swapCredentials } from './save.ts';
import { templateValues } from './values.ts';

/**
 * Credentials that work, refreshed when they must be.
 *
 * Owns: when a token is refreshed, that callers share one refresh, what its outcome does to the connection. Does
 * not own: the protocol (`auth-modes/`), the table (`store.ts`), what a fault means (`health.ts`).
 */
export type CredentialSource = {
  /**
   * Credentials good for at least the next minute.
   *
   * Callers racing for one connection share one refresh: many providers revoke the whole grant when a refresh token
   * is used twice (RFC 9700 §4.14.2). Throws `connection_needs_reauth` when the provider refuses, and
   * `connection_refresh_failed` when it gives no answer and the token has expired.
   */
  fresh(connection: LiveConnection): Promise<Credentials>;
  /**
   * What to try after the provider answered 401 to `used`: credentials that another call got meanwhile, or those of
   * one refresh. Undefined where nothing better is to be had. Throws `connection_needs_reauth` when the refresh shows
   * that the grant is dead.
   */
  renewed(connection: LiveConnection, used: Credentials): Promise<Credentials | undefined>;
  /** Refreshes whether or not it is time. Throws as `fresh` does. */
  refreshed(connection: LiveConnection): Promise<LiveConnection>;
};

/** Refresh when less than this, or a tenth of the token's life, remains. */
const marginMs = 5 * 60_000;

type Deps = {
  db: Db;
  reader: ConnectionReader;
  /** The guarded way to the network; test integrations alone may reach the sandbox. */
  fetchFor: (integration: Integration) => Fetch;
  log: Logger;
  now?: () => Date;
};

export function createCredentialSource({
  db,
  reader,
  fetchFor,
  log,
  now = () => new Date(),
}: Deps): CredentialSource {
  const running = new Map<number, Promise<LiveConnection>>();

  async function fresh(connection: LiveConnection): Promise<Credentials> {
    const { credentials } = connection;
    if (credentials.type !== 'OAUTH2') return credentials;
    refuseDead(connection);
    if (!isDue(credentials, now())) return credentials;
    try {
      return (await refreshed(connection)).credentials;
    } catch (error) {
      const isTransient = error instanceof AppError && error.code === 'connection_refresh_failed';
      if (isTransient && !isExpired(credentials, now())) return credentials;
      throw error;
    }
  }

  async function renewed(connection: LiveConnection, used: Credentials): Promise<Credentials | undefined> {
    if (used.type !== 'OAUTH2') return undefined;
    try {
      const current = await reader.reread(connection);
      refuseDead(current);
      if (accessTokenOf(current.credentials) !== used.access_token) return current.credentials;
      return (await refreshed(current)).credentials;
    } catch (error) {
      // A grant that has turned out to be dead is told as such; for any other reason the 401 is the answer.
      if (error instanceof AppError && error.code !== 'connection_needs_reauth') return undefined;
      throw error;
    }
  }

  function refreshed(connection: LiveConnection): Promise<LiveConnection> {
    const known = running.get(connection.id);
    if (known !== undefined) return known;
    const refresh = refreshOnce(connection).finally(() => running.delete(connection.id));
    running.set(connection.id, refresh);
    return refresh;
  }

  async function refreshOnce(seen: LiveConnection): Promise<LiveConnection> {
    const connection = await reader.reread(seen);
    const { credentials, integration } = connection;
    if (credentials.type !== 'OAUTH2') return connection;
    // Another node, or the caller before this one, may have refreshed already.
    if (connection.credentialsVersion !== seen.credentialsVersion && connection.status === 'active')
      return connection;
    refuseDead(connection);
    if (credentials.refresh_token === undefined) {
      if (!isExpired(credentials, now())) throw failed(connection);
      return settleDead(connection, lacksRefreshToken(now()));
    }
    const outcome = await refreshToken({
      definition: integration.provider,
      client: { ...clientOf(integration), scopes: connection.scopesRequested ?? [] },
      values: templateValues(connection),
      refreshToken: credentials.refresh_token,
      fetch: fetchFor(integration),
      now: now(),
    }).catch((error: unknown) => {
      throw error instanceof TemplateError ? misconfigured(error) : error;
    });
    return outcome.ok
      ? store(connection, { tokens: outcome.tokens, previous: credentials })
      : judge(connection, outcome.fault);
  }

  async function store(
    connection: LiveConnection,
    {
      tokens,
      previous,
    }: { tokens: Extract<TokenOutcome, { ok: true }>['tokens']; previous: OAuth2Credentials },
  ): Promise<LiveConnection> {
    const credentials = credentialsFrom(tokens, previous);
    const granted = tokens.scopes && [...tokens.scopes];
    await db.transaction(async (tx) => {
      const isOurs = await swapCredentials(tx, {
        current: connection,
        credentials,
        grant: {
          accessExpiresAt: tokens.expiresAt,
          refreshExpiresAt: tokens.refreshExpiresAt,
          scopesGranted: granted,
        },
      });
      if (!isOurs) return;
      const before = connection.scopesGranted;
      const lost =
        granted && before ? missingScopes(connection.integration.provider, { wanted: before, granted }) : [];
      if (lost.length > 0) {
        const data = { ...connectionEvent(connection), lost_scopes: lost };
        await queueEvent(tx, {
          environmentId: connection.environmentId,
          type: 'connection.scopes_reduced',
          data,
        });
      }
    });
    return reader.reread(connection);
  }

  async function judge(connection: LiveConnection, fault: TokenFault): Promise<LiveConnection> {
    // Another node may have used the refresh token first and stored its successor.
    const current = await reader.reread(connection);
    if (current.credentialsVersion !== connection.credentialsVersion) return current;
    const diagnosis = diagnose(fault, { connection, at: now() });
    if (diagnosis !== undefined) return settleDead(connection, diagnosis);
    log.warn(
      {
        connection: connection.connectionId,
        integration: connection.integrationKey,
        fault: fault.error,
        kind: fault.kind,
      },
      'refresh failed',
    );
    if (fault.kind === 'client_misconfigured') {
      throw new AppError('integration_misconfigured', undefined, { payload: { error: fault.error } });
    }
    throw failed(connection, fault.retryAfterMs);
  }

  /** Notes the state and its event together, once, and tells the caller. */
  async function settleDead(
    connection: LiveConnection,
    { status, fault }: NonNullable<ReturnType<typeof diagnose>>,
  ): Promise<never> {
    await db.transaction(async (tx) => {
      const isNews = await setFault(tx, { current: connection, status, fault });
      if (!isNews) return;
      await queueEvent(tx, {
        environmentId: connection.environmentId,
        type: status === 'blocked' ? 'connection.blocked' : 'connection.needs_reauth',
        data: { ...connectionEvent(connection), ...fault },
      });
    });
    refuseDead(await reader.reread(connection));
    throw failed(connection);
  }

  return { fresh, renewed, refreshed };
}

/** Throws `connection_needs_reauth` where the connection is known to be dead. */
function refuseDead(connection: LiveConnection): void {
  if (connection.status === 'active') return;
  throw new AppError('connection_needs_reauth', connection.fault?.next_step, {
    payload: { status: connection.status, ...connection.fault },
  });
}

function failed(connection: LiveConnection, retryAfterMs = 30_000): AppError {
  return new AppError('connection_refresh_failed', undefined, {
    retryAfterS: retryAfterMs / 1000,
    payload: { connection_id: connection.connectionId },
  });
}

/** A setting of the integration or the connection does not fit into the provider's address. */
function misconfigured(error: TemplateError): AppError {
  const message = `The provider's address cannot be built: ${error.message}`;
  return new AppError('integration_misconfigured', message, { cause: error });
}

function isDue(credentials: OAuth2Credentials, now: Date): boolean {
  if (credentials.expires_at === undefined || credentials.refresh_token === undefined)
    return isExpired(credentials, now);
  const lifeMs = Number(credentials.raw.expires_in) * 1000;
  const margin = Number.isFinite(lifeMs) && lifeMs > 0 ? Math.min(marginMs, lifeMs / 10) : marginMs;
  return Date.parse(credentials.expires_at) - now.getTime() < margin;
}

function isExpired(credentials: OAuth2Credentials, now: Date): boolean {
  return credentials.expires_at !== undefined && Date.parse(credentials.expires_at) <= now.getTime();
}

function accessTokenOf(credentials: Credentials): string | undefined {
  return credentials.type === 'OAUTH2' ? credentials.access_token : undefined;
}
