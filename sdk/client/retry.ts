/** Decides whether a call is retried and computes the pause before it. Randomness is an argument (`chance`, 0 to 1). */
import { isTrellisError, type TrellisError } from './errors.ts';
import { whenAborted } from './when-aborted.ts';

/** If the service requests a longer pause, the call throws the error instead of waiting. */
const longestPauseMs = 60_000;
const firstPauseMs = 300;
const maxPauseMs = 10_000;
/** The largest delay of a timer; timers with a longer delay fire immediately. */
export const longestTimerMs = 2 ** 31 - 1;

/**
 * The pause in ms before the next attempt; undefined if the call must not be retried.
 *
 * 429 and the 503 `overloaded` mean that nothing was started, so any call may be repeated. The exception is 429
 * `quota_exhausted`: an action ends with it if one of its calls met an exhausted quota, and its earlier calls have taken effect.
 * After other errors the outcome is unknown, so only an idempotent call is repeated. A call with an Idempotency-Key is repeated
 * if its response was lost or its first attempt still runs; an error of the service is not kept, so the work would be done
 * again. A time-out is never retried.
 */
export function pauseBefore(
  error: TrellisError,
  {
    attempt,
    isIdempotent,
    isKeyed,
    chance,
  }: { attempt: number; isIdempotent: boolean; isKeyed: boolean; chance: number },
): number | undefined {
  const { code, status } = error;
  const wasNotStarted = (status === 429 && code !== 'quota_exhausted') || code === 'overloaded';
  const isUnavailable = code === 'network_error' || status === 502 || status === 503 || status === 504;
  const isRepeatable = isKeyed && (code === 'network_error' || code === 'request_in_progress');
  if (!wasNotStarted && !isRepeatable && !(isIdempotent && isUnavailable)) return undefined;
  const pauseMs = pauseAfter(error, { attempt, chance });
  return pauseMs > longestPauseMs ? undefined : pauseMs;
}

/** The requested pause plus a random part, which spreads the retries of many clients; else exponential backoff. */
export function pauseAfter(
  { retryAfterMs }: Pick<TrellisError, 'retryAfterMs'>,
  { attempt, chance }: { attempt: number; chance: number },
): number {
  if (retryAfterMs !== undefined) return retryAfterMs + chance * Math.min(1_000, retryAfterMs / 10);
  return Math.min(maxPauseMs, firstPauseMs * 2 ** attempt) * (0.5 + chance / 2);
}

/** Repeats the call without a limit while the service is unavailable or requests a pause. Throws any other error. */
export async function retryUntilAvailable<R>(
  call: () => Promise<R>,
  {
    signal,
    onRetry,
  }: {
    signal?: AbortSignal | undefined;
    onRetry?: ((error: TrellisError, pauseMs: number) => void) | undefined;
  },
): Promise<R> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await call();
    } catch (error) {
      if (!isTrellisError(error) || !isTemporary(error)) throw error;
      const pauseMs = pauseAfter(error, { attempt, chance: Math.random() });
      onRetry?.(error, pauseMs);
      await pause(pauseMs, signal);
    }
  }
}

function isTemporary({ code, status }: TrellisError): boolean {
  return code === 'network_error' || code === 'timeout' || [429, 502, 503, 504].includes(status);
}

/** Resolves after `ms`, at most 24.8 days. Rejects with the signal's reason once it aborts. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => {
        stop();
        resolve();
      },
      Math.min(ms, longestTimerMs),
    );
    const stop = whenAborted(signal, () => {
      clearTimeout(timer);
      reject(signal?.reason);
    });
  });
}
