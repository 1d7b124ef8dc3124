/**
 * Valid credentials of a connection, refreshed when necessary.
 *
 * Owns: which callers wait for a refresh, the refresh that callers of one node share, the column `last_used_at`, changes of
 * `is_unverified` by calls. Does not own: the refresh (`refresh.ts`), when a token is due (`refresh-due.ts`), connections without calls
 * (`keepalive.ts`).
 */
import { type Credentials, isRenewable, renewalOf } from '../../auth-modes/modes.ts';
import type { Db } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { Logger } from '../../log.ts';
import { delayOf, isRefusal, isSuspended, refusalOf } from '../health/health.ts';
import type { ConnectionReader, LiveConnection } from '../store/reader.ts';
import type { ConnectionHead } from '../store/store.ts';
import { recordRenewed } from './lease.ts';
import { createRefresh, type RefreshDeps } from './refresh.ts';
import { dueAtMs, isDue, isExpired, isRenewed, isUsable, pausedUntil } from './refresh-due.ts';

export type CredentialSource = {
  /**
   * Credentials that are valid for a call now. If they expire soon, a refresh starts in the background; if they have
   * expired, the caller waits for it.
   *
   * Concurrent callers of one connection share one refresh, on all nodes: many providers revoke the whole grant when
   * a refresh token is used twice (RFC 9700 §4.14.2). Throws `connection_needs_reauth` and `connection_blocked` when
   * the provider refuses. Only if the token has expired, throws `integration_misconfigured` when the provider refuses
   * our client, `connection_refresh_failed` when it does not answer, and `unavailable` when the database does not
   * store the answer.
   */
  fresh(connection: LiveConnection): Promise<Credentials>;
  /** The result of `fresh` without waiting; undefined if `fresh` would refresh or throw. Both count as a use. */
  current(connection: LiveConnection): Credentials | undefined;
  /**
   * Credentials to try after the provider answered 401 to `used`: newer stored credentials, or those of one refresh.
   * Undefined if there are no better ones, and for 30 s after such a refresh on any node: an API that refuses all
   * tokens would cost a refresh for each call. Throws `connection_needs_reauth` when the refresh shows that the grant
   * is dead, and `integration_misconfigured` when it shows that our client may not use it.
   */
  renewed(connection: LiveConnection, used: Credentials): Promise<Credentials | undefined>;
  /**
   * The provider has accepted the credentials of `connection` in a call: an unverified connection becomes verified. Returns
   * immediately and never throws. Handing out credentials proves nothing.
   */
  proven(connection: LiveConnection): void;
  /**
   * The provider has answered 401 to the credentials of `connection`: if no refresh can show whether they still work, a
   * verified connection becomes unverified. Returns immediately and never throws.
   */
  refused(connection: LiveConnection): void;
  /**
   * Refreshes whether or not the token is due. Also tries a dead connection, if it was already dead when `connection`
   * was read. Throws as `fresh` does.
   */
  refreshed(connection: LiveConnection): Promise<LiveConnection>;
  /** As `refreshed`, but throws `connection_needs_reauth` at once if the connection needs its user. */
  refreshedLiving(connection: LiveConnection): Promise<LiveConnection>;
  /**
   * Resolves when no refresh is under way, so that no answer is lost, and each use is recorded; after 3 s at the
   * latest.
   */
  settled(): Promise<void>;
  /**
   * Starts no further refresh: callers that need one get `unavailable`, or `connection_refresh_failed` as before.
   * Resolves as `settled` does, but waits up to `limitMs` if that is longer. Refreshes still under way are then given
   * up; if the provider has already invalidated the old token, that loses the connection.
   */
  stop(limitMs: number): Promise<void>;
};

/** The pause of this node after a failed background refresh, if the database has no pause. */
const backgroundPauseMs = 5_000;
const maxRemembered = 10_000;
const minSettleMs = 3_000;

