import { type Credentials, isRenewable, type RenewableCredentials, renewalOf } from '../auth-modes/mode.ts';
import { isObject, type JsonValue } from '../auth-modes/token-response.ts';
import type { ConnectionHead } from './store.ts';

/** When a token is to be refreshed, and how long it may still be used. Pure. */

/** Refresh when less than this, or than a tenth of the token's life, remains. */
const longestMarginMs = 5 * 60_000;
/** What a call may take until the provider looks at the token, and what clocks may differ. */
const longestSafetyMs = 30_000;
/** Life of a token whose answer named none, or whose answer we never saw. */
const defaultLifeMs = 3_600_000;
/** Twice what any pause of an active connection lasts, so that nodes whose clocks differ by less agree. */
export const longestPauseMs = 2 * 3_600_000;
/** How long a token that a refusal brought is not replaced for another refusal. */
const renewalMs = 30_000;

/** Whether it is time for a refresh. A token without an end, or that nothing can renew, is due when it has ended. */
export function isDue(credentials: Credentials, now: Date): credentials is RenewableCredentials {
  if (!isRenewable(credentials)) return false;
  if (renewalOf(credentials).secretOf(credentials) === undefined) return isExpired(credentials, now);
  const left = leftMs(credentials, now);
  return left < longestMarginMs && left < marginMs(credentials);
}

/** Whether a call that begins now can still rely on it. */
export function isUsable(credentials: RenewableCredentials, now: Date): boolean {
  return leftMs(credentials, now) > Math.min(longestSafetyMs, marginMs(credentials) / 2);
}

/** Also where there never was one. */
export function isExpired(credentials: RenewableCredentials, now: Date): boolean {
  return leftMs(credentials, now) <= 0;
}

/**
 * Until when no refresh of an active connection is to be tried: after a failure, or while the client may not use the
 * token. No later than two hours from now: an end beyond that was written by a clock that is wrong.
 */
export function pausedUntil(
  { refreshNotBefore, suspendedUntil }: Pick<ConnectionHead, 'refreshNotBefore' | 'suspendedUntil'>,
  now: Date,
): Date {
  const ends = [refreshNotBefore, suspendedUntil].map((end) => end?.getTime() ?? 0);
  return new Date(Math.max(0, ...ends.filter((end) => end <= now.getTime() + longestPauseMs)));
}

/** Whether a refresh that an API's refusal led to was so lately that another one is not worth its while. */
export function isRenewed({ renewedAt }: Pick<ConnectionHead, 'renewedAt'>, now: Date): boolean {
  // In the future as well: another node's clock may be ahead.
  return renewedAt !== undefined && Math.abs(now.getTime() - renewedAt.getTime()) < renewalMs;
}

function leftMs(credentials: RenewableCredentials, now: Date): number {
  if (renewalOf(credentials).accessTokenOf(credentials) === undefined) return Number.NEGATIVE_INFINITY;
  const { expires_at } = credentials;
  return expires_at === undefined ? Number.POSITIVE_INFINITY : Date.parse(expires_at) - now.getTime();
}

function marginMs({ raw }: RenewableCredentials): number {
  const lifeMs = Number(lifeIn(raw)) * 1000;
  return Math.min(longestMarginMs, (lifeMs > 0 ? lifeMs : defaultLifeMs) / 10);
}

/** `expires_in` of a provider's answer, as number or text, wherever the provider put its token object. */
function lifeIn(raw: JsonValue): JsonValue | undefined {
  if (!isObject(raw)) return undefined;
  return (
    raw.expires_in ??
    Object.values(raw)
      .map(lifeIn)
      .find((found) => found !== undefined)
  );
}
