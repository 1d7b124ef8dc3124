import type { Credentials } from '../auth-modes/mode.ts';
import { AppError } from '../errors.ts';
import type { Logger } from '../log.ts';
import { isRefusal, refusalOf } from './health.ts';
import type { ConnectionReader, LiveConnection } from './reader.ts';
import { createRefresh, failed, type RefreshDeps } from './refresh.ts';
import { isDue, isExpired, isUsable } from './refresh-due.ts';

/**
 * Credentials that work, refreshed when they must be.
 *
 * Owns: who waits for a refresh and who does not, that callers of one node share one. Does not own: the refresh itself
 * (`refresh.ts`), when a token is due (`refresh-due.ts`), connections that nobody calls (`keepalive.ts`), the table
 * (`store.ts`).
 */
export type CredentialSource = {
  /**
   * Credentials that are good for a call now. Where they soon are not, a refresh goes on in the background; only where
   * they are not good any more does the caller wait for it.
   *
   * Callers racing for one connection share one refresh, on all nodes: many providers revoke the whole grant when a
   * refresh token is used twice (RFC 9700 §4.14.2). Throws `connection_needs_reauth` and `connection_blocked` when the
   * provider refuses, and `connection_refresh_failed` when it gives no answer and the token has expired.
   */
  fresh(connection: LiveConnection): Promise<Credentials>;
  /**
   * What to try after the provider answered 401 to `used`: credentials that another call got meanwhile, or those of
   * one refresh. Undefined where nothing better is to be had, also for 30 s after such a refresh: an API that refuses
   * every token would cost one per call. Throws `connection_needs_reauth` when the refresh shows
   * that the grant is dead.
   */
  renewed(connection: LiveConnection, used: Credentials): Promise<Credentials | undefined>;
  /** Refreshes whether or not it is time, and whether or not the connection is dead. Throws as `fresh` does. */
  refreshed(connection: LiveConnection): Promise<LiveConnection>;
  /** Resolves once no refresh is under way, so that no answer is lost; after 3 s at the latest. */
  settled(): Promise<void>;
};

/** How long a failure in the background keeps this node from the next one, where the database does not say. */
const quietMs = 5_000;
/** How long a token that a refusal brought is not replaced for another refusal. */
const renewalMs = 30_000;
const mostRemembered = 10_000;
const settleMs = 3_000;

export function createCredentialSource({
  log,
  ...deps
}: RefreshDeps & { reader: ConnectionReader; log: Logger }): CredentialSource {
  const { reader, now = () => new Date() } = deps;
  const refresh = createRefresh(deps);
  const running = new Map<number, Promise<LiveConnection>>();
  /** Connections whose last refresh in the background failed, and until when they are left alone. */
  const quietUntil = new Map<number, number>();
  /** Connections that were refreshed for a 401, and until when another 401 is taken for the API's own. */
  const renewedUntil = new Map<number, number>();

  async function fresh(connection: LiveConnection): Promise<Credentials> {
    const { credentials } = connection;
    if (credentials.type !== 'OAUTH2') return credentials;
    refuseDead(connection);
    if (!isDue(credentials, now())) return credentials;
    if (isUsable(credentials, now())) {
      refreshBehind(connection);
      return credentials;
    }
    try {
      refuseEarly(connection);
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
      refuseEarly(current);
      const at = now().getTime();
      if ((renewedUntil.get(current.id) ?? 0) > at) return undefined;
      const { credentials } = await refreshed(current);
      remember(renewedUntil, current.id, at + renewalMs);
      return credentials;
    } catch (error) {
      // A grant that has turned out to be dead is told as such; for any other reason the 401 is the answer.
      if (error instanceof AppError && !isRefusal(error)) return undefined;
      throw error;
    }
  }

  function refreshed(connection: LiveConnection): Promise<LiveConnection> {
    const known = running.get(connection.id);
    if (known !== undefined) return known;
    const one = refresh(connection).finally(() => running.delete(connection.id));
    running.set(connection.id, one);
    return one;
  }

  function refreshBehind(connection: LiveConnection): void {
    const { id } = connection;
    const at = now().getTime();
    if (running.has(id) || isEarly(connection) || (quietUntil.get(id) ?? 0) > at) return;
    refreshed(connection).then(
      () => quietUntil.delete(id),
      (error: unknown) => {
        remember(quietUntil, id, at + quietMs);
        if (!(error instanceof AppError)) log.error({ err: error }, 'a refresh in the background failed');
      },
    );
  }

  /** Throws `connection_refresh_failed` while the pause after a failure lasts, on whichever node that was. */
  function refuseEarly(connection: LiveConnection): void {
    const until = connection.refreshNotBefore;
    if (until !== undefined && isEarly(connection)) {
      throw failed(connection, until.getTime() - now().getTime());
    }
  }

  function isEarly({ refreshNotBefore }: LiveConnection): boolean {
    return refreshNotBefore !== undefined && refreshNotBefore > now();
  }

  async function settled(): Promise<void> {
    const giveUp = new AbortController();
    const timer = setTimeout(() => giveUp.abort(), settleMs);
    const ended = new Promise((resolve) => giveUp.signal.addEventListener('abort', resolve));
    while (running.size > 0 && !giveUp.signal.aborted) {
      await Promise.race([Promise.allSettled(running.values()), ended]);
    }
    clearTimeout(timer);
  }

  return { fresh, renewed, refreshed, settled };
}

/** Throws `connection_needs_reauth` or `connection_blocked` where the connection is known to be dead. */
function refuseDead(connection: LiveConnection): void {
  const refusal = refusalOf(connection, connection.integration.provider);
  if (refusal !== undefined) throw refusal;
}

function remember(times: Map<number, number>, id: number, until: number): void {
  if (times.size >= mostRemembered) times.clear();
  times.set(id, until);
}

function accessTokenOf(credentials: Credentials): string | undefined {
  return credentials.type === 'OAUTH2' ? credentials.access_token : undefined;
}
