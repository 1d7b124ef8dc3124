import { setTimeout as pause } from 'node:timers/promises';
import { refreshToken, type TokenOutcome, type Tokens } from '../auth-modes/oauth2.ts';
import { credentialsFrom, type OAuth2Credentials } from '../auth-modes/oauth2-credentials.ts';
import type { TokenFault } from '../auth-modes/token-fault.ts';
import type { Fetch } from '../auth-modes/token-response.ts';
import { type Db, mayPass, type Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { queueEvent } from '../events/outbox.ts';
import { clientOf, type Integration } from '../integrations/store.ts';
import { missingScopes } from '../providers/scopes.ts';
import { TemplateError } from '../providers/template-grammar.ts';
import { keepCandidate, keptAfter, lockGrant, openKept, putSuccessor, sealKept } from './candidates.ts';
import { connectionEvent } from './event.ts';
import { delayOf, refusalOf } from './health.ts';
import { endLease, extendLease, isLeased, type Lease, settleLease, takeLease } from './lease.ts';
import { type ConnectionReader, type LiveConnection, placeOf } from './reader.ts';
import { isExpired } from './refresh-due.ts';
import { swapCredentials } from './save.ts';
import type { States } from './states.ts';
import { templateValues } from './values.ts';

/**
 * One refresh of a connection, whichever node runs it.
 *
 * Owns: which tokens are tried under a lease, that an answer is stored before it is used, when the next attempt may
 * be. Does not own: the lease (`lease.ts`), tokens beside the one in use (`candidates.ts`), when a refresh is due and
 * who waits for it (`credentials.ts`), the verdict on a refusal (`states.ts`).
 */
export type Refresh = (seen: LiveConnection) => Promise<LiveConnection>;

export type RefreshDeps = {
  db: Db;
  reader: Pick<ConnectionReader, 'forget' | 'reread'>;
  /** The guarded way to the network; test integrations alone may reach the sandbox. */
  fetchFor: (integration: Integration) => Fetch;
  states: States;
  now?: () => Date;
  timing?: RefreshTiming;
};

export type RefreshTiming = {
  /** What a lease lasts beyond the provider's own time limit: for storing the answer. */
  storeMs: number;
  /** How long a caller waits for another node's refresh at most. */
  patienceMs: number;
};

const defaultTiming: RefreshTiming = { storeMs: 5_000, patienceMs: 60_000 };
/** Requests in one refresh whose answer may be lost before the caller is told so. */
const mostLost = 3;
/** How long an answer is kept in memory for a database that does not take it. */
const longestStoreMs = 10 * 60_000;
const firstBackoffMs = 2_000;
const longestBackoffMs = 5 * 60_000;
const longestObeyedMs = 3_600_000;
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

/**
 * Refreshes the credentials of `seen`, unless that is done by the time this node may: then it answers what another
 * stored. Throws `connection_needs_reauth`, `connection_blocked`, `integration_misconfigured`, and
 * `connection_refresh_failed` where the provider gives no judgement or another node does not come to an end.
 */
export function createRefresh({
  db,
  reader,
  fetchFor,
  states,
  now = () => new Date(),
  timing: { storeMs, patienceMs } = defaultTiming,
}: RefreshDeps): Refresh {
  return async function refresh(seen) {
    const giveUpAt = performance.now() + patienceMs;
    for (let hasWaited = false; ; hasWaited = true) {
      const connection = await reader.reread(seen);
      const { credentials } = connection;
      if (credentials.type !== 'OAUTH2') return connection;
      // Another node, or the caller before this one, has refreshed already.
      if (connection.credentialsVersion !== seen.credentialsVersion && connection.status === 'active') {
        return connection;
      }
      if (hasWaited) refuseAfter(seen, connection);
      if (credentials.refresh_token === undefined) {
        if (!isExpired(credentials, now())) throw failed(connection);
        throw await states.lacksRefreshToken(connection);
      }
      const held = await states.heldBack(connection);
      if (held !== undefined) throw held;
      const lease = await takeLease(db, { connection, forMs: requestMs(connection) });
      const refreshed = lease && (await runUnder(lease, connection));
      if (refreshed !== undefined) return refreshed;
      await untilFree(connection, giveUpAt);
    }
  };

  /** How long a request may be under way, and its answer on the way into the database. */
  function requestMs({ integration }: LiveConnection): number {
    return (integration.provider.token?.timeout_ms ?? 0) + storeMs;
  }

  /** What another node's attempt came to, where it brought no new credentials. */
  function refuseAfter(seen: LiveConnection, connection: LiveConnection): void {
    const refusal = refusalOf(connection, connection.integration.provider);
    if (refusal !== undefined && seen.status === 'active') throw refusal;
    const waitMs = (connection.refreshNotBefore?.getTime() ?? 0) - now().getTime();
    if (waitMs > 0) throw failed(connection, waitMs);
  }

  async function untilFree(connection: LiveConnection, giveUpAt: number): Promise<void> {
    for (let pauseMs = 20; await isLeased(db, connection); pauseMs = Math.min(pauseMs * 1.5, 500)) {
      if (performance.now() > giveUpAt) throw failed(connection);
      await pause(pauseMs * (0.75 + Math.random() / 2));
    }
  }

  /** Undefined where the lease has ended, or the credentials were replaced, before there was a verdict. */
  async function runUnder(first: Lease, connection: LiveConnection): Promise<LiveConnection | undefined> {
    const credentials = connection.credentials as OAuth2Credentials & { refresh_token: string };
    const refused = new Set<string>();
    let lease = first;
    let token = credentials.refresh_token;
    let verdict: TokenFault | undefined;
    let lost = 0;
    for (;;) {
      const outcome = await send(connection, { token, lease });
      if (outcome.ok) return store(connection, { lease, tokens: outcome.tokens, used: token });
      const { fault } = outcome;
      if (isAnswerLost(fault)) lost += 1;
      const isOwed = lease.isReplyOwed || lost > 0;
      // Without the lease there is no verdict: another node has taken over, or other credentials came in between.
      const extended = await extendLease(db, { connection, lease, forMs: requestMs(connection) });
      if (extended === undefined) {
        await endLease(db, { ...lease, connection, lease, isReplyOwed: isOwed, notBefore: undefined });
        return undefined;
      }
      lease = extended;
      if (fault.kind === 'dead_grant') {
        verdict ??= fault;
        refused.add(token);
      } else if (fault.error === 'network' && lost < mostLost) {
        await pause(100 * lost * (0.5 + Math.random()));
      } else return fail(connection, { lease, fault, isOwed });
      const left = [credentials.refresh_token, ...openKept(connection, lease.keptTokens)];
      const next = left.find((other) => !refused.has(other));
      if (next === undefined) return fail(connection, { lease, fault: verdict ?? fault, isOwed });
      token = next;
    }
  }

  async function send(
    connection: LiveConnection,
    { token, lease }: { token: string; lease: Lease },
  ): Promise<TokenOutcome> {
    const { integration } = connection;
    // A process that stood still for long must not send beside the one that took its place.
    const leftMs = Math.max(lease.endsAt - storeMs / 2 - performance.now(), 0);
    return refreshToken({
      definition: integration.provider,
      client: { ...clientOf(integration), scopes: connection.scopesRequested ?? [] },
      values: templateValues(connection),
      refreshToken: token,
      fetch: fetchFor(integration),
      now: now(),
      signal: AbortSignal.timeout(Math.ceil(leftMs)),
    }).catch(async (error: unknown) => {
      await endLease(db, { ...lease, connection, lease, notBefore: undefined });
      throw error instanceof TemplateError ? misconfigured(error) : error;
    });
  }

  /** Writes what a failure means, then lets the others go on. */
  async function fail(
    connection: LiveConnection,
    { lease, fault, isOwed }: { lease: Lease; fault: TokenFault; isOwed: boolean },
  ): Promise<never> {
    const { refresh } = connection.integration.provider;
    const isTokenLost = isOwed && (refresh.rotates || lease.keptTokens !== undefined);
    const judge = fault.kind === 'dead_grant' && isTokenLost ? states.replyLost : states.refused;
    const error = await judge(connection, fault);
    const isDead = error.code === 'connection_needs_reauth';
    const failures = lease.failures + 1;
    const waitMs = pauseAfter(error, { failures, fault });
    await endLease(db, {
      ...{ connection, lease, failures },
      isReplyOwed: isOwed && !isDead,
      notBefore: waitMs === undefined ? undefined : new Date(now().getTime() + waitMs),
    });
    reader.forget(placeOf(connection));
    throw error;
  }

  /** Tries again while the database does not take it: the provider may have taken the old token for good. */
  async function store(
    connection: LiveConnection,
    given: { lease: Lease; tokens: Tokens; used: string },
  ): Promise<LiveConnection> {
    const giveUpAt = performance.now() + longestStoreMs;
    for (let pauseMs = 50; ; pauseMs = Math.min(pauseMs * 2, 2_000)) {
      try {
        await db.transaction((tx) => storeIn(tx, { connection, ...given }));
        const current = await reader.reread(connection);
        // Another word than the provider's answer ended it meanwhile.
        const refusal = refusalOf(current, current.integration.provider);
        if (refusal !== undefined) throw refusal;
        return current;
      } catch (error) {
        // After a commit whose outcome is unknown, too: what it stored is found by its version.
        if (!mayPass(error) || performance.now() > giveUpAt) throw error;
        await pause(pauseMs);
      }
    }
  }

  async function storeIn(
    tx: Tx,
    {
      connection,
      lease,
      tokens,
      used,
    }: { connection: LiveConnection; lease: Lease; tokens: Tokens; used: string },
  ): Promise<void> {
    const current = await lockGrant(tx, { connection, lease });
    if (current === undefined) return;
    const { kept } = current;
    if (current.version !== connection.credentialsVersion) {
      const token = tokens.refreshToken;
      if (token !== undefined && token !== current.refreshToken) {
        // A reconnect that brought no token of its own kept the one that is used up now: to send it again may end
        // the grant.
        if (current.refreshToken === used) await putSuccessor(tx, { connection, token, locked: current });
        else await keepCandidate(tx, { connection, token, kept });
      }
      await endLease(tx, { ...lease, connection, lease, isReplyOwed: false, notBefore: undefined });
      return;
    }
    const previous = connection.credentials as OAuth2Credentials;
    const granted = tokens.scopes && [...tokens.scopes];
    await swapCredentials(tx, {
      current: connection,
      credentials: credentialsFrom(tokens, { ...previous, refresh_token: used }),
      grant: {
        accessExpiresAt: tokens.expiresAt,
        refreshExpiresAt: tokens.refreshExpiresAt,
        scopesGranted: granted,
      },
    });
    const left = keptAfter(connection, { lease, now: kept, used, given: tokens.refreshToken });
    await settleLease(tx, { connection, lease, keptTokens: sealKept(connection, left), at: now() });
    await states.recovered(tx, connection);
    if (granted) await tellLostScopes(tx, connection, granted);
  }
}

async function tellLostScopes(tx: Tx, connection: LiveConnection, granted: string[]): Promise<void> {
  const { provider } = connection.integration;
  const before = connection.scopesGranted;
  const lost = before ? missingScopes(provider, { wanted: before, granted }) : [];
  if (lost.length === 0) return;
  await queueEvent(tx, {
    environmentId: connection.environmentId,
    type: 'connection.scopes_reduced',
    data: { ...connectionEvent(connection), lost_scopes: lost },
  });
}

/** The token has expired, or is to be replaced, and there is no other for now. */
export function failed(connection: LiveConnection, retryAfterMs?: number): AppError {
  return delayOf(connection, { provider: connection.integration.provider, retryAfterMs });
}

/** Whether the request may have been carried out, and only its answer is missing. */
function isAnswerLost({ error }: TokenFault): boolean {
  return error === 'network' || error === 'timeout';
}

/** How long to wait before the next attempt; undefined where something else than time decides. */
function pauseAfter(
  { code }: AppError,
  { failures, fault }: { failures: number; fault: TokenFault },
): number | undefined {
  // The one waits for its user; the other for a probe, which is one for all connections of the integration.
  if (code === 'connection_needs_reauth' || code === 'integration_misconfigured') return undefined;
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
