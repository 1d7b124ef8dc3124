/**
 * One request of a refresh, under a lease.
 *
 * Owns: the time limit of the request. Does not own: whether it is sent again (`refresh.ts`), the meaning of the
 * answer (`auth-modes/`).
 */
import { type RenewableCredentials, renewalOf } from '../../auth-modes/modes.ts';
import type { Network, TokenOutcome } from '../../auth-modes/oauth2-request.ts';
import { verificationRequest } from '../../auth-modes/place.ts';
import type { Queryable } from '../../db/pool.ts';
import { clientOf, type Integration } from '../../integrations/store.ts';
import type { Fetch } from '../../outbound/outbound.ts';
import { provesCredentials } from '../health/api-faults.ts';
import { type LiveConnection, templateValues } from '../store/reader.ts';
import { type Lease, limitMsOf, replacesTokens, stretchLease } from './lease.ts';
import { verificationStatus } from './verification-status.ts';

/** A connection with credentials that can be refreshed. */
export type Renewable = LiveConnection & { credentials: RenewableCredentials };

/**
 * Requests a new token with `secret`, as the mode of the credentials does, and with the connection's own client if it
 * has one. Throws TemplateError, and AppError if the address is not allowed or the integration has no client.
 */
export async function requestToken(
  given: Pick<LiveConnection, 'integration' | 'connectionConfig'> & { credentials: RenewableCredentials },
  { secret, ...network }: Network & { secret: string },
): Promise<TokenOutcome> {
  const { integration, connectionConfig, credentials } = given;
  const { provider: definition, scopes = definition.scopes.default } = integration;
  const renewal = renewalOf(credentials);
  let isRequested = false;
  const fetch: Fetch = (url, init) => {
    isRequested = true;
    return network.fetch(url, init);
  };
  const client =
    renewal.grantType === 'own_credentials'
      ? { clientId: '', clientSecret: '' }
      : (renewal.ownClientOf(credentials) ?? clientOf(integration));
  const outcome = await renewal.request({
    definition,
    client: { ...client, scopes },
    values: templateValues({ connectionConfig, integration }),
    credentials,
    secret,
    ...network,
    fetch,
  });
  if (!outcome.ok || isRequested) return outcome;
  return { ok: true, tokens: { ...outcome.tokens, isUnproven: true } };
}

/**
 * Sends a refresh and waits for the answer for the provider's time limit. If the provider replaces refresh tokens,
 * extends the lease and waits for twice that limit, unless that exceeds `giveUpAt` (in `performance.now()`). The
 * request ends before the lease. Undefined if nothing was sent because the process was frozen during the lease.
 * Throws TemplateError, and AppError if the address is not allowed.
 */
export function createSendRefresh(given: {
  db: Queryable;
  fetchFor: (integration: Integration) => Fetch;
  storeMs: number;
  now: () => Date;
}) {
  const { db, fetchFor, storeMs, now } = given;
  return async function send(
    connection: Renewable,
    { token, lease, giveUpAt }: { token: string; lease: Lease; giveUpAt: number },
  ): Promise<TokenOutcome | undefined> {
    const { integration } = connection;
    const limitMs = limitMsOf(connection);
    const isPatient = replacesTokens(connection, lease) && performance.now() + 2 * limitMs <= giveUpAt;
    const ended = new AbortController();
    let isSent = false;
    let isAnswered = false;
    let end: NodeJS.Timeout | undefined;
    const leftMs = ({ endsAt }: Lease) => endsAt - storeMs / 2 - performance.now();
    const endWith = (of: Lease) => {
      clearTimeout(end);
      end = setTimeout(() => ended.abort(), Math.max(leftMs(of), 0));
    };
    const fetch: Fetch = (url, init) => {
      // A process that was frozen must not send while the next holder of the lease does.
      if (leftMs(lease) > 0) isSent = true;
      else ended.abort();
      return fetchFor(integration)(url, init);
    };
    // Early enough that a slow database does not lose the answer.
    const earlyMs = limitMs / 4;
    const extend = async () => {
      const forMs = limitMs + earlyMs + storeMs;
      const extended = await stretchLease(db, { connection, lease, forMs }).catch(() => undefined);
      if (extended && !isAnswered) endWith(extended);
    };
    endWith(lease);
    const inMs = lease.endsAt - storeMs - earlyMs - performance.now();
    const second = isPatient ? setTimeout(extend, Math.max(inMs, 0)) : undefined;
    try {
      const outcome = await requestToken(connection, {
        secret: token,
        fetch,
        now: now(),
        timeoutMs: isPatient ? 2 * limitMs : limitMs,
        signal: ended.signal,
      });
      if (outcome.ok && outcome.tokens.isUnproven)
        return confirmed(connection, { outcome, secret: token, fetch, signal: ended.signal });
      // Without a request, the outcome is a fault of the client's own key, such as an expired certificate.
      return isSent || !ended.signal.aborted ? outcome : undefined;
    } finally {
      isAnswered = true;
      clearTimeout(end);
      clearTimeout(second);
    }
  };
}

/**
 * A token that no endpoint has issued, since the service signed it or has it from the import: the call that verifies
 * credentials says whether it is still accepted. A response that is neither a success nor a 401 proves nothing.
 */
async function confirmed(
  connection: Renewable,
  {
    outcome,
    secret,
    ...network
  }: { outcome: TokenOutcome & { ok: true }; secret: string; fetch: Fetch; signal: AbortSignal },
): Promise<TokenOutcome> {
  const { integration, connectionConfig, credentials: previous } = connection;
  const credentials = renewalOf(previous).after(outcome.tokens, { previous, secret });
  const values = templateValues({ connectionConfig, integration });
  const { provider: definition, client } = integration;
  const request = verificationRequest({ definition, credentials, values, client });
  if (request === undefined) return outcome;
  const signal = AbortSignal.any([network.signal, AbortSignal.timeout(confirmMs)]);
  const status = await verificationStatus(request, { fetch: network.fetch, signal }).catch(() => undefined);
  if (status === undefined) return outcome;
  if (provesCredentials(status)) return { ok: true, tokens: { ...outcome.tokens, isUnproven: false } };
  if (status !== 401) return outcome;
  return { ok: false, fault: { kind: 'dead_grant', error: 'invalid_token', httpStatus: 401 } };
}

/** Shorter than the lease of a connection whose provider has no token endpoint. */
const confirmMs = 5000;
