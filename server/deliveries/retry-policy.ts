/**
 * The rules after a failed attempt: when it is repeated, when an event becomes a dead letter, when the circuit breaker of an
 * endpoint opens, how long an endpoint pauses, and when it is disabled. Pure functions: no clock, no table. `settle.ts`
 * applies them.
 */

/** The failures in a row of an endpoint, over all its lanes. One success resets them. */
export type Breaker = {
  readonly failures: number;
  readonly failingSince: Date | null;
  /** How often it opened during these failures. */
  readonly openings: number;
  /** After this time one probe at a time is sent. Null while the breaker is closed. */
  readonly openUntil: Date | null;
};

const second = 1_000;
const hour = 3_600 * second;
const day = 24 * hour;

/** The number of failures in a row that opens the breaker. */
const maxFailures = 5;
const firstOpenMs = 30 * second;
const longestOpenMs = 10 * 60 * second;
/** An endpoint without a success for this long is disabled. */
const givenUpAfterMs = 5 * day;
/** Attempts for an event end after this time: then it is a dead letter. */
const triedForMs = 3 * day;
const firstRetryMs = 5 * second;
const longestRetryMs = hour;
/** The maximum pause that a receiver can request. */
const longestPauseMs = day;

/** The breaker after one more failure. Attempts that were under way when it opened do not extend its time. */
export function afterFailure(
  breaker: Breaker,
  { nowMs, random }: { nowMs: number; random: number },
): Breaker {
  const failures = breaker.failures + 1;
  const failingSince = breaker.failingSince ?? new Date(nowMs);
  const isOpen = breaker.openUntil !== null && breaker.openUntil.getTime() > nowMs;
  const opens = !isOpen && (breaker.openUntil !== null || failures >= maxFailures);
  if (!opens) return { ...breaker, failures, failingSince };
  const openings = breaker.openings + 1;
  const openMs = Math.min(firstOpenMs * 2 ** Math.min(openings - 1, 20), longestOpenMs);
  return { failures, failingSince, openings, openUntil: new Date(nowMs + spread(openMs, random)) };
}

/**
 * As `afterFailure`, for a response with a time to retry: a receiver that sends one is not broken, although no delivery
 * arrives. If the time is earlier than any retry, the response counts as a failure, but once for all concurrent attempts.
 */
export function afterPause(
  breaker: Breaker & { readonly pausedUntil: Date | null },
  { requestedPauseMs, nowMs, random }: { requestedPauseMs: number; nowMs: number; random: number },
): Breaker {
  const next = afterFailure(breaker, { nowMs, random });
  const isPaused = breaker.pausedUntil !== null && breaker.pausedUntil.getTime() > nowMs;
  if (requestedPauseMs < firstRetryMs && !isPaused) return next;
  return { ...breaker, failingSince: next.failingSince };
}

/** After an attempt that this node could not send: a probe is repeated at `dueAt`. */
export function afterInternalError(breaker: Breaker, dueAt: Date): Breaker {
  const { openUntil } = breaker;
  return { ...breaker, openUntil: openUntil === null || openUntil > dueAt ? openUntil : dueAt };
}

/** The pause for an endpoint that requests one: 5 s to a day. */
export function pauseMs(requestedMs: number): number {
  return Math.min(Math.max(requestedMs, firstRetryMs), longestPauseMs);
}

type BreakerState = 'closed' | 'open' | 'probing';

/** `probing`: the next attempt decides whether it closes. */
export function stateOf({ openUntil }: Pick<Breaker, 'openUntil'>, nowMs: number): BreakerState {
  if (openUntil === null) return 'closed';
  return openUntil.getTime() > nowMs ? 'open' : 'probing';
}

/** Whether nothing has arrived for so long that the endpoint is disabled. */
export function isGivenUp({ failingSince }: Breaker, nowMs: number): boolean {
  return failingSince !== null && nowMs - failingSince.getTime() >= givenUpAfterMs;
}

/** Whether the time for attempts is over, so that one more failure makes the event a dead letter. */
export function isOverdue(queuedAt: Date, nowMs: number): boolean {
  return queuedAt.getTime() <= overdueBefore(nowMs);
}

/** The time for attempts is over for events queued before this, in milliseconds since the epoch. */
export function overdueBefore(nowMs: number): number {
  return nowMs - triedForMs;
}

/** The pause after the attempt of this number, the first being 1: 5 s, then three times as long, at most an hour. */
export function retryDelayMs(attempts: number, random: number): number {
  return spread(Math.min(firstRetryMs * 3 ** Math.min(attempts - 1, 20), longestRetryMs), random);
}

/** Up to a fifth more or less, so that deliveries that failed together are not repeated together. `random` is 0 to 1. */
function spread(ms: number, random: number): number {
  return Math.round(ms * (0.8 + 0.4 * random));
}
