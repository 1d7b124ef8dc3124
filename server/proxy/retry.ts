/** When a call is tried again, and after how long. Pure: time and chance are passed in. */
import { readRetryAfter } from '../http/retry-after.ts';

/** Methods that a repetition does not make worse (RFC 9110 §9.2.2). */
const idempotent = new Set([
  'GET',
  'HEAD',
  'OPTIONS',
  'PUT',
  'DELETE',
  'PROPFIND',
  'REPORT',
  'SEARCH',
  'QUERY',
]);

/** What usually passes: too many requests, and a gateway or a server that cannot answer at the moment. */
const passing: ReadonlySet<number> = new Set([429, 500, 502, 503, 504]);

const firstWaitMs = 500;
const longestWaitMs = 60_000;

export type RetryRules = {
  /** Further attempts beyond the first. */
  readonly times: number;
  /** Statuses that are tried again besides those that usually pass. */
  readonly statuses: ReadonlySet<number> | undefined;
  /** What the provider asks for at least, where it says nothing in its answer. */
  readonly shortestMs: { readonly too_many: number; readonly unavailable: number } | undefined;
};

/** Whether an answer of this status may be followed by another attempt. */
export function isRetried(status: number, { statuses }: Pick<RetryRules, 'statuses'>): boolean {
  return passing.has(status) || statuses?.has(status) === true;
}

/** Whether a second request of this method does no more than the first. */
export function isIdempotent(method: string): boolean {
  return idempotent.has(method);
}

/**
 * How long to wait before another attempt, in ms; undefined where the answer is better handed to the caller: the
 * provider asks for more than a minute.
 *
 * The provider's `Retry-After` counts, in seconds or as a date (RFC 9110 §10.2.3). Otherwise the wait grows from half a
 * second, doubled each time, never below what the provider's definition asks for. Chance spreads it by half, so that
 * callers who failed together do not come back together.
 */
export function retryWaitMs(given: {
  /** Undefined: there was no answer. */
  status: number | undefined;
  retryAfter: string | undefined;
  /** Attempts made so far. */
  tried: number;
  rules: Pick<RetryRules, 'shortestMs'>;
  now: number;
  /** From 0 to 1. */
  random: number;
}): number | undefined {
  const asked = readRetryAfter(given.retryAfter, given.now);
  if (asked !== undefined) return asked > longestWaitMs ? undefined : asked;
  const { shortestMs } = given.rules;
  const min = given.status === 429 ? shortestMs?.too_many : shortestMs?.unavailable;
  const grown = Math.min(longestWaitMs, firstWaitMs * 2 ** (given.tried - 1));
  return Math.max(grown * (1 - given.random / 2), (min ?? 0) * (1 + given.random / 2));
}
