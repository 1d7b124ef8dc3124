import { type ConnectOptions, connect } from '../connect/connect.ts';
import { ConnectError, type ConnectErrorCode, isConnectError } from '../connect/connect-error.ts';
import type { Connected } from '../connect/progress.ts';
import { fetchToken } from './token-url.ts';

/** The `detail` of the events of `<trellis-connect>`. The events do not bubble. */
export type TrellisConnectEvents = {
  /** An account is connected, and the user has no decision left. */
  connect: CustomEvent<Connected>;
  /**
   * An attempt failed. `mayRetry`: the window is still open, and the user may try again there. `code` is undefined for an
   * error that is not a `ConnectError`. A window that the user closed is not an error.
   */
  error: CustomEvent<{
    code: ConnectErrorCode | undefined;
    reason: string | undefined;
    message: string;
    mayRetry: boolean;
  }>;
  /** The window or the frame is closed: the last event of each click. */
  close: CustomEvent<{ connected: boolean }>;
};

/** The address of the service that serves `/connect.js`, if this is that script. */
const scriptUrl = (globalThis.document?.currentScript as HTMLScriptElement | null | undefined)?.src;
const serviceUrl =
  scriptUrl !== undefined && /^[^?#]*\/connect\.js([?#]|$)/.test(scriptUrl)
    ? new URL('.', scriptUrl).href
    : undefined;

/** A server has no elements: there, the module can be imported, but not used. */
const Base = globalThis.HTMLElement ?? (class {} as typeof HTMLElement);

/**
 * `<trellis-connect>`: a button that opens the connect page, and reports the result by the DOM events of
 * `TrellisConnectEvents`.
 *
 * | attribute | meaning |
 * |---|---|
 * | `session-token` | the token of a connect session |
 * | `token-url` | without `session-token`: the address that returns a token for a POST request |
 * | `base-url` | the address of the service; defaults to that of `/connect.js` |
 * | `mode` | `popup` (the default) or `frame` |
 * | `integration`, `lang`, `theme` | as in `connect` |
 * | `label` | the text of the button, if the element has no content |
 *
 * `::part(button)` styles the button. Removing the element closes the window; no event follows.
 */
export class TrellisConnectElement extends Base {
  static readonly observedAttributes = ['label'];
  #button: HTMLButtonElement | undefined;
  #text: HTMLSlotElement | undefined;
  #attempt: AbortController | undefined;

  /** @internal */
  connectedCallback(): void {
    if (this.#button !== undefined) return;
    const root = this.attachShadow({ mode: 'open', delegatesFocus: true });
    // Constructed: a Content-Security-Policy without 'unsafe-inline' refuses style elements and attributes.
    const style = new CSSStyleSheet();
    style.replaceSync(css);
    root.adoptedStyleSheets = [style];
    const button = document.createElement('button');
    button.type = 'button';
    button.part.add('button');
    this.#text = document.createElement('slot');
    button.append(this.#text);
    button.addEventListener('click', () => void this.#start());
    root.append(button);
    this.#button = button;
    this.attributeChangedCallback();
  }

  /** @internal */
  attributeChangedCallback(): void {
    if (this.#text !== undefined) this.#text.textContent = this.getAttribute('label') || 'Connect';
  }

  /** @internal */
  disconnectedCallback(): void {
    // An element that is moved within the document is connected again in the same task.
    queueMicrotask(() => {
      if (!this.isConnected) this.#attempt?.abort();
    });
  }

  /** A click during an attempt does nothing. */
  async #start(): Promise<void> {
    if (this.#attempt !== undefined) return;
    const attempt = new AbortController();
    const { signal } = attempt;
    this.#attempt = attempt;
    this.#button?.setAttribute('aria-busy', 'true');
    const report = (error: unknown, mayRetry: boolean) => {
      if (!signal.aborted) this.#dispatch('error', { ...detailOf(error), mayRetry });
    };
    let connected: Connected | undefined;
    try {
      const options = this.#options(signal);
      connected = await connect({ ...options, signal, onFailure: (error) => report(error, true) });
    } catch (error) {
      if (!isConnectError(error, 'window_closed')) report(error, false);
    }
    this.#attempt = undefined;
    this.#button?.removeAttribute('aria-busy');
    if (signal.aborted) return;
    if (connected !== undefined) this.#dispatch('connect', connected);
    this.#dispatch('close', { connected: connected !== undefined });
  }

  #options(signal: AbortSignal): ConnectOptions {
    const attribute = (name: string) => this.getAttribute(name) || undefined;
    const url = attribute('base-url') ?? serviceUrl;
    if (url === undefined) throw new TypeError('The attribute base-url is missing.');
    const tokenUrl = attribute('token-url');
    const noToken = new ConnectError('no_token', { reason: 'neither session-token nor token-url is set' });
    const token = attribute('session-token') ?? (tokenUrl && (() => fetchToken(tokenUrl, signal)));
    if (token === undefined) throw noToken;
    return {
      url,
      token,
      integration: attribute('integration'),
      lang: attribute('lang'),
      mode: attribute('mode') === 'frame' ? 'frame' : 'popup',
      theme: attribute('theme') as ConnectOptions['theme'],
    };
  }

  #dispatch<E extends keyof TrellisConnectEvents>(name: E, detail: TrellisConnectEvents[E]['detail']): void {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

function detailOf(error: unknown): Omit<TrellisConnectEvents['error']['detail'], 'mayRetry'> {
  const { code, reason } = isConnectError(error) ? error : { code: undefined, reason: undefined };
  return { code, reason, message: error instanceof Error ? error.message : String(error) };
}

/** The page's rules for `::part(button)` take precedence. */
const css = `
:host { display: inline-block; }
:host([hidden]) { display: none; }
button {
  font: 600 1rem/1.25 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  min-height: 2.75rem; padding: 0.5rem 1rem; border: 0; border-radius: 0.5rem;
  color: #fff; background: #2454d6; cursor: pointer;
}
button:focus-visible { outline: 2px solid #2454d6; outline-offset: 2px; }
button[aria-busy] { opacity: 0.65; cursor: progress; }
@media (forced-colors: active) { button { border: 1px solid; } }
`;
