import { ConnectError } from './connect-error.ts';
import { type Connected, failureOf, resultOf, retryProgress, type Session } from './progress.ts';

/** The time in which the connect page must report that it loaded, also over a slow connection. */
const loadTimeoutMs = 15_000;

type FrameOptions = {
  /** The address of the connect page, without a token: the page requests the token by a message. */
  address: string;
  requestSession: () => Promise<Session>;
  /** The element that contains the frame. By default, the frame covers the page. */
  container: HTMLElement | undefined;
  signal: AbortSignal;
  onFailure: ((error: ConnectError) => void) | undefined;
};

/** Shows the connect page in a frame, and removes the frame at the end. Throws `ConnectError`. */
export async function connectInFrame(options: FrameOptions): Promise<Connected> {
  const { address, container, signal } = options;
  const frame = document.createElement('iframe');
  frame.title = 'Connect';
  frame.style.cssText = 'display:block;width:100%;height:100%;border:0;color-scheme:normal';
  frame.src = address;
  const parent = container ?? createOverlay();
  const focused = document.activeElement;
  const cleanup = new AbortController();
  const session = options.requestSession();
  try {
    parent.append(frame);
    await untilFinished(frame, { ...options, session, cleanup: cleanup.signal });
    return resultOf(await retryProgress(await session, signal), 'window_closed');
  } finally {
    cleanup.abort();
    frame.remove();
    if (container === undefined) parent.remove();
    if (focused instanceof HTMLElement) focused.focus();
  }
}

/** Sends the token to the frame. Resolves when the frame reports that the user is finished. */
function untilFinished(
  frame: HTMLIFrameElement,
  {
    address,
    session,
    signal,
    cleanup,
    onFailure,
  }: Pick<FrameOptions, 'address' | 'signal' | 'onFailure'> & {
    session: Promise<Session>;
    cleanup: AbortSignal;
  },
): Promise<void> {
  const { origin } = new URL(address);
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new ConnectError('frame_blocked')), loadTimeoutMs);
    cleanup.addEventListener('abort', () => clearTimeout(timer));
    // Rejects immediately: without a token the page cannot be used, whether or not it loads.
    session.catch(reject);
    const sendToken = async () => {
      clearTimeout(timer);
      const { token } = await session;
      frame.contentWindow?.postMessage({ type: 'session_token', sessionToken: token }, origin);
    };
    const reportFailure = async () => {
      const failure = failureOf(await retryProgress(await session, signal));
      if (failure !== undefined) onFailure?.(failure);
    };
    const onMessage = ({ source, origin: from, data }: MessageEvent<{ type?: unknown } | undefined>) => {
      if (source !== frame.contentWindow || from !== origin) return;
      if (data?.type === 'ready') sendToken().catch(reject);
      if (data?.type === 'error') reportFailure().catch(() => {});
      if (data?.type === 'connect' || data?.type === 'close') resolve();
    };
    window.addEventListener('message', onMessage, { signal: cleanup });
    signal.addEventListener('abort', () => reject(signal.reason), { signal: cleanup });
    if (signal.aborted) reject(signal.reason);
  });
}

function createOverlay(): HTMLElement {
  const overlay = document.createElement('div');
  overlay.style.cssText = 'position:fixed;inset:0;z-index:2147483647';
  document.body.append(overlay);
  return overlay;
}
