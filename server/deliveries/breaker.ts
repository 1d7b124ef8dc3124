/**
 * When an endpoint that fails is left alone, and when an attempt is repeated. Judgements alone: no clock, no table.
 */

/** An endpoint's failures in a row, over all of its lanes. One success ends them all. */
export type Breaker = {
  readonly failures: number;
  readonly failingSince: Date | null;
  /** How often it opened in this row. */
  readonly openings: number;
  /** Past this time one probe at a time goes out; null while it is closed. */
  readonly openUntil: Date | null;
};

const second = 1_000;
const hour = 3_600 * second;
const day = 24 * hour;

/** So many failures in a row open it. */
const maxFailures = 5;
const firstOpenMs = 30 * second;
const longestOpenMs = 10 * 60 * second;
/** After so long without one success an endpoint is disabled. */
const givenUpAfterMs = 5 * day;
/** An event is tried for so long. Then it is a dead letter. */
const triedForMs = 3 * day;
const firstRetryMs = 5 * second;
const longestRetryMs = hour;
/** A receiver that asks for more gets this. */
const longestPauseMs = day;

/** The breaker after one more failure. Failures of what was under way when it opened leave its time as it is. */
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
 * As `afterFailure`, for an answer with a time to retry: a receiver that sends one is not broken, although no delivery
 * arrives. If the time is earlier than any retry, the answer counts as a failure, but once for all concurrent attempts.
 */
export function afterPause(
  breaker: Breaker & { readonly pausedUntil: Date | null },
  { askedPauseMs, nowMs, random }: { askedPauseMs: number; nowMs: number; random: number },
): Breaker {
  const judged = afterFailure(breaker, { nowMs, random });
  const isPaused = breaker.pausedUntil !== null && breaker.pausedUntil.getTime() > nowMs;
  if (askedPauseMs < firstRetryMs && !isPaused) return judged;
  return { ...breaker, failingSince: judged.failingSince };
}

/** After an attempt that could not even be begun here: one that was to be a probe is repeated at `dueAt`. */
export function afterOurFault(breaker: Breaker, dueAt: Date): Breaker {
  const { openUntil } = breaker;
  return { ...breaker, openUntil: openUntil === null || openUntil > dueAt ? openUntil : dueAt };
}

/** How long an endpoint that asks for silence gets it: 5 s to a day. */
export function pauseMs(askedMs: number): number {
  return Math.min(Math.max(askedMs, firstRetryMs), longestPauseMs);
}

type BreakerState = 'closed' | 'open' | 'probing';

/** `probing`: the next attempt decides. */
export function stateOf({ openUntil }: Pick<Breaker, 'openUntil'>, nowMs: number): BreakerState {
  if (openUntil === null) return 'closed';
  return openUntil.getTime() > nowMs ? 'open' : 'probing';
}

/** Whether nothing has arrived for so long that nobody is expected to be there any more. */
export function isGivenUp({ failingSince }: Breaker, nowMs: number): boolean {
  return failingSince !== null && nowMs - failingSince.getTime() >= givenUpAfterMs;
}

/** Whether the time of an event that was queued then is over, so that one more failure makes it a dead letter. */
export function isOverdue(queuedAt: Date, nowMs: number): boolean {
  return queuedAt.getTime() <= overdueBefore(nowMs);
}

/** What was queued before this has had its time, in milliseconds since the epoch. */
export function overdueBefore(nowMs: number): number {
  return nowMs - triedForMs;
}

/** How long to wait after the attempt of this number, the first being 1: 5 s, then three times as long, up to an hour. */
export function retryDelayMs(attempts: number, random: number): number {
  return spread(Math.min(firstRetryMs * 3 ** Math.min(attempts - 1, 20), longestRetryMs), random);
}

/** A fifth more or less, so that what failed together does not come back together. `random` is 0 to 1. */
function spread(ms: number, random: number): number {
  return Math.round(ms * (0.8 + 0.4 * random));
}
