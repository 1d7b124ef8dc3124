import { setTimeout as pause } from 'node:timers/promises';
import { logged, type Tell } from '../activity/logged.ts';
import { type Activity, noActivity } from '../activity/writer.ts';
import { isRenewable, renewalOf } from '../auth-modes/mode.ts';
import { isOutcomeUnknown, type TokenFault } from '../auth-modes/token-fault.ts';
import type { TokenOutcome } from '../auth-modes/token-request.ts';
import type { Fetch } from '../auth-modes/token-response.ts';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { serviceStops } from '../http/drain.ts';
import type { Integration } from '../integrations/store.ts';
import { metrics } from '../metrics/metrics.ts';
import { TemplateError } from '../providers/template-grammar.ts';
import { errorCodeOf, spanned } from '../tracing/tracing.ts';
import type { Vault } from '../vault.ts';
import { evidenceOf, refusalOf } from './health.ts';
import { endLease, extendLease, type Lease, takeLease } from './lease.ts';
import { openKept } from './previous-refresh-tokens.ts';
import { type ConnectionReader, type LiveConnection, placeOf } from './reader.ts';
import { isExpired, pausedUntil } from './refresh-due.ts';
import {
  createSendRefresh,
  leaseMsOf,
  limitMsOf,
  type Renewable,
  replacesTokens,
} from './refresh-request.ts';
import { createRefreshStore, type Given } from './refresh-store.ts';
import { createRefreshWait, failed } from './refresh-wait.ts';
import type { StatusTransitions } from './status-transitions.ts';

/**
 * One refresh of a connection, whichever node runs it.
 *
 * Owns: which tokens are tried under a lease and how often, that an answer is stored before it is used, when the next
 * attempt may be. Does not own: the lease (`lease.ts`), how another node's is waited for (`refresh-wait.ts`), one request
 * (`refresh-request.ts`), how its answer is stored (`refresh-store.ts`), when a refresh is due and who waits for it
 * (`credentials.ts`), the verdict on a refusal (`status-transitions.ts`).
 */
type Refresher = {
  /**
   * Refreshes the credentials of `seen`, unless that is done by the time this node may: then it answers what another
   * stored. A connection that has ended since `seen` was read, or was refused once more, is not tried. Throws
   * `connection_needs_reauth`, `connection_blocked`, `integration_misconfigured`, `connection_refresh_failed` where the
   * provider gives no judgement or another node does not come to an end, and `unavailable` where the answer has come and
   * the database does not take it: it goes on being stored. After `stop` also where a request would be needed.
   */
  refresh(seen: LiveConnection): Promise<LiveConnection>;
  /** Answers that are being stored, by the connection's ID; also those that nobody waits for any more. */
  storing: ReadonlyMap<number, Promise<void>>;
  /** From now on no refresh is begun, and none waits for another node. What is under way goes on. */
  stop(): void;
};

export type RefreshDeps = {
  db: Db;
  reader: Pick<ConnectionReader, 'forget' | 'reread'>;
  /** The guarded way to the network; test integrations alone may reach the sandbox. */
  fetchFor: (integration: Integration) => Fetch;
  transitions: StatusTransitions;
  vault: Vault;
  activity?: Activity;
  now?: () => Date;
  timing?: RefreshTiming;
  /** Told of an answer that could not be stored as it is, or not at all: nobody may wait for it any more. */
  onUnstored?: (connection: LiveConnection, error: unknown) => void;
};

export type RefreshTiming = {
  /**
   * What a lease lasts beyond the provider's own time limit: for storing the answer. Who takes one over sends nothing for
   * as long.
   */
  storeMs: number;
  /**
   * How long a caller waits for another node's refresh at most, and until when a request is begun whose answer could
   * still serve those who wait.
   */
  patienceMs: number;
};

