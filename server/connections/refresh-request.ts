import { refreshToken, type TokenOutcome } from '../auth-modes/oauth2.ts';
import type { Fetch } from '../auth-modes/token-response.ts';
import type { Queryable } from '../db/pool.ts';
import { clientOf, type Integration } from '../integrations/store.ts';
import { extendLease, type Lease } from './lease.ts';
import type { LiveConnection } from './reader.ts';
import { templateValues } from './values.ts';

/**
 * One request of a refresh, under a lease.
 *
 * Owns: how long its answer is waited for. Does not own: whether it is sent again (`refresh.ts`), what an answer means
 * (`auth-modes/`).
 */
export type SendRefresh = (
  connection: LiveConnection,
  given: { token: string; lease: Lease; giveUpAt: number },
) => Promise<TokenOutcome | undefined>;

/**
 * Whether the grant's refresh tokens are replaced, as far as is known. To send such a token twice may end the grant
 * (RFC 9700 §4.14.2), and a lost answer loses the only token that is good.
 */
export function replacesTokens({ integration }: LiveConnection, { keptTokens }: Lease): boolean {
  return integration.provider.refresh.rotates || keptTokens !== undefined;
}

/** What the provider's definition gives one request. */
export function limitMsOf({ integration }: LiveConnection): number {
  return integration.provider.token?.timeout_ms ?? 0;
}

/** How long a request may be under way, and its answer on the way into the database. */
export function leaseMsOf(connection: LiveConnection, storeMs: number): number {
  return limitMsOf(connection) + storeMs;
}

/**
 * Sends a refresh and waits for the answer: for the provider's time limit, and where it replaces refresh tokens for as
 * long again, under the lease extended, if that is over by `giveUpAt` (of `performance.now()`). The request ends before
 * the lease does. Undefined where nothing was sent, since the process stood still for as long as the lease. Throws
 * TemplateError, and AppError when the address may not be reached.
 */
export function createSendRefresh({
  db,
  fetchFor,
  storeMs,
  now,
}: {
  db: Queryable;
  fetchFor: (integration: Integration) => Fetch;
  storeMs: number;
  now: () => Date;
}): SendRefresh {
  return async function send(connection, { token, lease, giveUpAt }) {
    const { integration } = connection;
    const limitMs = limitMsOf(connection);
    const isPatient = replacesTokens(connection, lease) && performance.now() + 2 * limitMs <= giveUpAt;
    const over = new AbortController();
    let isSent = false;
    let isAnswered = false;
    let end: NodeJS.Timeout | undefined;
    const leftMs = ({ endsAt }: Lease) => endsAt - storeMs / 2 - performance.now();
    const endWith = (of: Lease) => {
      clearTimeout(end);
      end = setTimeout(() => over.abort(), Math.max(leftMs(of), 0));
    };
    const fetch: Fetch = (url, init) => {
      // A process that stood still for long must not send beside the one that took its place.
      if (leftMs(lease) > 0) isSent = true;
      else over.abort();
      return fetchFor(integration)(url, init);
    };
    // Well before the end, so that a database that is slow just then does not cost the answer.
    const earlyMs = limitMs / 4;
    const stay = async () => {
      const forMs = limitMs + earlyMs + storeMs;
      const extended = await extendLease(db, { connection, lease, forMs }).catch(() => undefined);
      if (extended && !isAnswered) endWith(extended);
    };
    endWith(lease);
    const inMs = lease.endsAt - storeMs - earlyMs - performance.now();
    const second = isPatient ? setTimeout(stay, Math.max(inMs, 0)) : undefined;
    try {
      const outcome = await refreshToken({
        definition: integration.provider,
        client: { ...clientOf(integration), scopes: connection.scopesRequested ?? [] },
        values: templateValues(connection),
        refreshToken: token,
        fetch,
        now: now(),
        timeoutMs: isPatient ? 2 * limitMs : limitMs,
        signal: over.signal,
      });
      return isSent ? outcome : undefined;
    } finally {
      isAnswered = true;
      clearTimeout(end);
      clearTimeout(second);
    }
  };
}
