import { type Credentials, isRenewable, renewalOf } from '../auth-modes/mode.ts';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Logger } from '../log.ts';
import { isRefusal, isSuspended, refusalOf } from './health.ts';
import { noteRenewed } from './lease.ts';
import type { ConnectionReader, LiveConnection } from './reader.ts';
import { createRefresh, type RefreshDeps } from './refresh.ts';
import { isDue, isExpired, isRenewed, isUsable, pausedUntil } from './refresh-due.ts';
import { failed } from './refresh-wait.ts';
import type { ConnectionHead } from './store.ts';

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
   * provider refuses; `integration_misconfigured` when it refuses our client, `connection_refresh_failed` when it gives
   * no answer, and `unavailable` when the database does not take that, all three only where the token has expired.
   */
  fresh(connection: LiveConnection): Promise<Credentials>;
  /** What `fresh` would give at once; undefined where it would do more, or throw. Both count as a use. */
  current(connection: LiveConnection): Credentials | undefined;
  /**
   * What to try after the provider answered 401 to `used`: credentials that another call got meanwhile, or those of
   * one refresh. Undefined where nothing better is to be had, also for 30 s after such a refresh on whichever node: an
   * API that refuses every token would cost one per call. Throws `connection_needs_reauth` when the refresh shows that the grant is
   * dead, and `integration_misconfigured` when it shows that our client may not use it.
   */
  renewed(connection: LiveConnection, used: Credentials): Promise<Credentials | undefined>;
  /**
   * Refreshes whether or not it is time, and also a dead connection, where it was dead already when `connection` was
   * read. Throws as `fresh` does.
   */
  refreshed(connection: LiveConnection): Promise<LiveConnection>;
  /** As `refreshed`, but a connection that needs its user is not tried: throws `connection_needs_reauth`. */
  refreshedLiving(connection: LiveConnection): Promise<LiveConnection>;
  /** Resolves once no refresh is under way, so that no answer is lost, and each use is noted; after 3 s at the latest. */
  settled(): Promise<void>;
  /**
   * From now on no refresh is begun: who would need one is told `unavailable`, or `connection_refresh_failed` as ever. Resolves as
   * `settled` does, after `limitMs` at the latest where that is longer. What is under way by then is given up: to wait
   * for it is to keep the connection, where the provider takes the old token for good.
   */
  stop(limitMs: number): Promise<void>;
};

/** How long a failure in the background keeps this node from the next one, where the database does not say. */
const quietMs = 5_000;
const maxRemembered = 10_000;
const minSettleMs = 3_000;

