/** When a call is tried again, and after how long. Pure: chance is passed in. */
import { isTrellisError, type TrellisError } from './errors.ts';
import { whenAborted } from './when-aborted.ts';

/** A service that asks for a longer pause has its error told instead. */
const longestPauseMs = 60_000;
const firstPauseMs = 300;
const maxPauseMs = 10_000;
/** Timers that are set for longer fire at once. */
export const longestTimerMs = 2 ** 31 - 1;

/**
 * How long to wait before the next attempt; undefined: the error is the caller's.
 *
 * 429, and the 503 `overloaded`, say that nothing was begun, so any call may be sent again. But for 429 `quota_exhausted`: so
 * ends an action of which one call met a used-up quota, and what it did before is done. All else leaves open what was done:
 * only a call whose repetition does no harm (`isRepeatable`) is sent again. A time-out is not: the time is over.
 */
export function pauseBefore(
  error: TrellisError,
  { attempt, isRepeatable, chance }: { attempt: number; isRepeatable: boolean; chance: number },
): number | undefined {
  const { code, status } = error;
  const wasNotBegun = (status === 429 && code !== 'quota_exhausted') || code === 'overloaded';
  const isAway = code === 'network_error' || status === 502 || status === 503 || status === 504;
  if (!wasNotBegun && !(isRepeatable && isAway)) return undefined;
  const pauseMs = pauseAfter(error, { attempt, chance });
  return pauseMs > longestPauseMs ? undefined : pauseMs;
}

/** As long as the service asks for and a little more, so that not all come at once; else twice as long each time. */
export function pauseAfter(
  { retryAfterMs }: Pick<TrellisError, 'retryAfterMs'>,
  { attempt, chance }: { attempt: number; chance: number },
): number {
  if (retryAfterMs !== undefined) return retryAfterMs + chance * Math.min(1_000, retryAfterMs / 10);
  return Math.min(maxPauseMs, firstPauseMs * 2 ** attempt) * (0.5 + chance / 2);
}

/** Calls again and again while the service is away or asks to wait, however long that takes. */
export async function withPatience<R>(
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
      if (!isTrellisError(error) || !mayPass(error)) throw error;
      const pauseMs = pauseAfter(error, { attempt, chance: Math.random() });
      onRetry?.(error, pauseMs);
      await pause(pauseMs, signal);
    }
  }
}

function mayPass({ code, status }: TrellisError): boolean {
  return code === 'network_error' || code === 'timeout' || [429, 502, 503, 504].includes(status);
}

/** Resolves after a time, 24.8 days at most. Rejects with the signal's reason as soon as it is aborted. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => {
        stopWaiting();
        resolve();
      },
      Math.min(ms, longestTimerMs),
    );
    const stopWaiting = whenAborted(signal, () => {
      clearTimeout(timer);
      reject(signal?.reason);
    });
  });
}
