/**
 * `fetch` for one connection: what is asked of the provider goes through the proxy, which adds the user's credentials.
 *
 * Owns which address a call goes to and which headers need the prefix under which any header passes. Does not own retries,
 * quotas and time limits: the service has them, by headers such as `Retries` and `Quota-Wait`.
 */
import { isTrellisError } from './errors.ts';
import type { Answer } from './route-call.ts';
import type { Fetch, Transport } from './transport.ts';

export type ProxiedConnection = {
  transport: Transport;
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
 * address that the integration does not allow. It rejects as `fetch` does, and with a `TypeError` for a path with dot
 * segments, and for a whole address where neither the key may ask nor `baseUrl` says which are the provider's.
 *
 * Bodies stream both ways. That of a `Request` is read whole first, since not every platform lets it go on.
 */
export function proxiedFetch(connection: ProxiedConnection): Fetch {
  const { transport, integration, connectionId } = connection;
  const proxy = `${transport.url}/proxy`;
  const baseOf = knownBase(connection);
  return async (input, init = {}) => {
    // By its form: whoever brings a `fetch` of his own may bring a Request, too.
    const request = typeof input === 'object' && 'url' in input ? input : undefined;
    const given = init.headers ?? request?.headers;
    const headers = headersFor(connection, new Headers(given));
    headers.set('connection-id', connectionId);
    headers.set('provider-config-key', integration);
    const { path, override } = await addressed(request?.url ?? String(input), { proxy, baseOf });
    if (override !== undefined) headers.set('base-url-override', override);
    const url = within(proxy, path);
    const body = init.body ?? (await bodyOf(request));
    return transport.fetchWithKey(url, {
      ...(request && { method: request.method, signal: request.signal, redirect: request.redirect }),
      ...init,
      headers,
      // Where a body streams, platforms want it said that the answer comes behind its end.
      ...(body !== null && { body, duplex: 'half' }),
    });
  };
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
  { proxy, baseOf }: { proxy: string; baseOf: () => Promise<string> },
): Promise<Addressed> {
  // A parser takes them out wherever they stand.
  const address = asked.replace(/[\t\n\r]/g, '').trim();
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(address)) {
    return { path: address.startsWith('/') ? address : `/${address}` };
  }
  if (address.startsWith(`${proxy}/`)) return { path: address.slice(proxy.length) };
  const base = await baseOf();
  const { href, origin, pathname, search } = new URL(address);
  // Filled in for each connection by the service, which takes a whole address behind `/proxy/` that begins so.
  if (base.includes('${')) return { path: `/${href}` };
  const behind = href.startsWith(base) ? href.slice(base.length) : undefined;
  if (behind !== undefined && /^([/?]|$)/.test(behind)) {
    return { path: behind.startsWith('/') ? behind : `/${behind}` };
  }
  return { path: pathname + search, override: origin };
}

/** The whole address. Throws where a parser would lead out of the provider, and with our key to another route of ours. */
function within(proxy: string, path: string): string {
  const [before = ''] = path.split(/[?#]/, 1);
  const hasDots = /(^|[/\\])(\.|%2e){1,2}([/\\;]|$)/i.test(before);
  const url = proxy + path;
  if (hasDots || !new URL(url).href.startsWith(`${new URL(proxy).href}/`))
    throw new TypeError(`"${path}" has dot segments, and would lead to another address than it says.`);
  return url;
}

/** The provider's address without a slash at the end, asked for once. */
function knownBase({ transport, integration, baseUrl }: ProxiedConnection): () => Promise<string> {
  const trimmed = (address: string) => address.replace(/\/+$/, '');
  let asked: Promise<string> | undefined =
    baseUrl === undefined ? undefined : Promise.resolve(trimmed(baseUrl));
  const ask = async () => {
    try {
      const { data } = await transport.json<Answer<'GET /integrations/{key}'>>({
        ...{ route: 'GET /integrations/{key}', path: { key: integration } },
      });
      const found = await transport.json<Answer<'GET /providers/{provider}'>>({
        ...{ route: 'GET /providers/{provider}', path: { provider: data.provider } },
      });
      const { base_url = '' } = (found.data.proxy ?? {}) as { base_url?: string };
      // A setting of the integration, such as a host.
      const filled = base_url.replace(
        /\$\{integrationConfig\.(\w+)\}/g,
        (whole, name: string) => data.integration_config[name] ?? whole,
      );
      return trimmed(filled);
    } catch (error) {
      if (!isTrellisError(error, 'forbidden', 'invalid_ticket')) throw error;
      const message =
        'This key may not ask for the address of the provider: name it as `baseUrl`, or call paths.';
      throw new TypeError(message, { cause: error });
    }
  };
  return () => {
    asked ??= ask().catch((error: unknown) => {
      asked = undefined;
      throw error;
    });
    return asked;
  };
}
