/**
 * One refresh of a connection, on any node.
 *
 * Owns: which tokens are tried under a lease and how often, that an answer is stored before it is used, the pause
 * before the next attempt. Does not own: the lease and the wait for another node (`lease.ts`), one request
 * (`refresh-request.ts`), the storage of its answer (`refresh-store.ts`), when a refresh is due and which callers
 * wait for it (`refresh-due.ts`, `credentials.ts`), the consequence of a refusal (`health/status-transitions.ts`).
 */
import { setTimeout as pause } from 'node:timers/promises';
import { type Activity, logged, noActivity } from '../../activity/writer.ts';
import { isRenewable, renewalOf } from '../../auth-modes/modes.ts';
import type { TokenOutcome } from '../../auth-modes/oauth2-request.ts';
import { isOutcomeUnknown, type TokenFault } from '../../auth-modes/token-fault.ts';
import type { Db } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { serviceStops } from '../../http/drain.ts';
import type { Integration } from '../../integrations/store.ts';
import { metrics } from '../../metrics/metrics.ts';
import type { Fetch } from '../../outbound/outbound.ts';
import { TemplateError } from '../../providers/template.ts';
import { errorCodeOf, spanned } from '../../tracing/tracing.ts';
import type { Vault } from '../../vault.ts';
import { delayOf, evidenceOf, refusalOf } from '../health/health.ts';
import type { StatusTransitions } from '../health/status-transitions.ts';
import { type ConnectionReader, type LiveConnection, placeOf } from '../store/reader.ts';
import {
  createRefreshWait,
  endLease,
  extendLease,
  type Lease,
  leaseMsOf,
  limitMsOf,
  repeatInLease,
  replacesTokens,
  takeLease,
} from './lease.ts';
import { openKept } from './previous-refresh-tokens.ts';
import { isExpired, pausedUntil } from './refresh-due.ts';
import { createSendRefresh, type Renewable } from './refresh-request.ts';
import { createRefreshStore, type RefreshAnswer } from './refresh-store.ts';

export type RefreshDeps = {
  db: Db;
  reader: Pick<ConnectionReader, 'forget' | 'reread'>;
  /** A guarded fetch; only test integrations may reach the sandbox. */
  fetchFor: (integration: Integration) => Fetch;
  transitions: StatusTransitions;
  vault: Vault;
  activity?: Activity;
  /**
   * Filled with the row IDs of the connections that are being refreshed, until the answer is stored or given up. A refresh
   * that waits for another node is not in it, so two nodes never wait for each other.
   */
  refreshing?: Set<number>;
  now?: () => Date;
  timing?: RefreshTiming;
  /** Called if an answer could not be stored as it is, or not at all; perhaps no caller waits for it. */
  onUnstored?: (connection: LiveConnection, error: unknown) => void;
};

export type RefreshTiming = {
  /**
   * The part of a lease after the provider's time limit, for the storage of the answer. A node that takes over a
   * lease sends nothing for this time.
   */
  storeMs: number;
  /**
   * How long a caller waits for another node's refresh, and the time after which no request starts, because its
   * answer would come too late for the callers.
   */
  patienceMs: number;
};

export const defaultTiming: RefreshTiming = { storeMs: 5_000, patienceMs: 75_000 };
/** How many requests of one refresh may lose their answer before the refresh fails. */
const maxLost = 3;
const firstBackoffMs = 2_000;
const longestBackoffMs = 5 * 60_000;
const longestObeyedMs = 3_600_000;
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

