import type { ConnectError } from './connect-error.ts';
import {
  askProgress,
  type Connected,
  connectedBy,
  failureOf,
  fetchProgress,
  isSettled,
  outcomeOf,
  type Progress,
  type Session,
} from './progress.ts';

/** Asked so often; after a minute less. Whatever is heard or seen meanwhile has it asked at once. */
const askEveryMs = 1_000;
const askLaterEveryMs = 3_000;
const oftenForMs = 60_000;
const lookEveryMs = 200;
/**
 * A provider's page may cut the tie to its window (Cross-Origin-Opener-Policy), which then looks closed for good. Where
 * the person went there since it was last seen open, it is taken for closed only once they are back on this page for so long.
 */
const backForMs = 3_000;

/** An empty window in the middle of this one; null where the browser opens none. Must be called by a click. */
export function openPopup(): Window | null {
  const [width, height] = [Math.min(520, screen.availWidth), Math.min(720, screen.availHeight)];
  const left = Math.max(0, Math.round(window.screenX + (window.outerWidth - width) / 2));
  const top = Math.max(0, Math.round(window.screenY + (window.outerHeight - height) / 2));
  return window.open(
    'about:blank',
    '_blank',
    `popup,width=${width},height=${height},left=${left},top=${top}`,
  );
}

/**
 * Waits until the session has made a connection and the person is done with the window. A message of the window is not
 * trusted: it only causes a request to the service. Throws `ConnectError`.
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
  const bell = createBell(signal);
  let isToldDone = false;
  const listen = ({ source, origin: from, data }: MessageEvent<{ type?: unknown } | undefined>) => {
    if (source !== popup || from !== origin) return;
    if (data?.type === 'connect') isToldDone = true;
    bell.ring();
  };
  window.addEventListener('message', listen);
  window.addEventListener('focus', bell.ring);
  const begunAt = Date.now();
  let failedAt: string | undefined;
  let backAt: number | undefined;
  let seenOpen = neverGone;
  let mayBeCut = false;
  try {
    for (;;) {
      const wasClosed = popup.closed;
      const progress = wasClosed
        ? await askProgress(session, signal)
        : await unlessClosed(popup, fetchProgress(session, signal));
      if (progress !== undefined) {
        const made = connectedBy(progress);
        if (made !== undefined && (isSettled(progress) || isToldDone)) return made;
        if (progress.failure !== null && progress.failure.at !== failedAt) {
          failedAt = progress.failure.at;
          onFailure?.(failureOf(progress)!);
        }
        const isOver = progress.state === 'expired' && !progress.under_way;
        backAt = wasClosed && document.hasFocus() ? (backAt ?? Date.now()) : undefined;
        const isBack = backAt !== undefined && Date.now() - backAt >= backForMs;
        if (!popup.closed) seenOpen = tripOf(progress);
        if (wasClosed && (progress.under_way || tripOf(progress) !== seenOpen)) mayBeCut = true;
        const isClosed = wasClosed && (isBack || !mayBeCut);
        if (isOver || isClosed) return outcomeOf(progress, 'window_closed');
      }
      const isEarly = Date.now() - begunAt < oftenForMs;
      await bell.wait(isEarly ? askEveryMs : askLaterEveryMs, () => popup.closed !== wasClosed);
    }
  } finally {
    window.removeEventListener('message', listen);
    window.removeEventListener('focus', bell.ring);
  }
}

/** As `given`; undefined as soon as the window is seen closed, which no window tells. */
export async function unlessClosed<T>(popup: Window, given: Promise<T>): Promise<T | undefined> {
  let looking: ReturnType<typeof setInterval> | undefined;
  const closed = new Promise<undefined>((resolve) => {
    looking = setInterval(() => popup.closed && resolve(undefined), lookEveryMs);
  });
  try {
    return await Promise.race([given, closed]);
  } finally {
    clearInterval(looking);
  }
}

/** The last trip to the provider that has ended, by what came of it. */
const tripOf = ({ connection, failure }: Pick<Progress, 'connection' | 'failure'>) =>
  JSON.stringify([connection?.connection_id, connection?.missing_scopes, failure?.at]);
const neverGone = tripOf({ connection: null, failure: null });

/** Waits for a time, until somebody rings, or until something is so. Rejects with the signal's reason. */
function createBell(signal: AbortSignal): {
  ring: () => void;
  wait(ms: number, isSo: () => boolean): Promise<void>;
} {
  let rung = () => {};
  let isRung = false;
  return {
    ring: () => {
      isRung = true;
      rung();
    },
    wait: (ms, isSo) =>
      new Promise((resolve, reject) => {
        const end = () => {
          clearTimeout(timer);
          clearInterval(looking);
          signal.removeEventListener('abort', stop);
          rung = () => {};
          isRung = false;
        };
        const done = () => {
          end();
          resolve();
        };
        const stop = () => {
          end();
          reject(signal.reason);
        };
        const timer = setTimeout(done, isRung || signal.aborted ? 0 : ms);
        const looking = setInterval(() => isSo() && done(), lookEveryMs);
        rung = done;
        signal.addEventListener('abort', stop);
        if (signal.aborted) stop();
      }),
  };
}
