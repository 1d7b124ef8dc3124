import { Connection, type ConnectionOptions } from './connection.ts';
import { Events } from './events.ts';
import { ProviderUrls } from './proxied-fetch.ts';
import {
  Connections,
  ConnectSessions,
  Integrations,
  Keys,
  Providers,
  Tickets,
  Variables,
} from './resources.ts';
import type { Answer, Arguments, Route } from './route-call.ts';
import { type Fetch, type Key, requireKeyText, Transport } from './transport.ts';

export type TrellisOptions<B extends string = 'trellis'> = {
  /** The address of the service, such as `https://trellis.example.com`. Must not contain a password: error messages show it. */
  url: string;
  /**
   * A secret key. In a browser, a ticket or the token of a connect session, never a secret key. A function is called before
   * each attempt, within the time limit of the call; the call throws its error.
   */
  key: Key;
  /** The brand of the service, if it is not `trellis`: the word in the names of its headers and fields. */
  brand?: B | undefined;
  /** Used instead of the platform's `fetch`. */
  fetch?: Fetch | undefined;
  /** The time limit of a call, including retries and pauses. Defaults to 90,000. Calls to providers have no limit here. */
  timeoutMs?: number | undefined;
  /** The number of retries of a call that may be repeated. Defaults to 2. */
  retries?: number | undefined;
};

/**
 * The client of one environment:
 *
 * ```ts
 * const trellis = new Trellis({ url: 'https://trellis.example.com', key: process.env.TRELLIS_SECRET_KEY });
 * ```
 *
 * Every call rejects with `TrellisError`, except for an abort, an error of your `key` function, and a `TypeError` for arguments
 * that cannot be sent: a body without a JSON form, an empty name, a header beyond Latin-1. The client retries calls that only
 * read, and any call that the service reports as not started.
 */
export class Trellis<B extends string = 'trellis'> {
  readonly integrations: Integrations;
  readonly providers: Providers;
  readonly connections: Connections;
  readonly connectSessions: ConnectSessions;
  readonly events: Events;
  readonly tickets: Tickets;
  readonly variables: Variables;
  readonly keys: Keys;
  readonly #transport: Transport;
  readonly #providerUrls: ProviderUrls;
  readonly #brand: string;

  /** Throws a `TypeError` for an invalid address or key, and for a secret key in a browser. */
  constructor({ url, key, brand, fetch, timeoutMs = 90_000, retries = 2 }: TrellisOptions<B>) {
    if (/^https?:\/\/[^/?#\\]*@/i.test(url))
      throw new TypeError(
        'url: contains a user name or a password, which error messages would show. Pass a key as `key`.',
      );
    if (!/^https?:\/\//i.test(url) || !URL.canParse(url))
      throw new TypeError(`url: "${url}" is not the address of a service.`);
    if (typeof key !== 'function') {
      requireKeyText(key);
      refuseSecretInBrowser(key, brand ?? 'trellis');
    }
    const transport = new Transport({
      url: url.replace(/[?#].*$/, '').replace(/\/+$/, ''),
      key,
      timeoutMs,
      retries,
      // Read at each call, so that a later replacement of the global takes effect.
      fetch: fetch ?? ((input, init) => globalThis.fetch(input, init)),
    });
    this.#transport = transport;
    this.#providerUrls = new ProviderUrls(transport);
    this.#brand = brand ?? 'trellis';
    this.integrations = new Integrations(transport);
    this.providers = new Providers(transport);
    this.connections = new Connections(transport);
    this.connectSessions = new ConnectSessions(transport);
    this.events = new Events(transport);
    this.tickets = new Tickets(transport);
    this.variables = new Variables(transport);
    this.keys = new Keys(transport);
  }

  /** Returns the handle of one connection: its provider's API, its records, its functions. Sends no request. */
  connection(integration: string, id: string, options: ConnectionOptions = {}): Connection<B> {
    const common = { transport: this.#transport, providerUrls: this.#providerUrls, brand: this.#brand };
    return new Connection<B>(common, { integration, id, ...options });
  }

  /**
   * Calls any route of the service, typed by the OpenAPI document, and returns the JSON of its response:
   *
   * ```ts
   * const { operations } = await trellis.request('GET /operations', { query: { status: 'failed' } });
   * ```
   */
  request<R extends Route>(route: R, ...[parameters]: Arguments<R>): Promise<Answer<R>> {
    return this.#transport.json<Answer<R>>({ route, ...parameters });
  }

  /** Like `request`, for a response that is not JSON, such as a stream. `timeoutMs` ends with the response headers. */
  raw<R extends Route>(route: R, ...[parameters]: Arguments<R>): Promise<Response> {
    return this.#transport.raw({ route, ...parameters });
  }
}

function refuseSecretInBrowser(key: string, brand: string): void {
  const isBrowser = 'document' in globalThis && 'window' in globalThis;
  if (!isBrowser || key.startsWith('trt_') || key.startsWith(`${brand}_connect_session_`)) return;
  throw new TypeError(
    'key: a secret key must not be used in a browser, where everyone can read it. Create a ticket (POST /tickets) or a ' +
      'connect session on your server, and pass it to the page.',
  );
}