export function createRefresh({
  db,
  reader,
  fetchFor,
  transitions,
  vault,
  activity = noActivity,
  refreshing = new Set(),
  now = () => new Date(),
  timing: { storeMs, patienceMs } = defaultTiming,
  onUnstored = () => {},
}: RefreshDeps) {
  const send = createSendRefresh({ db, fetchFor, storeMs, now });
  const store = createRefreshStore({ db, transitions, vault, now, storeMs });
  /** Answers that are being stored, by the connection's row ID, also if no caller waits for them. */
  const storing = new Map<number, Promise<void>>();
  const stopping = new AbortController();
  const { afterHolder, untilFree } = createRefreshWait({ db, storeMs, stopping: stopping.signal });

  /**
   * Refreshes the credentials of `seen`, or returns the connection as another node has refreshed it since. Does not
   * try a connection that has ended or was refused again since `seen` was read. Throws `connection_needs_reauth`,
   * `connection_blocked` and `integration_misconfigured`; `connection_refresh_failed` if the provider does not judge
   * the request or another node does not finish; `unavailable` if the answer has arrived and the database does not
   * store it yet. After `stop` also throws `unavailable` if a request is needed.
   */
  async function refresh(seen: LiveConnection): Promise<LiveConnection> {
    const giveUpAt = performance.now() + patienceMs;
    // The outcome is in the connection.
    const beingStored = storing.get(seen.id)?.catch(() => {});
    if (beingStored !== undefined) await inTime(beingStored, giveUpAt);
    for (let hasWaited = false; ; hasWaited = true) {
      const connection = await reader.reread(seen);
      const { credentials } = connection;
      if (!isRenewable(credentials)) return connection;
      // Another node, or an earlier caller, has refreshed the connection.
      if (connection.credentialsVersion !== seen.credentialsVersion && connection.status === 'active') {
        return connection;
      }
      const refusal = refusalOf(connection);
      if (refusal !== undefined && isRefusedSince(seen, connection)) throw refusal;
      const at = now();
      const until = pausedUntil(connection, at);
      // Another node's attempt brought no new credentials.
      if (until > at && (hasWaited || until > pausedUntil(seen, at))) {
        throw delayOf(connection, until.getTime() - at.getTime());
      }
      const secret = renewalOf(credentials).secretOf(credentials);
      if (secret === undefined) {
        if (!isExpired(credentials, now())) throw notRenewable();
        const ended = await transitions.lacksRefreshToken(connection);
        if (ended !== undefined) throw ended;
        continue;
      }
      const blocked = await transitions.blockedByIntegration(connection);
      if (blocked !== undefined) throw blocked;
      if (stopping.signal.aborted) throw serviceStops();
      const taken = await takeLease(db, { connection, forMs: leaseMsOf(connection, storeMs) });
      const lease = taken && (await afterHolder(taken, { connection, giveUpAt }));
      const renewable = { ...connection, credentials };
      // The wait for another node's answer, usually this long, does not shorten the time for the provider.
      const sendUntil = taken?.isTakenOver ? giveUpAt + storeMs : giveUpAt;
      const refreshed =
        lease &&
        (await loggedRefresh(activity, connection, (report) =>
          listed(connection, () =>
            runUnder(lease, { connection: renewable, secret, giveUpAt: sendUntil, report }),
          ),
        ));
      if (refreshed !== undefined) return refreshed;
      await untilFree(connection, giveUpAt);
    }
  }

  /** The result of `work`; the connection is in `refreshing` until it has ended and no answer is being stored. */
  async function listed<Result>({ id }: LiveConnection, work: () => Promise<Result>): Promise<Result> {
    refreshing.add(id);
    return work().finally(() => storing.has(id) || refreshing.delete(id));
  }

  /**
   * The connection after the answer is stored. Throws `unavailable` at `giveUpAt`; the storage continues. Throws
   * `connection_needs_reauth` if something other than the provider's answer has ended the connection.
   */
  function stored(
    connection: Renewable,
    { giveUpAt, ...answer }: RefreshAnswer & { giveUpAt: number },
  ): Promise<LiveConnection> {
    const work = store(connection, answer).finally(() => {
      storing.delete(connection.id);
      refreshing.delete(connection.id);
    });
    work.catch((error: unknown) => onUnstored(connection, error));
    storing.set(connection.id, work);
    const current = work.then(async () => {
      const current = await reader.reread(connection);
      const refusal = refusalOf(current);
      if (refusal !== undefined) throw refusal;
      return current;
    });
    return inTime(current, Math.max(giveUpAt, performance.now() + storeMs));
  }

  /** Undefined if the lease has ended or the credentials were replaced before the provider accepted or refused a token. */
  async function runUnder(
    first: Lease,
    given: { connection: Renewable; secret: string; giveUpAt: number; report: ReportFault },
  ): Promise<LiveConnection | undefined> {
    const { connection, secret, giveUpAt, report } = given;
    const refused = new Set<string>();
    let lease = first;
    let token = secret;
    let refusal: TokenFault | undefined;
    let isResponsePending = first.isResponsePending;
    for (let lost = 0; ; ) {
      const outcome = await request(connection, { token, lease, giveUpAt });
      if (outcome === undefined) {
        await endLease(db, { connection, lease, isResponsePending });
        return undefined;
      }
      if (outcome.ok) return stored(connection, { lease, tokens: outcome.tokens, used: token, giveUpAt });
      const { fault } = outcome;
      report(fault);
      isResponsePending ||= isOutcomeUnknown(fault);
      // Without the lease the fault has no effect: another node has taken over, or the credentials were replaced.
      const extension = { connection, lease, forMs: leaseMsOf(connection, storeMs) };
      const extended = await repeatInLease(lease, () => extendLease(db, extension));
      if (extended === undefined) {
        await endLease(db, { connection, lease, isResponsePending });
        return undefined;
      }
      lease = extended;
      if (fault.kind === 'dead_grant') {
        refusal ??= fault;
        refused.add(token);
      } else if (lost + 1 < maxLost && maySendAgain(fault, { connection, lease, giveUpAt })) {
        lost += 1;
        await pause(100 * lost * (0.5 + Math.random()));
      } else return fail(connection, { lease, fault, isResponsePending });
      const left = [secret, ...openKept(connection, lease.keptTokens)];
      const next = left.find((other) => !refused.has(other));
      if (next === undefined) return fail(connection, { lease, fault: refusal ?? fault, isResponsePending });
      token = next;
    }
  }

  async function request(
    connection: Renewable,
    given: { token: string; lease: Lease; giveUpAt: number },
  ): Promise<TokenOutcome | undefined> {
    const { lease } = given;
    return send(connection, given).catch(async (error: unknown) => {
      await endLease(db, { connection, lease });
      throw error instanceof TemplateError ? misconfigured(error) : error;
    });
  }

  /**
   * Whether a request without an answer is sent again with the same token. If the provider replaces tokens and the
   * request has timed out, the provider may still process it, and a second request could end the grant.
   */
  function maySendAgain(
    fault: TokenFault,
    { connection, lease, giveUpAt }: { connection: LiveConnection; lease: Lease; giveUpAt: number },
  ): boolean {
    if (fault.error === 'network') return true;
    if (fault.error !== 'timeout' || replacesTokens(connection, lease)) return false;
    return performance.now() + limitMsOf(connection) <= giveUpAt;
  }

  /**
   * Writes the consequence of a failure, returns the lease, and throws. Undefined if the failure does not count
   * because the credentials were replaced. Waits for the database until the lease ends: without a stored refusal, a
   * node would send the refused token again.
   */
  async function fail(
    connection: LiveConnection,
    { lease, fault, isResponsePending }: { lease: Lease; fault: TokenFault; isResponsePending: boolean },
  ): Promise<undefined> {
    const isTokenLost = isResponsePending && replacesTokens(connection, lease);
    const transition =
      fault.kind === 'dead_grant' && isTokenLost ? transitions.replyLost : transitions.refused;
    const error = await repeatInLease(lease, () => transition(connection, fault));
    const failures = lease.failures + 1;
    const waitMs = error && pauseAfter(error, { failures, fault });
    const end = {
      connection,
      lease,
      failures: error && failures,
      isResponsePending: isResponsePending && error?.code !== 'connection_needs_reauth',
      notBefore: waitMs === undefined ? undefined : new Date(now().getTime() + waitMs),
    };
    const isCurrent = await repeatInLease(lease, () => endLease(db, end));
    reader.forget(placeOf(connection));
    if (error === undefined || !isCurrent) return undefined;
    throw error;
  }

  return {
    refresh,
    storing,
    /** Starts no further refresh and ends the waits for other nodes. Running requests continue. */
    stop: () => stopping.abort(),
  };
}

