import { ConnectError } from './connect-error.ts';
import { connectInFrame } from './frame.ts';
import { openPopup, untilClosed, watchPopup } from './popup.ts';
import type { Connected, Session } from './progress.ts';
import { flowIdOf, redirectTo } from './redirect.ts';
import { serviceUrl } from './service-url.ts';

export type ConnectOptions = {
  /** The address of the service. */
  url: string;
  /**
   * The token of a connect session that your server created. With a function or a promise, the window opens during the
   * click, before the token exists.
   */
  token: string | PromiseLike<string> | (() => string | PromiseLike<string>);
  /**
   * `popup` (the default) opens a separate window; call `connect` in the click handler. `frame` shows the connect page
   * within this page; TRELLIS_CONNECT_FRAME_ANCESTORS of the service must contain its origin. `redirect` replaces this
   * page; create the session with a `return_url`, and call `finishConnect` in the page at that address.
   */
  mode?: 'popup' | 'frame' | 'redirect' | undefined;
  /** The integration to connect, if the session allows several. */
  integration?: string | undefined;
  /**
   * Identifies this call after a redirect: `finishConnect({ id })` finishes only the call with this `id`. Defaults to
   * `integration`.
   */
  id?: string | undefined;
  /** The language of the connect page. Defaults to the setting of the environment, then to the browser's language. */
  lang?: string | undefined;
  /** The theme of the connect page. Defaults to the setting of the environment, then to the browser's theme. */
  theme?: 'light' | 'dark' | 'system' | undefined;
  /** The element that contains the frame. By default, the frame covers the page. */
  container?: HTMLElement | undefined;
  /** Called when an attempt failed and the user may still try again. */
  onFailure?: ((error: ConnectError) => void) | undefined;
  /** Closes the window or the frame. */
  signal?: AbortSignal | undefined;
};

/**
 * Opens the connect page, and resolves when the user has connected an account. Needs no WebSocket and no third-party
 * cookie.
 *
 * Rejects with `ConnectError` if the user gives up, with the signal's reason on an abort, with the error of `token`, or
 * with a TypeError if `url` is not an http address.
 * The result comes from a browser: your server must read the connection before it acts on the result.
 */
export async function connect(options: ConnectOptions): Promise<Connected> {
  const { token, mode = 'popup', container, onFailure } = options;
  const signal = options.signal ?? new AbortController().signal;
  signal.throwIfAborted();
  const url = serviceUrl(options.url);
  const requestSession = async (): Promise<Session> => {
    const value = await untilAborted(typeof token === 'function' ? token() : token, signal);
    if (typeof value !== 'string' || value === '') throw new ConnectError('invalid_token');
    return { url, token: value };
  };
  if (mode === 'frame') {
    return connectInFrame({ address: addressOf(options, {}), requestSession, container, signal, onFailure });
  }
  if (mode === 'redirect') {
    const session = await requestSession();
    const address = addressOf(options, { session_token: session.token });
    return redirectTo(address, { session, flowId: flowIdOf(options), signal });
  }
  // There is no await before this line, so the browser attributes the window to the user's click.
  const popup = openPopup();
  if (popup === null) throw new ConnectError('popup_blocked');
  try {
    const session = await untilClosed(popup, requestSession());
    if (session === undefined || popup.closed) throw new ConnectError('window_closed');
    popup.location.replace(addressOf(options, { session_token: session.token }));
    return await watchPopup(popup, { session, signal, onFailure });
  } finally {
    popup.close();
  }
}

/** The address of the connect page. The page removes the token from its address before it shows anything. */
function addressOf({ url, integration, lang, theme }: ConnectOptions, more: Record<string, string>): string {
  const address = new URL(`${serviceUrl(url)}/connect/`);
  for (const [name, value] of Object.entries({ ...more, integration, lang, theme }))
    if (value !== undefined) address.searchParams.set(name, value);
  return address.href;
}

/** Resolves or rejects as `value` does, or rejects with the signal's reason when the signal aborts. */
function untilAborted<T>(value: T | PromiseLike<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
    Promise.resolve(value)
      .then(resolve, reject)
      .finally(() => signal.removeEventListener('abort', stop));
  });
}
