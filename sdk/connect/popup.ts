import type { ConnectError } from './connect-error.ts';
import {
  type Connected,
  connectionIn,
  failureOf,
  fetchProgress,
  isSettled,
  type Progress,
  resultOf,
  retryProgress,
  type Session,
} from './progress.ts';

/** The interval of progress requests in the first minute, and after it. A message, a focus or a close causes a request immediately. */
const pollMs = 1_000;
const laterPollMs = 3_000;
const frequentPollMs = 60_000;
/** The interval at which `closed` of the window is read. */
const checkClosedMs = 200;
/**
 * A provider's page may cut the link to its opener (Cross-Origin-Opener-Policy); the window then reads as closed for
 * good. If the user went to the provider since the window last read as open, the window counts as closed only after this
 * page has had the focus for this time.
 */
const focusedForMs = 3_000;

/** Opens an empty window in the middle of this one. Returns null if the browser blocks it. Call it in a click handler. */
export function openPopup(): Window | null {
  return window.open('about:blank', '_blank', popupFeatures());
}

/**
 * The features of `window.open` for a window in the middle of this one.
 * @internal
 */
export function popupFeatures(): string {
  const [width, height] = [Math.min(520, screen.availWidth), Math.min(720, screen.availHeight)];
  const left = Math.max(0, Math.round(window.screenX + (window.outerWidth - width) / 2));
  const top = Math.max(0, Math.round(window.screenY + (window.outerHeight - height) / 2));
  return `popup,width=${width},height=${height},left=${left},top=${top}`;
}

/**
 * Resolves when the session has a connection and the user is finished with the window. Does not trust a message of the
 * window: a message only causes a request to the service. Throws `ConnectError`.
 */
export async function watchPopup(
  popup: Window,
  {
    session,
    signal,
    onFailure,
  }: { session: Session; signal: AbortSignal; onFailure: ((error: ConnectError) => void) | undefined },
): Promise<Connected> {
  const origin = new URL(session.url).origin;
  const pollDelay = createPollDelay(signal);
  let isFinishedByMessage = false;
  const onMessage = ({ source, origin: from, data }: MessageEvent<{ type?: unknown } | undefined>) => {
    if (source !== popup || from !== origin) return;
    if (data?.type === 'connect') isFinishedByMessage = true;
    pollDelay.end();
  };
  window.addEventListener('message', onMessage);
  window.addEventListener('focus', pollDelay.end);
  const startedAt = Date.now();
  let lastFailureAt: string | undefined;
  let focusedSince: number | undefined;
  let attemptWhileOpen = noAttempt;
  let mayBeCut = false;
  try {
    for (;;) {
      const wasClosed = popup.closed;
      const progress = wasClosed
        ? await retryProgress(session, signal)
        : await untilClosed(popup, fetchProgress(session, signal));
      if (progress !== undefined) {
        const connected = connectionIn(progress);
        if (connected !== undefined && (isSettled(progress) || isFinishedByMessage)) return connected;
        if (progress.failure !== null && progress.failure.at !== lastFailureAt) {
          lastFailureAt = progress.failure.at;
          onFailure?.(failureOf(progress)!);
        }
        const hasExpired = progress.state === 'expired' && !progress.under_way;
        focusedSince = wasClosed && document.hasFocus() ? (focusedSince ?? Date.now()) : undefined;
        const hasReturned = focusedSince !== undefined && Date.now() - focusedSince >= focusedForMs;
        if (!popup.closed) attemptWhileOpen = lastAttemptIn(progress);
        if (wasClosed && (progress.under_way || lastAttemptIn(progress) !== attemptWhileOpen))
          mayBeCut = true;
        const isClosed = wasClosed && (hasReturned || !mayBeCut);
        if (hasExpired || isClosed) return resultOf(progress, 'window_closed');
      }
      const isFrequent = Date.now() - startedAt < frequentPollMs;
      await pollDelay.wait(isFrequent ? pollMs : laterPollMs, () => popup.closed !== wasClosed);
    }
  } finally {
    window.removeEventListener('message', onMessage);
    window.removeEventListener('focus', pollDelay.end);
  }
}

/** Settles as `value` does, or resolves to undefined once the window is closed. Polls: a closing window sends no event. */
export async function untilClosed<T>(popup: Window, value: Promise<T>): Promise<T | undefined> {
  let timer: ReturnType<typeof setInterval> | undefined;
  const closed = new Promise<undefined>((resolve) => {
    timer = setInterval(() => popup.closed && resolve(undefined), checkClosedMs);
  });
  try {
    return await Promise.race([value, closed]);
  } finally {
    clearInterval(timer);
  }
}

/** Identifies the last finished attempt at the provider by its result. */
const lastAttemptIn = ({ connection, failure }: Pick<Progress, 'connection' | 'failure'>) =>
  JSON.stringify([connection?.connection_id, connection?.missing_scopes, failure?.at]);
const noAttempt = lastAttemptIn({ connection: null, failure: null });

type PollDelay = {
  /** Ends the current delay, or the next one if there is none. */
  end: () => void;
  /** Resolves after `ms`, at `end`, or once `isDone` returns true. Rejects with the signal's reason. */
  wait(ms: number, isDone: () => boolean): Promise<void>;
};

function createPollDelay(signal: AbortSignal): PollDelay {
  let resolveDelay = () => {};
  let hasEnded = false;
  return {
    end: () => {
      hasEnded = true;
      resolveDelay();
    },
    wait: (ms, isDone) =>
      new Promise((resolve, reject) => {
        const clear = () => {
          clearTimeout(timer);
          clearInterval(check);
          signal.removeEventListener('abort', stop);
          resolveDelay = () => {};
          hasEnded = false;
        };
        const done = () => {
          clear();
          resolve();
        };
        const stop = () => {
          clear();
          reject(signal.reason);
        };
        const timer = setTimeout(done, hasEnded || signal.aborted ? 0 : ms);
        const check = setInterval(() => isDone() && done(), checkClosedMs);
        resolveDelay = done;
        signal.addEventListener('abort', stop);
        if (signal.aborted) stop();
      }),
  };
}