export function createCredentialSource({
  log,
  ...deps
}: RefreshDeps & { reader: ConnectionReader; log: Logger }): CredentialSource {
  const { db, reader, now = () => new Date() } = deps;
  const { refresh, storing, stop } = createRefresh({
    ...deps,
    onUnstored({ integration, connectionId }, err) {
      log.error(
        { err, integration: integration.key, connectionId },
        'the answer to a refresh could not be stored as it came',
      );
    },
  });
  const lastUse = createLastUse(db);
  const running = new Map<number, Promise<LiveConnection>>();
  /** Connections whose last refresh in the background failed, and until when they are left alone. */
  const quietUntil = new Map<number, number>();

  async function fresh(connection: LiveConnection): Promise<Credentials> {
    const { credentials } = connection;
    if (isRenewable(credentials)) refuseDead(connection);
    lastUse.note(connection, now());
    if (!isRenewable(credentials)) return credentials;
    if (!isDue(credentials, now())) return credentials;
    if (isUsable(credentials, now())) {
      refreshBehind(connection);
      return credentials;
    }
    try {
      refuseEarly(connection);
      return (await refreshed(connection)).credentials;
    } catch (error) {
      if (isOver(error) || isExpired(credentials, now())) throw error;
      if (!(error instanceof AppError)) log.error({ err: error }, 'a refresh failed');
      return credentials;
    }
  }

  function current(connection: LiveConnection): Credentials | undefined {
    const { credentials, integration } = connection;
    const at = now();
    if (isRenewable(credentials)) {
      const isDead = refusalOf(connection, integration.provider) !== undefined;
      if (isDead || isDue(credentials, at)) return undefined;
    }
    lastUse.note(connection, at);
    return credentials;
  }

  async function renewed(connection: LiveConnection, used: Credentials): Promise<Credentials | undefined> {
    if (!isRenewable(used)) return undefined;
    try {
      const current = await reader.reread(connection);
      refuseDead(current);
      if (accessTokenOf(current.credentials) !== accessTokenOf(used)) return current.credentials;
      refuseEarly(current);
      if (isRenewed(current, now())) return undefined;
      const isFirst = !running.has(current.id);
      const { credentials } = await refreshed(current);
      if (isFirst) await noteRenewed(db, { connection: current, at: now() });
      return credentials;
    } catch (error) {
      // A token that is dead, or that our client may not renew, is told as such; else the 401 is the answer.
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
    if (connection.status === 'needs_reauth') refuseDead(connection);
    return refreshed(connection);
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

  /**
   * While the pause after a failure lasts, on whichever node that was: throws `integration_misconfigured` where the
   * client may not use the token, else `connection_refresh_failed`.
   */
  function refuseEarly(connection: LiveConnection): void {
    const at = now();
    const waitMs = pausedUntil(connection, at).getTime() - at.getTime();
    if (waitMs > 0) throw failed(connection, waitMs);
  }

  function isEarly(connection: LiveConnection): boolean {
    const at = now();
    return pausedUntil(connection, at) > at;
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
    if (unanswered > 0) log.error({ refreshes: unanswered }, 'refreshes are cut off by this stop');
    if (storing.size > 0) log.error({ answers: storing.size }, 'answers to refreshes are lost by this stop');
    await lastUse.settled();
  }

  return {
    ...{ fresh, current, renewed, refreshed, refreshedLiving },
    settled: () => settledWithin(minSettleMs),
    stop(limitMs) {
      stop();
      return settledWithin(Math.max(limitMs, minSettleMs));
    },
  };
}

/** Throws `connection_needs_reauth` or `connection_blocked` where the connection is known to be dead. */
function refuseDead(connection: LiveConnection): void {
  const refusal = refusalOf(connection, connection.integration.provider);
  if (refusal !== undefined) throw refusal;
}

/** Whether an error says that the connection may not be used, not that a refresh failed. */
function isOver(error: unknown): boolean {
  const over: unknown[] = ['unknown_connection', 'test_credentials_unavailable'];
  return isRefusal(error) || (error instanceof AppError && over.includes(error.code));
}

function remember(times: Map<number, number>, id: number, until: number): void {
  if (times.size >= maxRemembered) times.clear();
  times.set(id, until);
}

function accessTokenOf(credentials: Credentials): string | undefined {
  return isRenewable(credentials) ? renewalOf(credentials).accessTokenOf(credentials) : undefined;
}

/** How exact the time of a last use is. */
const notedEveryMs = 60_000;

type LastUse = {
  /** Returns at once and never throws. One that is lost is noted again by the next use. */
  note(connection: Pick<ConnectionHead, 'id' | 'environmentId' | 'lastUsedAt'>, at: Date): void;
  /** Resolves when none is being noted any more. */
  settled(): Promise<void>;
};

/** When connections were last used, as exactly as for a row that is written once a minute at most. */
export function createLastUse(db: Db): LastUse {
  const noting = new Set<Promise<unknown>>();
  return {
    note(connection, at) {
      const { id, environmentId, lastUsedAt: last } = connection;
      if (last !== undefined && at.getTime() - last.getTime() < notedEveryMs) return;
      // Calls that share what was read share the note.
      connection.lastUsedAt = at;
      const noted: Promise<unknown> = store(db, { id, environmentId, at })
        .catch(() => {})
        .finally(() => noting.delete(noted));
      noting.add(noted);
    },
    async settled() {
      await Promise.all(noting);
    },
  };
}

/** Of nodes that note at the same time, one writes. */
async function store(
  db: Db,
  { id, environmentId, at }: { id: number; environmentId: number; at: Date },
): Promise<void> {
  await db.query(
    `update connection
     set last_used_at = $3
     where id = $1
       and environment_id = $2
       and deleted_at is null
       and (last_used_at is null or last_used_at <= $4)`,
    [id, environmentId, at, new Date(at.getTime() - notedEveryMs)],
  );
}