export const defaultTiming: RefreshTiming = { storeMs: 5_000, patienceMs: 75_000 };
/** Requests in one refresh whose answer may be lost before the caller is told so. */
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
  now = () => new Date(),
  timing: { storeMs, patienceMs } = defaultTiming,
  onUnstored = () => {},
}: RefreshDeps): Refresher {
  const send = createSendRefresh({ db, fetchFor, storeMs, now });
  const store = createRefreshStore({ db, transitions, vault, now, storeMs });
  const storing = new Map<number, Promise<void>>();
  const stopping = new AbortController();
  const { afterHolder, untilFree } = createRefreshWait({ db, storeMs, stopping: stopping.signal });

  async function refresh(seen: LiveConnection): Promise<LiveConnection> {
    const giveUpAt = performance.now() + patienceMs;
    // What it comes to stands in the connection.
    const inHand = storing.get(seen.id)?.catch(() => {});
    if (inHand !== undefined) await inTime(inHand, giveUpAt);
    for (let hasWaited = false; ; hasWaited = true) {
      const connection = await reader.reread(seen);
      const { credentials } = connection;
      if (!isRenewable(credentials)) return connection;
      // Another node, or the caller before this one, has refreshed already.
      if (connection.credentialsVersion !== seen.credentialsVersion && connection.status === 'active') {
        return connection;
      }
      const refusal = refusalOf(connection, connection.integration.provider);
      if (refusal !== undefined && isRefusedSince(seen, connection)) throw refusal;
      const at = now();
      const until = pausedUntil(connection, at);
      // Another node's attempt brought no new credentials.
      if (until > at && (hasWaited || until > pausedUntil(seen, at))) {
        throw failed(connection, until.getTime() - at.getTime());
      }
      const secret = renewalOf(credentials).secretOf(credentials);
      if (secret === undefined) {
        if (!isExpired(credentials, now())) throw notRenewable();
        const ended = await transitions.lacksRefreshToken(connection);
        if (ended !== undefined) throw ended;
        continue;
      }
      const held = await transitions.heldBack(connection);
      if (held !== undefined) throw held;
      if (stopping.signal.aborted) throw serviceStops();
      const taken = await takeLease(db, { connection, forMs: leaseMsOf(connection, storeMs) });
      const lease = taken && (await afterHolder(taken, { connection, giveUpAt }));
      const renewable = { ...connection, credentials };
      // What was waited for another node's answer is no reason to have less patience with the provider.
      const askUntil = taken?.isTakenOver ? giveUpAt + storeMs : giveUpAt;
      const refreshed =
        lease &&
        (await loggedRenewal(activity, connection, (tell) =>
          runUnder(lease, { connection: renewable, secret, giveUpAt: askUntil, tell }),
        ));
      if (refreshed !== undefined) return refreshed;
      await untilFree(connection, giveUpAt);
    }
  }

  /**
   * The connection once the answer is stored, which goes on behind those who wait until `giveUpAt`. Throws
   * `connection_needs_reauth` where another word than the provider's answer ended it.
   */
  function stored(
    connection: Renewable,
    { giveUpAt, ...given }: Given & { giveUpAt: number },
  ): Promise<LiveConnection> {
    const work = store(connection, given).finally(() => storing.delete(connection.id));
    work.catch((error: unknown) => onUnstored(connection, error));
    storing.set(connection.id, work);
    const current = work.then(async () => {
      const current = await reader.reread(connection);
      const refusal = refusalOf(current, current.integration.provider);
      if (refusal !== undefined) throw refusal;
      return current;
    });
    return inTime(current, Math.max(giveUpAt, performance.now() + storeMs));
  }

  /** Undefined where the lease has ended, or the credentials were replaced, before there was a verdict. */
  async function runUnder(
    first: Lease,
    {
      connection,
      secret,
      giveUpAt,
      tell,
    }: { connection: Renewable; secret: string; giveUpAt: number; tell: TellFault },
  ): Promise<LiveConnection | undefined> {
    const refused = new Set<string>();
    let lease = first;
    let token = secret;
    let verdict: TokenFault | undefined;
    let isOwed = first.isResponsePending;
    for (let lost = 0; ; ) {
      const outcome = await request(connection, { token, lease, giveUpAt });
      if (outcome === undefined) {
        await endLease(db, { ...lease, connection, lease, isResponsePending: isOwed, notBefore: undefined });
        return undefined;
      }
      if (outcome.ok) return stored(connection, { lease, tokens: outcome.tokens, used: token, giveUpAt });
      const { fault } = outcome;
      tell(fault);
      isOwed ||= isOutcomeUnknown(fault);
      // Without the lease there is no verdict: another node has taken over, or other credentials came in between.
      const extended = await extendLease(db, { connection, lease, forMs: leaseMsOf(connection, storeMs) });
      if (extended === undefined) {
        await endLease(db, { ...lease, connection, lease, isResponsePending: isOwed, notBefore: undefined });
        return undefined;
      }
      lease = extended;
      if (fault.kind === 'dead_grant') {
        verdict ??= fault;
        refused.add(token);
      } else if (lost + 1 < maxLost && maySendAgain(fault, { connection, lease, giveUpAt })) {
        lost += 1;
        await pause(100 * lost * (0.5 + Math.random()));
      } else return fail(connection, { lease, fault, isOwed });
      const left = [secret, ...openKept(connection, lease.keptTokens)];
      const next = left.find((other) => !refused.has(other));
      if (next === undefined) return fail(connection, { lease, fault: verdict ?? fault, isOwed });
      token = next;
    }
  }

  async function request(
    connection: Renewable,
    given: { token: string; lease: Lease; giveUpAt: number },
  ): Promise<TokenOutcome | undefined> {
    const { lease } = given;
    return send(connection, given).catch(async (error: unknown) => {
      await endLease(db, { ...lease, connection, lease, notBefore: undefined });
      throw error instanceof TemplateError ? misconfigured(error) : error;
    });
  }

  /**
   * Whether an answer that did not come is asked for again by the same token. Where tokens are replaced, and the request
   * has had its time, the provider may still work on it: a second one beside it could end the grant.
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
   * Writes what a failure means, lets the others go on, and throws. Undefined where it is none, since other credentials
   * came in between.
   */
  async function fail(
    connection: LiveConnection,
    { lease, fault, isOwed }: { lease: Lease; fault: TokenFault; isOwed: boolean },
  ): Promise<undefined> {
    const isTokenLost = isOwed && replacesTokens(connection, lease);
    const judge = fault.kind === 'dead_grant' && isTokenLost ? transitions.replyLost : transitions.refused;
    const error = await judge(connection, fault);
    const failures = lease.failures + 1;
    const waitMs = error && pauseAfter(error, { failures, fault });
    const isCurrent = await endLease(db, {
      connection,
      lease,
      failures: error ? failures : lease.failures,
      isResponsePending: isOwed && error?.code !== 'connection_needs_reauth',
      notBefore: waitMs === undefined ? undefined : new Date(now().getTime() + waitMs),
    });
    reader.forget(placeOf(connection));
    if (error === undefined || !isCurrent) return undefined;
    throw error;
  }

  return { refresh, storing, stop: () => stopping.abort() };
}

