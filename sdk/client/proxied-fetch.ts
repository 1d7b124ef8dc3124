/**
 * `fetch` for one connection: calls to the provider go through the proxy, which adds the user's credentials.
 *
 * Owns the address of a call, and which headers get the prefix with which any header passes the proxy. Does not own retries,
 * quotas and time limits: the service has them, set by headers such as `Retries` and `Quota-Wait`.
 */
import { isTrellisError } from './errors.ts';
import type { Answer } from './route-call.ts';
import type { Fetch, Transport } from './transport.ts';
import { unlessAborted } from './when-aborted.ts';

export type ProxiedConnection = {
  transport: Transport;
  providerUrls: ProviderUrls;
  brand: string;
  integration: string;
  connectionId: string;
  /** The base URL of the provider, if the caller set it. */
  baseUrl: string | undefined;
};

/** Headers that pass the proxy unchanged; all other headers of the caller get the prefix. */
const passed =
  /^(accept|accept-encoding|accept-language|cache-control|content-.*|digest|idempotency-key|if-.*|last-event-id|mcp-.*|prefer|range|te|user-agent|x-goog-api-client|x-goog-fieldmask|x-goog-upload-.*|x-upload-content-.*)$/;
/** Headers for the proxy, not for the provider. */
const forProxy = /^(base-url-override|decompress|quota-wait|retries|retry-on|timeouts)$/;
/** Headers that the client or the service sets, or that must not be sent. */
const dropped =
  /^(authorization|cookie|connection-id|host|integration-id|origin|provider-config-key|referer)$/;

/**
 * Returns a function with the signature of `fetch`. It accepts a path of the provider's API or a complete URL, and returns the
 * provider's response. An error of Trellis is a response too, which `errorOf` recognises, such as the error for an address that
 * the integration does not allow.
 *
 * It rejects as `fetch` does. It also rejects with a `TypeError` for an address with dot segments (a `URL` and a `Request` have
 * resolved theirs), and for a complete URL if the key may not read the integration and `baseUrl` is not set.
 *
 * Bodies are streamed in both directions. The body of a `Request` is read completely first: some platforms cannot forward it.
 */
export function proxiedFetch(connection: ProxiedConnection): Fetch {
  const { transport, integration, connectionId } = connection;
  const proxy = `${transport.url}/proxy`;
  return async (input, init = {}) => {
    // Checks for a property, not with `instanceof`: a caller with a custom `fetch` may pass a custom Request class.
    const request = typeof input === 'object' && 'url' in input ? input : undefined;
    const headers = headersFor(connection, new Headers(init.headers ?? request?.headers));
    headers.set('connection-id', connectionId);
    headers.set('integration-id', integration);
    const signal = (init.signal === undefined ? request?.signal : init.signal) ?? undefined;
    const readBase = () => baseOf(connection, signal);
    const { path, override } = await resolvePath(request?.url ?? String(input), { proxy, readBase });
    if (override !== undefined) headers.set('base-url-override', override);
    const url = proxyUrl(proxy, path);
    const body = init.body ?? (await bodyOf(request));
    return transport.fetchWithKey(url, {
      ...(request && { method: request.method, signal: request.signal, redirect: request.redirect }),
      ...withoutUndefined(init),
      headers,
      // Platforms require `duplex` for a streamed body.
      ...(body !== null && { body, duplex: 'half' }),
    });
  };
}

/** `fetch` ignores undefined options. In an object spread they would hide the options of a `Request`. */
function withoutUndefined(init: RequestInit): RequestInit {
  return Object.fromEntries(Object.entries(init).filter(([, value]) => value !== undefined));
}

async function bodyOf(request: Request | undefined): Promise<ArrayBuffer | null> {
  return request?.body == null ? null : request.arrayBuffer();
}

function headersFor({ brand }: ProxiedConnection, original: Headers): Headers {
  const headers = new Headers();
  const isForTrellis = (name: string) =>
    forProxy.test(name) || name.startsWith(`${brand}-`) || name.startsWith(`x-${brand}-`);
  for (const [name, value] of original) {
    if (dropped.test(name)) continue;
    const isUnchanged = passed.test(name) || isForTrellis(name);
    headers.set(isUnchanged ? name : `${brand}-proxy-${name}`, value);
  }
  return headers;
}

/**
 * The path after `/proxy` for a path of the provider's API or a complete URL. `override` is the origin of a URL outside of the
 * provider's base URL.
 */
