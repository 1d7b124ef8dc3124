import { Connection, type ConnectionOptions } from './connection.ts';
import { Events } from './events.ts';
import { type Key, requireKeyText } from './key.ts';
import { ProviderAddresses } from './provider-addresses.ts';
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
import { type Fetch, Transport } from './transport.ts';

export type TrellisOptions<B extends string = 'trellis'> = {
  /** The address of the service, such as `https://trellis.example.com`; without a password, which messages would tell. */
  url: string;
  /**
   * A secret key; or where the code runs in a browser, a ticket or the token of a connect session, never a key. A function
   * is asked before each attempt, within the time for the call; what it throws the call throws.
   */
  key: Key;
  /** The word in the service's interface names, where it runs under another than `trellis`. */
  brand?: B | undefined;
  /** In place of the platform's `fetch`. */
  fetch?: Fetch | undefined;
  /** How long a call may take, attempts and pauses included; 90,000 unless said otherwise. Calls of providers have no limit here. */
  timeoutMs?: number | undefined;
  /** Further attempts of a call that may be sent again; 2 unless said otherwise. */
  retries?: number | undefined;
};

/**
 * A client of one environment, by its secret key:
 *
 * ```ts
 * const trellis = new Trellis({ url: 'https://trellis.example.com', key: process.env.TRELLIS_SECRET_KEY });
 * ```
 *
 * Every call throws `TrellisError`, whose `code` says what is wrong, but for an abort, for what a `key` function of yours
 * throws, and for a `TypeError` where the arguments cannot be sent: no JSON, an empty name, a header beyond Latin-1. Calls that
 * may be sent again are: those that only read, and all that the service says it has not begun.
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
  readonly #addresses: ProviderAddresses;
  readonly #brand: string;

  /** Throws where the address or the key cannot be one, and in a browser for a secret key. */
  constructor({ url, key, brand, fetch, timeoutMs = 90_000, retries = 2 }: TrellisOptions<B>) {
    if (/^https?:\/\/[^/?#\\]*@/i.test(url))
      throw new TypeError(
        'url: it holds a name or a password, which messages would tell. A key is given as `key`.',
      );
    if (!/^https?:\/\//i.test(url) || !URL.canParse(url))
      throw new TypeError(`url: "${url}" is no address of a service.`);
    if (typeof key !== 'function') {
      requireKeyText(key);
      refuseSecretInBrowser(key, brand ?? 'trellis');
    }
    const transport = new Transport({
      ...{ url: url.replace(/[?#].*$/, '').replace(/\/+$/, ''), key, timeoutMs, retries },
      // Looked up at each call, so that what is put in its place later counts.
      fetch: fetch ?? ((input, init) => globalThis.fetch(input, init)),
    });
    this.#transport = transport;
    this.#addresses = new ProviderAddresses(transport);
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

  /** A handle of one connection: its provider's API, its records, its functions. Nothing is fetched. */
  connection(integration: string, id: string, options: ConnectionOptions = {}): Connection<B> {
    const common = { transport: this.#transport, addresses: this.#addresses, brand: this.#brand };
    return new Connection<B>(common, { integration, id, ...options });
  }

  /**
   * Calls any route of the interface, typed by its OpenAPI document:
   *
   * ```ts
   * const { operations } = await trellis.request('GET /operations', { query: { status: 'failed' } });
   * ```
   */
  request<R extends Route>(route: R, ...[given]: Arguments<R>): Promise<Answer<R>> {
    return this.#transport.json<Answer<R>>({ route, ...given });
  }

  /** As `request`, for an answer that is no JSON document, such as a stream; `timeoutMs` counts until it begins. */
  raw<R extends Route>(route: R, ...[given]: Arguments<R>): Promise<Response> {
    return this.#transport.raw({ route, ...given });
  }
}

function refuseSecretInBrowser(key: string, brand: string): void {
  const isBrowser = 'document' in globalThis && 'window' in globalThis;
  if (!isBrowser || key.startsWith('trt_') || key.startsWith(`${brand}_connect_session_`)) return;
  throw new TypeError(
    'key: a secret key does not belong into a browser, where everybody can read it. Make a ticket on your server ' +
      '(POST /tickets), or a connect session, and give that to the page.',
  );
}
