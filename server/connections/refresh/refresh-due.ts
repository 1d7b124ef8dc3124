import {
  type Credentials,
  isRenewable,
  type RenewableCredentials,
  renewalOf,
} from '../../auth-modes/modes.ts';
import { isObject, type JsonValue } from '../../auth-modes/token-response.ts';
import type { ConnectionHead } from '../store/store.ts';

/** When a token is due for a refresh, and how long it may be used. All functions are pure. */

/** A token is due when less than this, or less than a tenth of its lifetime, remains. */
const longestMarginMs = 5 * 60_000;
/** The time until the provider checks the token of a call, and the difference between clocks. */
const longestSafetyMs = 30_000;
/** The lifetime of a token if the provider's answer names none or was not stored. */
const defaultLifeMs = 3_600_000;
/** Twice the longest pause of an active connection: nodes whose clocks differ by less agree. */
export const longestPauseMs = 2 * 3_600_000;
/** How long a token that was refreshed after a 401 is not refreshed for another 401. */
const renewalMs = 30_000;

/** When a refresh is due, in ms since 1970. A token without a refresh token is due when it expires. */
export function dueAtMs(credentials: Credentials): number {
  if (!isRenewable(credentials)) return Number.POSITIVE_INFINITY;
  const isLast = renewalOf(credentials).secretOf(credentials) === undefined;
  return expiryMs(credentials) - (isLast ? 0 : marginMs(credentials));
}

export function isDue(credentials: Credentials, now: Date): boolean {
  return dueAtMs(credentials) <= now.getTime();
}

/** Whether a call that begins now can use the token. */
export function isUsable(credentials: RenewableCredentials, now: Date): boolean {
  return leftMs(credentials, now) > Math.min(longestSafetyMs, marginMs(credentials) / 2);
}

/** True also if there is no access token. */
export function isExpired(credentials: RenewableCredentials, now: Date): boolean {
  return leftMs(credentials, now) <= 0;
}

/**
 * The end of the pause of an active connection: after a failure, or while the client may not use the token. A pause
 * of more than two hours was written by a wrong clock and does not count.
 */
export function pausedUntil(
  { refreshNotBefore, suspendedUntil }: Pick<ConnectionHead, 'refreshNotBefore' | 'suspendedUntil'>,
  now: Date,
): Date {
  const ends = [refreshNotBefore, suspendedUntil].map((end) => end?.getTime() ?? 0);
  return new Date(Math.max(0, ...ends.filter((end) => end <= now.getTime() + longestPauseMs)));
}

/** Whether a refresh after a 401 is so recent that another one would not help. */
export function isRenewed({ renewedAt }: Pick<ConnectionHead, 'renewedAt'>, now: Date): boolean {
  // Also true for a time in the future: another node's clock may be ahead.
  return renewedAt !== undefined && Math.abs(now.getTime() - renewedAt.getTime()) < renewalMs;
}

function leftMs(credentials: RenewableCredentials, now: Date): number {
  return expiryMs(credentials) - now.getTime();
}

/** In the past if there is no access token. */
function expiryMs(credentials: RenewableCredentials): number {
  if (renewalOf(credentials).accessTokenOf(credentials) === undefined) return Number.NEGATIVE_INFINITY;
  const { expires_at } = credentials;
  return expires_at === undefined ? Number.POSITIVE_INFINITY : Date.parse(expires_at);
}

function marginMs(credentials: RenewableCredentials): number {
  const life = 'life_s' in credentials ? credentials.life_s : lifeIn(credentials.raw);
  const lifeMs = Number(life) * 1000;
  return Math.min(longestMarginMs, (lifeMs > 0 ? lifeMs : defaultLifeMs) / 10);
}

/** `expires_in` of a provider's answer, a number or a string, at any depth of the answer. */
function lifeIn(raw: JsonValue): JsonValue | undefined {
  if (!isObject(raw)) return undefined;
  return (
    raw.expires_in ??
    Object.values(raw)
      .map(lifeIn)
      .find((found) => found !== undefined)
  );
}