/** The result of `work`; throws `unavailable` at `giveUpAt` (in `performance.now()`). */
async function inTime<T>(work: Promise<T>, giveUpAt: number): Promise<T> {
  const over = new AbortController();
  const tooLate = pause(giveUpAt - performance.now(), undefined, { signal: over.signal }).then(() => {
    const message = 'The new credentials cannot be stored in the database yet. Try again shortly.';
    throw new AppError('unavailable', message, { retryAfterS: 5 });
  });
  return Promise.race([work, tooLate]).finally(() => over.abort());
}

function isRefusedSince(seen: LiveConnection, { status, refreshNotBefore: until }: LiveConnection): boolean {
  if (status !== seen.status) return true;
  // A connection that waits for its user has a pause only after an attempt that the provider did not judge.
  return status !== 'needs_reauth' && until !== undefined && until > (seen.refreshNotBefore ?? new Date(0));
}

/** A retry would not help: the provider or the import gave no refresh token. */
function notRenewable(): AppError {
  const message =
    'These credentials cannot be refreshed: they have no refresh token, and are valid until they expire.';
  return new AppError('invalid_credentials', message, { status: 400 });
}

/** The pause before the next attempt; undefined if the next attempt does not depend on time. */
function pauseAfter(
  { code }: AppError,
  { failures, fault }: { failures: number; fault: TokenFault },
): number | undefined {
  // The first waits for its user; the second for the probe of its integration, or for the end of its suspension
  // (`store/suspension.ts`). An outage has pauses, also if the client was refused before.
  if (code === 'connection_needs_reauth') return undefined;
  if (code === 'integration_misconfigured' && fault.kind === 'client_misconfigured') return undefined;
  if (code !== 'connection_blocked') return backoffMs(failures, fault);
  return fault.kind === 'blocked_by_admin' ? dayMs : hourMs;
}

