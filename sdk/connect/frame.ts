import { ConnectError } from './connect-error.ts';
import { askProgress, type Connected, failureOf, outcomeOf, type Session } from './progress.ts';

/** A page that may be framed says so within this time, also over a slow line. */
const readyWithinMs = 15_000;

type Framed = {
  /** Of the connect page, without a token: the frame asks for that. */
  address: string;
  session: () => Promise<Session>;
  /** Where to show it; over the whole page without it. */
  container: HTMLElement | undefined;
  signal: AbortSignal;
  onFailure: ((error: ConnectError) => void) | undefined;
};

/** Shows the connect page in a frame, and takes it away in the end. Throws `ConnectError`. */
export async function connectInFrame({
  address,
  session,
  container,
  signal,
  onFailure,
}: Framed): Promise<Connected> {
  const frame = document.createElement('iframe');
  frame.title = 'Connect';
  frame.style.cssText = 'display:block;width:100%;height:100%;border:0;color-scheme:normal';
  frame.src = address;
  const place = container ?? overlay();
  const focused = document.activeElement;
  const over = new AbortController();
  const given = session();
  try {
    place.append(frame);
    await untilDone(frame, { address, given, signal, over: over.signal, onFailure });
    return outcomeOf(await askProgress(await given, signal), 'window_closed');
  } finally {
    over.abort();
    frame.remove();
    if (container === undefined) place.remove();
    if (focused instanceof HTMLElement) focused.focus();
  }
}

/** Gives the frame its token, and waits until it says that the person is done with it. */
function untilDone(
  frame: HTMLIFrameElement,
  {
    address,
    given,
    signal,
    over,
    onFailure,
  }: Pick<Framed, 'address' | 'signal' | 'onFailure'> & { given: Promise<Session>; over: AbortSignal },
): Promise<void> {
  const { origin } = new URL(address);
  const { promise, resolve, reject } = deferred();
  const late = setTimeout(() => reject(new ConnectError('frame_blocked')), readyWithinMs);
  over.addEventListener('abort', () => clearTimeout(late));
  // At once: without a token there is nothing to wait for, whether or not the page loads.
  given.catch(reject);
  const giveToken = async () => {
    clearTimeout(late);
    const { token } = await given;
    frame.contentWindow?.postMessage({ type: 'session_token', sessionToken: token }, origin);
  };
  const tellFailure = async () => {
    const failure = failureOf(await askProgress(await given, signal));
    if (failure !== undefined) onFailure?.(failure);
  };
  const listen = ({ source, origin: from, data }: MessageEvent<{ type?: unknown } | undefined>) => {
    if (source !== frame.contentWindow || from !== origin) return;
    if (data?.type === 'ready') giveToken().catch(reject);
    if (data?.type === 'error') tellFailure().catch(() => {});
    if (data?.type === 'connect' || data?.type === 'close') resolve();
  };
  window.addEventListener('message', listen, { signal: over });
  signal.addEventListener('abort', () => reject(signal.reason), { signal: over });
  if (signal.aborted) reject(signal.reason);
  return promise;
}

function deferred() {
  let resolve = () => {};
  let reject = (_reason: unknown) => {};
  const promise = new Promise<void>((...both) => {
    [resolve, reject] = both;
  });
  return { promise, resolve, reject };
}

function overlay(): HTMLElement {
  const made = document.createElement('div');
  made.style.cssText = 'position:fixed;inset:0;z-index:2147483647';
  document.body.append(made);
  return made;
}