export function createCredentialSource(
  given: RefreshDeps & { reader: ConnectionReader; log: Logger },
): CredentialSource {
  const { log, ...deps } = given;
  const { db, reader, now = () => new Date() } = deps;
  const { refresh, storing, stop } = createRefresh({
    ...deps,
    onUnstored({ integration, connectionId }, err) {
      log.error(
        { err, integration: integration.key, connectionId },
        'the response to a token refresh could not be stored',
      );
    },
  });
  const lastUse = createLastUse(db);
  const running = new Map<number, Promise<LiveConnection>>();
  /** Connections whose last background refresh failed, and the end of the pause. */
  const backgroundPausedUntil = new Map<number, number>();

  async function fresh(connection: LiveConnection): Promise<Credentials> {
    const { credentials } = connection;
    if (isRenewable(credentials)) throwIfDead(connection);
    lastUse.record(connection, now());
    if (!isRenewable(credentials) || !isDue(credentials, now())) return credentials;
    if (isUsable(credentials, now())) {
      refreshInBackground(connection);
      return credentials;
    }
    try {
      throwIfPaused(connection);
      return (await refreshed(connection)).credentials;
    } catch (error) {
      if (isUnusable(error) || isExpired(credentials, now())) throw error;
      if (!(error instanceof AppError)) log.error({ err: error }, 'a refresh failed');
      return credentials;
    }
  }

  function current(connection: LiveConnection): Credentials | undefined {
    const at = now();
    if (currentUntil(connection) <= at.getTime()) return undefined;
    lastUse.record(connection, at);
    return connection.credentials;
  }

  async function renewed(connection: LiveConnection, used: Credentials): Promise<Credentials | undefined> {
    if (!isRenewable(used)) return undefined;
    try {
      const current = await reader.reread(connection);
      throwIfDead(current);
      if (accessTokenOf(current.credentials) !== accessTokenOf(used)) return current.credentials;
      throwIfPaused(current);
      if (isRenewed(current, now())) return undefined;
      const isFirst = !running.has(current.id);
      const { credentials } = await refreshed(current);
      if (isFirst) await recordRenewed(db, { connection: current, at: now() });
      return credentials;
    } catch (error) {
      // The caller gets the error of a dead grant, or of a client that may not refresh; else the provider's 401.
      if (error instanceof AppError && !isRefusal(error) && !isSuspended(error)) return undefined;
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

  async function refreshedLiving(connection: LiveConnection): Promise<LiveConnection> {
    if (connection.status === 'needs_reauth') throwIfDead(connection);
    return refreshed(connection);
  }

  function refreshInBackground(connection: LiveConnection): void {
    const { id } = connection;
    const at = now().getTime();
    const pauseEndsAt = Math.max(
      pausedUntil(connection, now()).getTime(),
      backgroundPausedUntil.get(id) ?? 0,
    );
    if (running.has(id) || pauseEndsAt > at) return;
    refreshed(connection).then(
      () => backgroundPausedUntil.delete(id),
      (error: unknown) => {
        if (backgroundPausedUntil.size >= maxRemembered) backgroundPausedUntil.clear();
        backgroundPausedUntil.set(id, at + backgroundPauseMs);
        if (!(error instanceof AppError)) log.error({ err: error }, 'a background refresh failed');
      },
    );
  }

  /**
   * During the pause after a failure on any node: throws `integration_misconfigured` if the client may not use the
   * token, else `connection_refresh_failed`.
   */
  function throwIfPaused(connection: LiveConnection): void {
    const at = now();
    const waitMs = pausedUntil(connection, at).getTime() - at.getTime();
    if (waitMs > 0) throw delayOf(connection, waitMs);
  }

  async function settledWithin(limitMs: number): Promise<void> {
    const giveUp = new AbortController();
    const timer = setTimeout(() => giveUp.abort(), limitMs);
    const ended = new Promise((resolve) => giveUp.signal.addEventListener('abort', resolve));
    while (running.size + storing.size > 0 && !giveUp.signal.aborted) {
      await Promise.race([Promise.allSettled([...running.values(), ...storing.values()]), ended]);
    }
    clearTimeout(timer);
    const unanswered = [...running.keys()].filter((id) => !storing.has(id)).length;
    if (unanswered > 0)
      log.error({ refreshes: unanswered }, 'the service stops before these refreshes have ended');
    if (storing.size > 0)
      log.error(
        { answers: storing.size },
        'the service stops before the responses to these refreshes are stored; they are lost',
      );
    await lastUse.settled();
  }

  return {
    fresh,
    current,
    renewed,
    proven: (connection) => lastUse.prove(connection, now()),
    refused(connection) {
      const { credentials } = connection;
      if (!isRenewable(credentials) && credentials.type !== 'NONE') lastUse.refuse(connection);
    },
    refreshed,
    refreshedLiving,
    settled: () => settledWithin(minSettleMs),
    stop(limitMs) {
      stop();
      return settledWithin(Math.max(limitMs, minSettleMs));
    },
  };
}

/** The results of `currentUntil`. The reader caches a connection object for a second, for many calls. */
const currentTimes = new WeakMap<LiveConnection, number>();

/** Until when a connection's credentials can be used without a refresh, in ms since 1970; in the past if it is dead. */
function currentUntil(connection: LiveConnection): number {
  let until = currentTimes.get(connection);
  if (until === undefined) {
    const isDead = isRenewable(connection.credentials) && refusalOf(connection) !== undefined;
    until = isDead ? Number.NEGATIVE_INFINITY : dueAtMs(connection.credentials);
    currentTimes.set(connection, until);
  }
  return until;
}

/** Throws `connection_needs_reauth` or `connection_blocked` if the connection is dead. */
function throwIfDead(connection: LiveConnection): void {
  const refusal = refusalOf(connection);
  if (refusal !== undefined) throw refusal;
}

/** The error says that the connection cannot be used, not that a refresh failed. */
function isUnusable(error: unknown): boolean {
  const unusable: unknown[] = ['unknown_connection', 'test_credentials_unavailable'];
  return isRefusal(error) || (error instanceof AppError && unusable.includes(error.code));
}

function accessTokenOf(credentials: Credentials): string | undefined {
  return isRenewable(credentials) ? renewalOf(credentials).accessTokenOf(credentials) : undefined;
}

/** The precision of the time of the last use. */
const lastUseStepMs = 60_000;

/** How long the use of an unverified connection waits for the provider's answer, so that one write stores both. */
const proofWaitMs = 1_000;

type UsedConnection = Pick<
  ConnectionHead,
  'id' | 'environmentId' | 'lastUsedAt' | 'isUnverified' | 'credentialsVersion'
>;

/** Records when connections were last used, and whether they are verified. The time of each is written once a minute. */
export function createLastUse(db: Db) {
  const writing = new Set<Promise<unknown>>();
  /** The uses that wait for an answer, by connection. */
  const waiting = new Map<number, { connection: UsedConnection; at: Date; timer: NodeJS.Timeout }>();
  /** Calls with alternating answers that share a cached connection, which lives for a second, write one refusal. */
  const refused = new WeakSet<UsedConnection>();

  function track(written: Promise<unknown>): void {
    const settled: Promise<unknown> = written.catch(() => {}).finally(() => writing.delete(settled));
    writing.add(settled);
  }

  /** `provenVersion`: the version of the credentials that the provider accepted; null: none. */
  function write({ id, environmentId }: UsedConnection, at: Date, provenVersion: number | null): void {
    // Of several nodes at the same time, one writes.
    track(
      db.query(
        `update connection
         set
           last_used_at = greatest(last_used_at, $3),
           is_unverified = is_unverified and credentials_version is distinct from $5
         where id = $1
           and environment_id = $2
           and deleted_at is null
           and (last_used_at is null or last_used_at <= $4 or (is_unverified and credentials_version = $5))`,
        [id, environmentId, at, new Date(at.getTime() - lastUseStepMs), provenVersion],
      ),
    );
  }

  function endWait(id: number): void {
    const use = waiting.get(id);
    if (use === undefined) return;
    clearTimeout(use.timer);
    waiting.delete(id);
    write(use.connection, use.at, null);
  }

  return {
    /** Returns immediately and never throws. The next use repairs a lost write. */
    record(connection: UsedConnection, at: Date): void {
      const { id, lastUsedAt: last, isUnverified } = connection;
      if (last !== undefined && at.getTime() - last.getTime() < lastUseStepMs) return;
      // Calls that share a cached connection share one write.
      connection.lastUsedAt = at;
      if (!isUnverified) write(connection, at, null);
      else if (!waiting.has(id))
        waiting.set(id, { connection, at, timer: setTimeout(() => endWait(id), proofWaitMs).unref() });
    },
    /** The provider accepted the credentials. Returns immediately and never throws; the next proof repairs a lost write. */
    prove(connection: UsedConnection, at: Date): void {
      if (!connection.isUnverified) return;
      connection.isUnverified = false;
      connection.lastUsedAt = at;
      clearTimeout(waiting.get(connection.id)?.timer);
      waiting.delete(connection.id);
      write(connection, at, connection.credentialsVersion);
    },
    /** The provider refused the credentials. Returns immediately and never throws; the next refusal repairs a lost write. */
    refuse(connection: UsedConnection): void {
      if (connection.isUnverified || refused.has(connection)) return;
      refused.add(connection);
      connection.isUnverified = true;
      track(
        db.query(
          `update connection
           set is_unverified = true
           where id = $1
             and environment_id = $2
             and credentials_version = $3
             and deleted_at is null
             and not is_unverified`,
          [connection.id, connection.environmentId, connection.credentialsVersion],
        ),
      );
    },
    /** Resolves when each use is written. */
    async settled(): Promise<void> {
      for (const id of [...waiting.keys()]) endWait(id);
      await Promise.all(writing);
    },
  };
}