async function resolvePath(
  input: string,
  { proxy, readBase }: { proxy: string; readBase: () => Promise<string | undefined> },
): Promise<{ path: string; override?: string }> {
  // URL parsers remove these characters anywhere.
  const address = input.replace(/[\t\n\r]/g, '').trim();
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(address)) {
    return { path: address.startsWith('/') ? address : `/${address}` };
  }
  if (address.startsWith(`${proxy}/`)) return { path: address.slice(proxy.length) };
  // Checks the unparsed address: the parser resolves dot segments, which changes the address.
  refuseDots(address.replace(/^[^:]*:\/\/[^/\\?#]*/, ''));
  const { href, origin, pathname, search } = new URL(address);
  const base = await readBase();
  // The service accepts a complete URL after `/proxy/`, and compares it with the base URL of this connection.
  if (base === undefined || base.includes('${')) return { path: `/${href}` };
  const rest = href.startsWith(base) ? href.slice(base.length) : undefined;
  if (rest !== undefined && /^([/?]|$)/.test(rest)) {
    return { path: rest.startsWith('/') ? rest : `/${rest}` };
  }
  return { path: pathname + search, override: origin };
}

/** The complete URL. Throws if a URL parser would resolve it to another route of the service, which would get the key. */
function proxyUrl(proxy: string, path: string): string {
  refuseDots(path);
  const url = proxy + path;
  if (!new URL(url).href.startsWith(`${new URL(proxy).href}/`)) throw dotSegments(path);
  return url;
}

function refuseDots(path: string): void {
  const [pathname = ''] = path.split(/[?#]/, 1);
  if (/(^|[/\\])(\.|%2e){1,2}([/\\;]|$)/i.test(pathname)) throw dotSegments(path);
}

const dotSegments = (path: string) =>
  new TypeError(`"${path}" has dot segments, and would resolve to another address.`);

/**
 * The base URL of the provider without a trailing slash; undefined if the service refuses it, because the proxy will return the
 * same error. Throws a `TypeError` if the service cannot be reached or the key lacks the scope.
 */
function baseOf(
  { providerUrls, integration, baseUrl }: ProxiedConnection,
  signal: AbortSignal | undefined,
): Promise<string | undefined> {
  if (baseUrl !== undefined) return Promise.resolve(withoutSlash(baseUrl));
  return providerUrls.get(integration, signal).catch((error: unknown) => {
    if (!isTrellisError(error)) throw error;
    if (isTrellisError(error, 'forbidden', 'invalid_ticket'))
      throw new TypeError(baseUrlRequired, { cause: error });
    if (error.status === 0) throw new TypeError(error.message, { cause: error });
    return undefined;
  });
}
const baseUrlRequired = 'This key may not read the base URL of the provider. Set `baseUrl`, or pass a path.';

/** The time for which a base URL is cached; an integration may get another one. */
const cacheMs = 5 * 60_000;

type CachedUrl = { url: Promise<string>; expiresAt: number; callers: number; request: AbortController };

/** The base URLs of the providers of integrations. All connections of a client share one request for each integration. */
export class ProviderUrls {
  readonly #transport: Transport;
  readonly #cache = new Map<string, CachedUrl>();

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Returns a URL without a trailing slash. A `${...}` in it stands for a setting of the connection. Throws `TrellisError`,
   * or the signal's reason. The request is aborted once no caller waits for it.
   */
  async get(integration: string, signal: AbortSignal | undefined): Promise<string> {
    signal?.throwIfAborted();
    const cached = this.#cache.get(integration);
    const entry = cached !== undefined && Date.now() < cached.expiresAt ? cached : this.#request(integration);
    entry.callers += 1;
    try {
      return await unlessAborted(entry.url, signal);
    } finally {
      entry.callers -= 1;
      if (entry.callers === 0 && signal?.aborted && entry.expiresAt === Number.POSITIVE_INFINITY) {
        this.#remove(integration, entry);
        entry.request.abort();
      }
    }
  }

  #request(integration: string): CachedUrl {
    const request = new AbortController();
    const url = this.#fetch(integration, request.signal);
    const entry: CachedUrl = { url, expiresAt: Number.POSITIVE_INFINITY, callers: 0, request };
    this.#cache.set(integration, entry);
    url.then(
      () => {
        entry.expiresAt = Date.now() + cacheMs;
      },
      () => this.#remove(integration, entry),
    );
    return entry;
  }

  #remove(integration: string, entry: CachedUrl): void {
    if (this.#cache.get(integration) === entry) this.#cache.delete(integration);
  }

  async #fetch(integration: string, signal: AbortSignal): Promise<string> {
    const { data } = await this.#transport.json<Answer<'GET /integrations/{key}'>>({
      route: 'GET /integrations/{key}',
      path: { key: integration },
      signal,
    });
    const provider = await this.#transport.json<Answer<'GET /providers/{provider}'>>({
      route: 'GET /providers/{provider}',
      path: { provider: data.provider },
      signal,
    });
    const { base_url = '' } = (provider.data.proxy ?? {}) as { base_url?: string };
    // Settings of the integration, such as a host.
    const resolved = base_url.replace(
      /\$\{integrationConfig\.(\w+)\}/g,
      (placeholder, name: string) => data.integration_config[name] ?? placeholder,
    );
    return withoutSlash(resolved);
  }
}

function withoutSlash(url: string): string {
  return url.replace(/\/+$/, '');
}
