/**
 * `fetch` for one connection: what is asked of the provider goes through the proxy, which adds the user's credentials.
 *
 * Owns which address a call goes to and which headers need the prefix under which any header passes. Does not own retries,
 * quotas and time limits: the service has them, by headers such as `Retries` and `Quota-Wait`.
 */
import { isTrellisError } from './errors.ts';
import { type ProviderAddresses, withoutSlash } from './provider-addresses.ts';
import type { Fetch, Transport } from './transport.ts';

export type ProxiedConnection = {
  transport: Transport;
  addresses: ProviderAddresses;
  brand: string;
  integration: string;
  connectionId: string;
  /** The provider's own address, where whole addresses are called without asking the service for it. */
  baseUrl: string | undefined;
};

/** Pass under their own names; all others that a caller sets take the prefix. */
const passed =
  /^(accept|accept-encoding|accept-language|cache-control|content-.*|digest|idempotency-key|if-.*|last-event-id|mcp-.*|prefer|range|te|user-agent|x-goog-api-client|x-goog-fieldmask|x-goog-upload-.*|x-upload-content-.*)$/;
/** What the proxy is asked, not the provider. */
const forProxy = /^(base-url-override|decompress|quota-wait|retries|retry-on|timeouts)$/;
/** The service says these itself, or nobody may. */
const dropped = /^(authorization|cookie|connection-id|host|origin|provider-config-key|referer)$/;

/**
 * Has the form of `fetch` and can be given to whatever takes one. It takes a path of the provider's or a whole address, and
 * answers what the provider did: an error of Trellis is an answer too, which `errorOf` tells apart, such as that for an
 * address that the integration does not allow. It rejects as `fetch` does, and with a `TypeError` for an address with dot
 * segments (a `URL` and a `Request` have resolved theirs), and for a whole address where neither the key may ask nor
 * `baseUrl` says which are the provider's.
 *
 * Bodies stream both ways. That of a `Request` is read whole first, since not every platform lets it go on.
 */
export function proxiedFetch(connection: ProxiedConnection): Fetch {
  const { transport, integration, connectionId } = connection;
  const proxy = `${transport.url}/proxy`;
  return async (input, init = {}) => {
    // By its properties, not by `instanceof`: a caller with its own `fetch` may pass its own Request class.
    const request = typeof input === 'object' && 'url' in input ? input : undefined;
    const given = init.headers ?? request?.headers;
    const headers = headersFor(connection, new Headers(given));
    headers.set('connection-id', connectionId);
    headers.set('provider-config-key', integration);
    const signal = (init.signal === undefined ? request?.signal : init.signal) ?? undefined;
    const base = () => baseOf(connection, signal);
    const { path, override } = await addressed(request?.url ?? String(input), { proxy, base });
    if (override !== undefined) headers.set('base-url-override', override);
    const url = within(proxy, path);
    const body = init.body ?? (await bodyOf(request));
    return transport.fetchWithKey(url, {
      ...(request && { method: request.method, signal: request.signal, redirect: request.redirect }),
      ...withoutUndefined(init),
      headers,
      // Where a body streams, platforms want it said that the answer comes behind its end.
      ...(body !== null && { body, duplex: 'half' }),
    });
  };
}

/** To a platform what is undefined says nothing; here it would hide what a `Request` says. */
function withoutUndefined(init: RequestInit): RequestInit {
  return Object.fromEntries(Object.entries(init).filter(([, value]) => value !== undefined));
}

async function bodyOf(request: Request | undefined): Promise<ArrayBuffer | null> {
  return request?.body == null ? null : request.arrayBuffer();
}

function headersFor({ brand }: ProxiedConnection, given: Headers): Headers {
  const headers = new Headers();
  const isOurs = (name: string) =>
    forProxy.test(name) || name.startsWith(`${brand}-`) || name.startsWith(`x-${brand}-`);
  for (const [name, value] of given) {
    if (dropped.test(name)) continue;
    const isAsItIs = passed.test(name) || isOurs(name);
    headers.set(isAsItIs ? name : `${brand}-proxy-${name}`, value);
  }
  return headers;
}

type Addressed = { path: string; override?: string };

/** The path behind `/proxy` for a path of the provider's, or for a whole address. */
async function addressed(
  asked: string,
  { proxy, base: ask }: { proxy: string; base: () => Promise<string | undefined> },
): Promise<Addressed> {
  // A parser takes them out wherever they stand.
  const address = asked.replace(/[\t\n\r]/g, '').trim();
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(address)) {
    return { path: address.startsWith('/') ? address : `/${address}` };
  }
  if (address.startsWith(`${proxy}/`)) return { path: address.slice(proxy.length) };
  // As it was given: parsed it has none left, and is another address than it says.
  refuseDots(address.replace(/^[^:]*:\/\/[^/\\?#]*/, ''));
  const { href, origin, pathname, search } = new URL(address);
  const base = await ask();
  // The service takes a whole address behind `/proxy/`: it knows the provider's, also one that each connection has its own of.
  if (base === undefined || base.includes('${')) return { path: `/${href}` };
  const behind = href.startsWith(base) ? href.slice(base.length) : undefined;
  if (behind !== undefined && /^([/?]|$)/.test(behind)) {
    return { path: behind.startsWith('/') ? behind : `/${behind}` };
  }
  return { path: pathname + search, override: origin };
}

/** The whole address. Throws where a parser would lead out of the provider, and with our key to another route of ours. */
function within(proxy: string, path: string): string {
  refuseDots(path);
  const url = proxy + path;
  if (!new URL(url).href.startsWith(`${new URL(proxy).href}/`)) throw dotted(path);
  return url;
}

function refuseDots(path: string): void {
  const [before = ''] = path.split(/[?#]/, 1);
  if (/(^|[/\\])(\.|%2e){1,2}([/\\;]|$)/i.test(before)) throw dotted(path);
}

const dotted = (path: string) =>
  new TypeError(`"${path}" has dot segments, and would lead to another address than it says.`);

/**
 * The provider's address without a slash at the end; undefined where the service refuses to tell, and so will the proxy. Throws
 * a `TypeError` where the service is away, or the key may not ask.
 */
function baseOf(
  { addresses, integration, baseUrl }: ProxiedConnection,
  signal: AbortSignal | undefined,
): Promise<string | undefined> {
  if (baseUrl !== undefined) return Promise.resolve(withoutSlash(baseUrl));
  return addresses.of(integration, signal).catch((error: unknown) => {
    if (!isTrellisError(error)) throw error;
    if (isTrellisError(error, 'forbidden', 'invalid_ticket'))
      throw new TypeError(mayNotAsk, { cause: error });
    if (error.status === 0) throw new TypeError(error.message, { cause: error });
    return undefined;
  });
}
const mayNotAsk =
  'This key may not ask for the address of the provider: name it as `baseUrl`, or call paths.';
