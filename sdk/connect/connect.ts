import { ConnectError } from './connect-error.ts';
import { connectInFrame } from './frame.ts';
import { openPopup, unlessClosed, watchPopup } from './popup.ts';
import type { Connected, Session } from './progress.ts';
import { leaveFor, whoOf } from './redirect.ts';

export type ConnectOptions = {
  /** The address of the service. */
  url: string;
  /**
   * The token of a connect session, which your server has made. A function or a promise lets the window open in the click,
   * before there is a token.
   */
  token: string | PromiseLike<string> | (() => string | PromiseLike<string>);
  /**
   * `popup` (the default): a window of its own; call `connect` in the click. `frame`: within this page; the service has to
   * name its origin in TRELLIS_CONNECT_FRAME_ANCESTORS. `redirect`: in place of this page; make the session with a
   * `return_url`, and call `finishConnect` there.
   */
  mode?: 'popup' | 'frame' | 'redirect' | undefined;
  /** The integration to connect, where the session allows several. */
  integration?: string | undefined;
  /**
   * Tells this call from others where the person comes back from a redirect: `finishConnect({ id })` finishes it alone. The
   * integration unless said otherwise.
   */
  id?: string | undefined;
  /** Of the connect page; else as the environment says, or the browser. */
  lang?: string | undefined;
  theme?: 'light' | 'dark' | 'system' | undefined;
  /** Where to show the frame; over the whole page without it. */
  container?: HTMLElement | undefined;
  /** Told of an attempt that failed while the person may still try again. */
  onFailure?: ((error: ConnectError) => void) | undefined;
  /** Closes the window or the frame. */
  signal?: AbortSignal | undefined;
};

/**
 * Has the person connect an account: opens the connect page and waits for what comes of it. It needs no socket and no
 * third-party cookie.
 *
 * Rejects with `ConnectError` where the person gives up, with the signal's reason, or with what `token` throws. What it tells
 * comes from a browser: let your server look the connection up before it acts on it.
 */
export async function connect(options: ConnectOptions): Promise<Connected> {
  const { token, mode = 'popup', container, onFailure } = options;
  const signal = options.signal ?? new AbortController().signal;
  signal.throwIfAborted();
  const url = options.url.replace(/\/+$/, '');
  const session = async (): Promise<Session> => {
    const given = await untilAborted(typeof token === 'function' ? token() : token, signal);
    if (typeof given !== 'string' || given === '') throw new ConnectError('invalid_token');
    return { url, token: given };
  };
  if (mode === 'frame') {
    return connectInFrame({ address: addressOf(options, {}), session, container, signal, onFailure });
  }
  if (mode === 'redirect') {
    const known = await session();
    const address = addressOf(options, { session_token: known.token });
    return leaveFor(address, { session: known, who: whoOf(options), signal });
  }
  // Nothing was waited for so far, so that the browser sees the click that it opens the window for.
  const popup = openPopup();
  if (popup === null) throw new ConnectError('popup_blocked');
  try {
    const known = await unlessClosed(popup, session());
    if (known === undefined || popup.closed) throw new ConnectError('window_closed');
    popup.location.replace(addressOf(options, { session_token: known.token }));
    return await watchPopup(popup, { session: known, signal, onFailure });
  } finally {
    popup.close();
  }
}

/** The address of the connect page, which takes a token out of it before it shows anything. */
function addressOf({ url, integration, lang, theme }: ConnectOptions, more: Record<string, string>): string {
  const address = new URL(`${url.replace(/\/+$/, '')}/connect/`);
  for (const [name, value] of Object.entries({ ...more, integration, lang, theme }))
    if (value !== undefined) address.searchParams.set(name, value);
  return address.href;
}

function untilAborted<T>(given: T | PromiseLike<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
    Promise.resolve(given)
      .then(resolve, reject)
      .finally(() => signal.removeEventListener('abort', stop));
  });
}
