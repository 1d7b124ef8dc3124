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
  const focused = document.activeElement;
  const overlay = container === undefined ? createOverlay() : undefined;
  const cleanup = new AbortController();
  const session = options.requestSession();
  try {
    (container ?? overlay)?.append(frame);
    await untilFinished(frame, { ...options, session, overlay, cleanup: cleanup.signal });
    return resultOf(await retryProgress(await session, signal), 'window_closed');
  } finally {
    cleanup.abort();
    frame.remove();
    overlay?.remove();
    if (focused instanceof HTMLElement) focused.focus();
  }
}

/** Sends the token to the frame. Resolves when the frame reports that the user is finished, and when the user presses Esc. */
function untilFinished(
  frame: HTMLIFrameElement,
  {
    address,
    session,
    overlay,
    signal,
    cleanup,
    onFailure,
  }: Pick<FrameOptions, 'address' | 'signal' | 'onFailure'> & {
    session: Promise<Session>;
    overlay: HTMLElement | undefined;
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
      if (overlay !== undefined) frame.focus();
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
    // Esc in the frame is a `close` message, because its keys do not reach this page.
    overlay?.addEventListener('cancel', () => resolve(), { signal: cleanup });
    signal.addEventListener('abort', () => reject(signal.reason), { signal: cleanup });
    if (signal.aborted) reject(signal.reason);
  });
}

/** A modal dialog: the browser keeps the focus within it, and the page behind it is inert. */
function createOverlay(): HTMLElement {
  const overlay = document.createElement('dialog');
  overlay.ariaLabel = 'Connect';
  overlay.style.cssText =
    'position:fixed;inset:0;width:100%;height:100%;max-width:none;max-height:none;margin:0;padding:0;border:0;overflow:hidden;background:none';
  document.body.append(overlay);
  overlay.showModal();
  return overlay;
}