/** Grows with each failure in a row; random, so that connections which failed together do not retry together. */
function backoffMs(failures: number, { retryAfterMs = 0 }: TokenFault): number {
  const backoff =
    Math.min(firstBackoffMs * 2 ** (failures - 1), longestBackoffMs) * (0.5 + Math.random() / 2);
  return Math.max(backoff, Math.min(retryAfterMs, longestObeyedMs));
}

/** A setting of the integration or the connection does not fit the provider's address. */
function misconfigured(error: TemplateError): AppError {
  const message = `The provider's address cannot be built: ${error.message}`;
  return new AppError('integration_misconfigured', message, { cause: error });
}

/** Called for each answer without new credentials. */
type ReportFault = (fault: TokenFault) => void;

/** Logs, counts and traces one attempt to refresh a connection. */
async function loggedRefresh(
  activity: Activity,
  { environmentId, integrationKey: integration, connectionId, providerName: provider }: LiveConnection,
  attempt: (report: ReportFault) => Promise<LiveConnection | undefined>,
): Promise<LiveConnection | undefined> {
  const startedAt = performance.now();
  let outcome = 'renewed';
  const entry = {
    type: 'refresh' as const,
    environmentId,
    integration,
    connection: connectionId,
    actor: 'service',
    // Another node took over, or the credentials were replaced.
    of: (renewed: LiveConnection | undefined) =>
      renewed === undefined ? ({ status: 'failed', errorCode: 'superseded' } as const) : {},
  };
  try {
    return await spanned(
      'refresh',
      { kind: 'internal', attributes: { 'trellis.provider': provider } },
      async (span) => {
        const renewed = await logged(activity, entry, (log) =>
          attempt((fault) =>
            log('warn', 'the provider returned no new credentials', {
              kind: fault.kind,
              ...evidenceOf(fault),
            }),
          ),
        );
        if (renewed === undefined) outcome = 'superseded';
        span?.set({ 'trellis.outcome': outcome });
        return renewed;
      },
    );
  } catch (error) {
    outcome = errorCodeOf(error);
    throw error;
  } finally {
    metrics.refreshes.add([provider, outcome]);
    metrics.refreshDuration.observe([provider], (performance.now() - startedAt) / 1000);
  }
}