/** What `work` comes to; throws `unavailable` where that is not known by `giveUpAt` of `performance.now()`. */
async function inTime<T>(work: Promise<T>, giveUpAt: number): Promise<T> {
  const over = new AbortController();
  const tooLate = pause(giveUpAt - performance.now(), undefined, { signal: over.signal }).then(() => {
    const message = 'New credentials have come, and the database does not take them yet. Try again shortly.';
    throw new AppError('unavailable', message, { retryAfterS: 5 });
  });
  return Promise.race([work, tooLate]).finally(() => over.abort());
}

function isRefusedSince(seen: LiveConnection, { status, refreshNotBefore: until }: LiveConnection): boolean {
  return status !== seen.status || (until !== undefined && until > (seen.refreshNotBefore ?? new Date(0)));
}

/** No time would help: the provider gave no refresh token, or the import brought none. */
function notRenewable(): AppError {
  const message =
    'Nothing renews these credentials: they came without a refresh token, and are good until they expire.';
  return new AppError('invalid_credentials', message, { status: 400 });
}

/** How long to wait before the next attempt; undefined where something else than time decides. */
function pauseAfter(
  { code }: AppError,
  { failures, fault }: { failures: number; fault: TokenFault },
): number | undefined {
  // The one waits for its user; the other for a probe, which is one for all connections of the integration, or for the
  // end of its own time (`suspension.ts`). An outage has its pauses, whatever ailed the client before.
  if (code === 'connection_needs_reauth') return undefined;
  if (code === 'integration_misconfigured' && fault.kind === 'client_misconfigured') return undefined;
  if (code !== 'connection_blocked') return backoffMs(failures, fault);
  return fault.kind === 'blocked_by_admin' ? dayMs : hourMs;
}

/** Grows with each failure in a row; random, so that what failed together does not come back together. */
function backoffMs(failures: number, { retryAfterMs = 0 }: TokenFault): number {
  const backoff =
    Math.min(firstBackoffMs * 2 ** (failures - 1), longestBackoffMs) * (0.5 + Math.random() / 2);
  return Math.max(backoff, Math.min(retryAfterMs, longestObeyedMs));
}

/** A setting of the integration or the connection does not fit into the provider's address. */
function misconfigured(error: TemplateError): AppError {
  const message = `The provider's address cannot be built: ${error.message}`;
  return new AppError('integration_misconfigured', message, { cause: error });
}

/** What an attempt to renew credentials says of each answer that brought none. */
type TellFault = (fault: TokenFault) => void;

/** Logs, counts and traces one attempt to renew the credentials of a connection: what the provider answered, and what came of it. */
function loggedRenewal(
  activity: Activity,
  connection: LiveConnection,
  attempt: (tell: TellFault) => Promise<LiveConnection | undefined>,
): Promise<LiveConnection | undefined> {
  const { environmentId, integrationKey: integration, connectionId } = connection;
  const work = () =>
    logged(
      activity,
      {
        type: 'refresh',
        environmentId,
        integration,
        connection: connectionId,
        actor: 'service',
        // Another node took over, or other credentials came in between: this one has no say.
        of: (renewed: LiveConnection | undefined) =>
          renewed === undefined ? { status: 'failed', errorCode: 'superseded' } : {},
      },
      (tell) => attempt((fault) => tellFault(tell, fault)),
    );
  return measured(connection.providerName, work);
}

async function measured(
  provider: string,
  work: () => Promise<LiveConnection | undefined>,
): Promise<LiveConnection | undefined> {
  const startedAt = performance.now();
  let outcome = 'renewed';
  try {
    return await spanned(
      'refresh',
      { kind: 'internal', attributes: { 'trellis.provider': provider } },
      async (span) => {
        const renewed = await work();
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

function tellFault(tell: Tell, fault: TokenFault): void {
  tell('warn', 'the provider gave no new credentials', { kind: fault.kind, ...evidenceOf(fault) });
}
