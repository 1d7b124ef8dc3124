import { type RenewableCredentials, renewalOf } from '../auth-modes/mode.ts';
import type { Network } from '../auth-modes/oauth2-request.ts';
import type { TokenOutcome } from '../auth-modes/token-request.ts';
import type { Fetch } from '../auth-modes/token-response.ts';
import type { Queryable } from '../db/pool.ts';
import { clientOf, type Integration } from '../integrations/store.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { type Lease, stretchLease } from './lease.ts';
import type { LiveConnection } from './reader.ts';
import { templateValues } from './values.ts';

/**
 * One request of a refresh, under a lease.
 *
 * Owns: how long its answer is waited for. Does not own: whether it is sent again (`refresh.ts`), what an answer means
 * (`auth-modes/`).
 */
type SendRefresh = (
  connection: Renewable,
  given: { token: string; lease: Lease; giveUpAt: number },
) => Promise<TokenOutcome | undefined>;

/** A connection with a token that another may take the place of. */
export type Renewable = LiveConnection & { credentials: RenewableCredentials };

/**
 * Asks for another token by `secret`, as the credentials' mode does: by the connection's own client where it has one.
 * Throws TemplateError, and AppError when the address may not be reached or the integration has no client.
 */
export function askForToken(
  {
    integration,
    connectionConfig,
    credentials,
  }: Pick<LiveConnection, 'integration' | 'connectionConfig'> & { credentials: RenewableCredentials },
  { secret, ...network }: Network & { secret: string },
): Promise<TokenOutcome> {
  const { provider: definition, scopes = definition.scopes.default } = integration;
  const renewal = renewalOf(credentials);
  return renewal.request({
    definition,
    client: { ...(renewal.ownClientOf(credentials) ?? clientOf(integration)), scopes },
    values: templateValues({ connectionConfig, integration }),
    credentials,
    secret,
    ...network,
  });
}

/**
 * Whether the grant's refresh tokens are replaced, as far as is known. To send such a token twice may end the grant
 * (RFC 9700 §4.14.2), and a lost answer loses the only token that is good.
 */
export function replacesTokens({ integration, credentials }: LiveConnection, { keptTokens }: Lease): boolean {
  if (credentials.type !== 'OAUTH2') return false;
  return integration.provider.refresh.rotates || keptTokens !== undefined;
}

type Limited = { integration: { provider: Pick<ProviderDefinition, 'token'> } };

/** What the provider's definition gives one request. */
export function limitMsOf({ integration }: Limited): number {
  return integration.provider.token?.timeout_ms ?? 0;
}

/** How long a request may be under way, and its answer on the way into the database. */
export function leaseMsOf(connection: Limited, storeMs: number): number {
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
      const extended = await stretchLease(db, { connection, lease, forMs }).catch(() => undefined);
      if (extended && !isAnswered) endWith(extended);
    };
    endWith(lease);
    const inMs = lease.endsAt - storeMs - earlyMs - performance.now();
    const second = isPatient ? setTimeout(stay, Math.max(inMs, 0)) : undefined;
    try {
      const outcome = await askForToken(connection, {
        secret: token,
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
