/** Requests of customer code to public addresses: without credentials of the service, and without retries. */
import { AppError } from '../../errors.ts';
import type { Outbound } from '../../outbound/outbound.ts';
import { withBody } from './large-body.ts';

type OutsideRequest = {
  url: string;
  method: string;
  headers: Record<string, string>;
  body: AsyncIterable<Uint8Array> | undefined;
  signal: AbortSignal;
};

const maxRedirects = 5;
const maxBodyBytes = 10 * 1024 * 1024;
const timeoutMs = 60_000;
/** Headers that are not sent to another origin. */
const ofOneOrigin = new Set(['authorization', 'cookie', 'proxy-authorization']);
/** Headers of a body, for a redirect that does not repeat the body (WHATWG Fetch §4.4, step 12). */
const ofBody = new Set(['content-encoding', 'content-language', 'content-location', 'content-type']);
/** Headers that the HTTP client sets. */
const framing = new Set([
  'connection',
  'content-length',
  'host',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** Follows at most five redirects, as fetch does (WHATWG Fetch §4.4). Throws `address_not_allowed`, `upstream_timeout`. */
export async function outsideFetch(fetch: Outbound['fetchWhole'], request: OutsideRequest) {
  if (request.body === undefined) return fetchFollowing(fetch, { ...request, body: undefined });
  const { signal } = request;
  const limits = { maxBytes: maxBodyBytes, signal, tooLarge };
  return withBody(request.body, limits, (bytes) =>
    fetchFollowing(fetch, { ...request, body: bytes.toString('utf8') }),
  );
}

async function fetchFollowing(
  fetch: Outbound['fetchWhole'],
  { body, ...request }: Omit<OutsideRequest, 'body'> & { body: string | undefined },
) {
  const signal = AbortSignal.any([request.signal, AbortSignal.timeout(timeoutMs)]);
  let url = new URL(request.url);
  let { method, headers } = { ...request, headers: without(request.headers, framing) };
  let sent = method === 'GET' || method === 'HEAD' ? undefined : body;
  for (let redirects = 0; ; redirects++) {
    const init = {
      method,
      headers,
      ...(sent !== undefined && { body: sent }),
      redirect: 'manual',
      signal,
    } as const;
    const answer = await fetch(url.href, init).catch((error: unknown) => {
      if (signal.aborted && !request.signal.aborted)
        throw new AppError('upstream_timeout', undefined, { cause: error });
      if (error instanceof AppError) throw error;
      throw new AppError('upstream_unreachable', 'The address could not be reached.', { cause: error });
    });
    const { status } = answer;
    const location = answer.headers.get('location');
    const isRedirect = [301, 302, 303, 307, 308].includes(status) && location !== null;
    if (!isRedirect || redirects === maxRedirects) {
      return {
        status,
        statusText: '',
        url: url.href,
        headers: Object.fromEntries(answer.headers.entries()),
        body: answer.body ?? nothing(),
      };
    }
    // Drains the body of the redirect.
    for await (const _part of answer.body ?? nothing()) if (signal.aborted) break;
    const next = URL.parse(location, url);
    if (next === null || !/^https?:$/.test(next.protocol)) {
      throw new AppError('upstream_unreadable', 'The address redirects to an invalid address.');
    }
    if (next.origin !== url.origin) {
      headers = without(headers, ofOneOrigin);
    }
    if ((status === 303 && method !== 'HEAD') || (method === 'POST' && status < 303)) {
      [method, sent] = ['GET', undefined];
      headers = without(headers, ofBody);
    }
    url = next;
  }
}

function without(headers: Record<string, string>, names: ReadonlySet<string>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !names.has(name.toLowerCase())));
}

const tooLarge = () => new AppError('body_too_large', 'A body of uncontrolledFetch has at most 10 MB.');

async function* nothing(): AsyncGenerator<Uint8Array> {}
