/**
 * Which headers pass between the caller and the provider, in both directions. Pure. Names keep their case, and repeated
 * headers stay repeated.
 */
import { STATUS_CODES } from 'node:http';
import type { Brand } from '../brand.ts';
import { decodedBytes, decodedPair, withoutPairs } from '../http/query.ts';
import { normalizedHeaderName } from '../providers/credential-header.ts';
import type { ProviderDefinition } from '../providers/definition.ts';

/** The head of the provider's response. */
export type Head = { readonly status: number; readonly statusText: string; readonly rawHeaders: string[] };

/** The first value of a header in a list of names and values, by its name in lower case. */
export function firstValue(rawHeaders: readonly string[], name: string): string | undefined {
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const found = rawHeaders[at] as string;
    if (found.length === name.length && found.toLowerCase() === name) return rawHeaders[at + 1];
  }
  return undefined;
}

/** The headers without those of these names (lower case). */
function without(rawHeaders: readonly string[], names: ReadonlySet<string>): string[] {
  const kept: string[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    if (!names.has(name.toLowerCase())) kept.push(name, rawHeaders[at + 1] as string);
  }
  return kept;
}

/** Whether a Transfer-Encoding is only `chunked`, which each hop decodes. */
export function isChunked(transferEncoding: string): boolean {
  return transferEncoding === 'chunked' || transferEncoding.trim().toLowerCase() === 'chunked';
}

/** Headers for one hop only (RFC 9110 §7.6.1, RFC 9113 §8.2.2). */
const hopByHop: ReadonlySet<string> = new Set([
  'connection', 'http2-settings', 'keep-alive', 'proxy-authenticate', 'proxy-authentication-info',
  'proxy-authorization', 'proxy-connection', 'transfer-encoding', 'upgrade',
]); // biome-ignore format: a list reads better in lines

/** Headers that describe the bytes of a body, and are wrong for other bytes (RFC 9530, RFC 3230). */
const describeBytes: ReadonlySet<string> = new Set([
  'content-length', 'content-md5', 'content-digest', 'digest', 'repr-digest',
]); // biome-ignore format: a list reads better in lines

/** Names that `Connection` declares to be for this hop (RFC 9110 §7.6.1), in lower case; undefined: none. */
function listedByConnection(rawHeaders: readonly string[]): Set<string> | undefined {
  let names: Set<string> | undefined;
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    if (name.length !== 10 || name.toLowerCase() !== 'connection') continue;
    const value = (rawHeaders[at + 1] as string).toLowerCase();
    if (value === 'keep-alive' || value === 'close') continue;
    names ??= new Set();
    for (const listed of value.split(',')) names.add(listed.trim());
  }
  // Both define how the message is parsed; a connection option cannot remove them.
  names?.delete('content-length');
  names?.delete('content-type');
  return names;
}

/** Limits the memory that a caller with invented header names can use. */
const maxNames = 500;

/** The rule for each header name, computed once a name. */
class HeaderPolicy<Rule extends NonNullable<unknown>> {
  readonly #compute: (name: string) => Rule;
  readonly #known = new Map<string, Rule>();

  constructor(compute: (name: string) => Rule) {
    this.#compute = compute;
  }

  of(name: string): Rule {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    const rule = this.#compute(name);
    if (this.#known.size >= maxNames) this.#known.clear();
    this.#known.set(name, rule);
    return rule;
  }
}

/** Passed to the provider unchanged. An entry with a `*` matches every name with that prefix. */
const passed = [
  'accept', 'accept-encoding', 'accept-language', 'cache-control', 'content-*', 'digest', 'idempotency-key', 'if-*',
  'last-event-id', 'mcp-*', 'prefer', 'range', 'te', 'user-agent', 'x-goog-api-client', 'x-goog-fieldmask',
  'x-goog-upload-*', 'x-upload-content-*',
]; // biome-ignore format: a list reads better in lines
const passedNames = new Set(passed.filter((name) => !name.endsWith('*')));
const passedPrefixes = passed.filter((name) => name.endsWith('*')).map((name) => name.slice(0, -1));

/** Headers that identify the caller, its location or its browser. The provider never gets them. */
const neverSent = new Set([
  'authorization', 'cookie', 'cookie2', 'forwarded', 'host', 'origin', 'referer',
  // Our own headers.
  'base-url-override', 'connection-id', 'decompress', 'integration-id', 'provider-config-key', 'quota-wait', 'retries',
  'retry-on', 'timeouts',
  // The proxy answers it: a client that waits for a 100 waits until the body is read, which the proxy does.
  'expect',
]); // biome-ignore format: a list reads better in lines

/** Headers that define where the message ends: only the message itself may set them. */
const framing = new Set(['content-length', 'te', 'trailer']);

/** The header is passed, dropped, passed under another name, or `te`: its value decides. */
type RequestHeaderRule = 'passes' | 'drops' | 'te' | { readonly as: string };

/** The rules for request headers of one connection. All its calls share them, so each name is examined once. */
export class RequestHeaderRules {
  readonly #placed: readonly string[];
  readonly #policy: HeaderPolicy<RequestHeaderRule>;

  /** `placed` are the headers of the connection's credentials; the caller's headers of these names are dropped. */
  constructor(
    placed: Readonly<Record<string, string>>,
    { brand, api }: { brand: Brand; api: Pick<ProviderDefinition['api'], 'forbid' | 'pass_headers'> },
  ) {
    const dropped = new Set([...api.forbid.headers, ...Object.keys(placed)].map(normalizedHeaderName));
    const passesToo = new Set(api.pass_headers.map((name) => name.toLowerCase()));
    const own = [`${brand.word}-`, `x-${brand.word}-`, 'x-forwarded-'];
    const prefix = brand.proxyHeaderPrefix;
    const isNever = (name: string) =>
      hopByHop.has(name) ||
      neverSent.has(name) ||
      dropped.has(name) ||
      own.some((start) => name.startsWith(start));
    this.#placed = Object.entries(placed).flat();
    this.#policy = new HeaderPolicy((name) => {
      const lower = name.toLowerCase();
      if (lower.startsWith(prefix)) {
        const wanted = lower.slice(prefix.length);
        const read = normalizedHeaderName(wanted);
        const isRefused = !isToken(wanted) || isNever(read) || framing.has(read);
        return isRefused ? 'drops' : { as: name.slice(prefix.length) };
      }
      if (isNever(normalizedHeaderName(lower)) || !(isPassed(lower) || passesToo.has(lower))) return 'drops';
      return lower === 'te' ? 'te' : 'passes';
    });
  }

  /** The caller's headers as the provider gets them, with those of the credentials. */
  headers(rawHeaders: readonly string[]): string[] {
    const sent: string[] = [];
    const renamed: string[] = [];
    const listed = listedByConnection(rawHeaders);
    for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
      const name = rawHeaders[at] as string;
      const value = rawHeaders[at + 1] as string;
      const rule = this.#policy.of(name);
      if (rule === 'drops') continue;
      if (typeof rule === 'object') {
        if (!listed?.has(rule.as.toLowerCase())) renamed.push(rule.as, value);
        // The caller would get transfer codings other than chunked undecoded and unannounced.
      } else if (rule === 'passes' || value.trim().toLowerCase() === 'trailers') {
        if (!listed?.has(name.toLowerCase())) sent.push(name, value);
      }
    }
    // A prefixed header replaces the header that the client adds automatically.
    const kept = renamed.length === 0 ? sent : without(sent, namesOf(renamed));
    kept.push(...renamed, ...this.#placed);
    return kept;
  }
}

function namesOf(flat: readonly string[]): Set<string> {
  return new Set(flat.filter((_, at) => at % 2 === 0).map((name) => name.toLowerCase()));
}

function isPassed(name: string): boolean {
  return passedNames.has(name) || passedPrefixes.some((start) => name.startsWith(start));
}

function isToken(name: string): boolean {
  return /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name);
}

/** The headers of a request whose body was replaced. */
export function withBodyLength(rawHeaders: readonly string[], sizeBytes: number): string[] {
  return [...without(rawHeaders, describeBytes), 'content-length', String(sizeBytes)];
}

/** The headers of a request that is signed. */
export function withSignature(rawHeaders: readonly string[], signature: Record<string, string>): string[] {
  return [...without(rawHeaders, new Set(Object.keys(signature))), ...Object.entries(signature).flat()];
}

/** `links` hold addresses; `coding` defines how the message is framed. */
type ResponseHeaderRule = 'kept' | 'dropped' | 'location' | 'links' | 'coding';

/** The request that a response answers. */
type ResponseSource = {
  readonly origin: string;
  readonly path: string;
  /** The credentials in the query, which the caller must never get; empty: none. */
  readonly placed: { readonly query: string };
  /** The part of the path that contains credentials, as it was sent; absent: none. */
  readonly secretPath?: string;
};

/**
 * Fields that are not allowed in trailers (RFC 9110 §6.5.1): they define framing, encoding, caching or redirects, or affect
 * the whole origin.
 */
const neverTrailers = new Set([
  'age', 'authorization', 'cache-control', 'clear-site-data', 'content-encoding', 'content-length', 'content-range',
  'content-security-policy', 'content-type', 'date', 'expires', 'host', 'retry-after', 'set-cookie', 'set-cookie2',
  'strict-transport-security', 'vary', 'warning', 'www-authenticate',
]); // biome-ignore format: a list reads better in lines

/** The rules for headers and trailers of responses. The code that writes a response adds our own (CORS). */
export class ResponseHeaderRules {
  readonly #policy: HeaderPolicy<ResponseHeaderRule>;

  constructor(brand: Brand) {
    const marker = brand.header('Error').toLowerCase();
    this.#policy = new HeaderPolicy((name) => responseRuleOf(name.toLowerCase(), marker));
  }

  /**
   * The provider's headers as the caller gets them. A Location without a host is made absolute; credentials are removed
   * from addresses. Throws if the message has a transfer coding other than chunked (RFC 9112 §6.1): the caller would
   * misread its bytes.
   */
  headers(rawHeaders: readonly string[], from: ResponseSource): string[] {
    const listed = listedByConnection(rawHeaders);
    const kept: string[] = [];
    for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
      const name = rawHeaders[at] as string;
      const value = rawHeaders[at + 1] as string;
      const rule = this.#policy.of(name);
      if (rule === 'coding') requireChunked(value);
      else if (rule === 'dropped' || listed?.has(name.toLowerCase())) continue;
      else if (rule === 'kept') kept.push(name, value);
      else kept.push(name, withoutPlaced(rule === 'location' ? absolute(value, from) : value, from));
    }
    return kept;
  }

  /** As `headers`, for trailers. Trailers that Node cannot send are dropped, which HTTP allows for all trailers. */
  trailers(rawTrailers: readonly string[]): [string, string][] {
    const kept: [string, string][] = [];
    for (let at = 0; at + 1 < rawTrailers.length; at += 2) {
      const name = rawTrailers[at] as string;
      const value = rawTrailers[at + 1] as string;
      const isKept = this.#policy.of(name) === 'kept' && !neverTrailers.has(name.toLowerCase());
      if (isKept && isSendable(value)) kept.push([name, value]);
    }
    return kept;
  }
}

function responseRuleOf(name: string, marker: string): ResponseHeaderRule {
  if (name === 'transfer-encoding') return 'coding';
  if (name === 'location') return 'location';
  if (name === 'link' || name === 'content-location' || name === 'refresh') return 'links';
  // Trailers are relayed without their announcement: a caller with HTTP/1.0 gets none.
  const isDropped =
    hopByHop.has(name) ||
    ['te', 'trailer', 'alt-svc', marker].includes(name) ||
    name.startsWith('access-control-');
  return isDropped ? 'dropped' : 'kept';
}

/** A redirect without a host would lead the caller to this service. An absolute one stays unchanged. */
function absolute(location: string, { origin, path }: { origin: string; path: string }): string {
  if (/^[a-z][a-z0-9+.-]*:/i.test(location)) return location;
  if (location.startsWith('/') && !/^\/[/\\]/.test(location)) return origin + location;
  return URL.parse(location, origin + path)?.href ?? location;
}

function requireChunked(coding: string): void {
  if (!isChunked(coding)) throw new Error('the response has a transfer coding besides chunked');
}

/** Removes the credentials from the addresses in a text; a provider may repeat them. */
function withoutPlaced(text: string, from: ResponseSource): string {
  const { placed, secretPath = '' } = from;
  if (secretPath !== '') return withoutSecretPath(text, secretPath);
  if (placed.query === '') return text;
  const secret = decodedPair(placed.query);
  return text.replace(/\?[^\s#<>"]*/g, (query) =>
    withoutPairs(query, (pair) => decodedPair(pair) === secret),
  );
}

/** Empty if the credentials are still there in another spelling. */
function withoutSecretPath(text: string, secretPath: string): string {
  const secret = decodedBytes(secretPath);
  const cut = text.replaceAll(secretPath, '').replaceAll(secret, '');
  return decodedBytes(decodedBytes(cut)).includes(secret) ? '' : cut;
}

/** Node parses more characters than it sends. */
function isSendable(value: string): boolean {
  return /^[\t\x20-\x7e\x80-\xff]*$/.test(value);
}

const contentLength = new Set(['content-length']);

/** Removes the length of an interim response or a 204, which have no body (RFC 9110 §8.6). */
export function withoutLength(rawHeaders: readonly string[]): string[] {
  return without(rawHeaders, contentLength);
}

/** The provider's headers for the body that the caller gets. */
export function headersOf({ status, rawHeaders }: Head, isDecoded: boolean): string[] {
  if (isDecoded) return withoutEncoding(rawHeaders);
  // A caller that trusts a length would wait for the body.
  return status === 204 ? withoutLength(rawHeaders) : rawHeaders;
}

const describeEncoding = new Set([...describeBytes, 'content-encoding', 'accept-ranges']);

/**
 * The headers for a body that is decoded on its way: length, coding and checksums of the encoded body are removed, and a
 * strong ETag, which names exact bytes, becomes a weak one (RFC 9110 §8.8.1).
 */
function withoutEncoding(rawHeaders: readonly string[]): string[] {
  const kept = without(rawHeaders, describeEncoding);
  for (let at = 0; at + 1 < kept.length; at += 2) {
    const value = kept[at + 1] as string;
    if (kept[at]?.toLowerCase() === 'etag' && value.startsWith('"')) kept[at + 1] = `W/${value}`;
  }
  return kept;
}

/** The reason phrase; empty if it has characters that Node does not send, since undici decodes it as UTF-8. */
export function reasonOf({ status, statusText }: Head): string {
  return statusText === STATUS_CODES[status] || /^[\t\x20-\x7e]*$/.test(statusText) ? statusText : '';
}

/** The announced length of the body. The length in a response to HEAD, and in a 304, describes another (RFC 9110 §8.6). */
export function announcedBytes({ status, rawHeaders }: Head, method: string): number {
  return method === 'HEAD' || status === 304 ? 0 : Number(firstValue(rawHeaders, 'content-length') ?? 0);
}

/**
 * Headers that affect everything on our address, the dashboard included: data that the browser stores for it, keys and
 * hints that it sends there, and reports about it (https://www.w3.org/TR/network-error-logging/,
 * https://www.w3.org/TR/reporting-1/).
 */
const affectsOrigin = new Set([
  'accept-ch', 'activate-storage-access', 'clear-site-data', 'critical-ch', 'expect-ct', 'nel', 'origin-agent-cluster',
  'public-key-pins', 'public-key-pins-report-only', 'refresh', 'report-to', 'reporting-endpoints',
  'service-worker-allowed', 'set-cookie', 'set-cookie2', 'set-login', 'shared-storage-write', 'speculation-rules',
  'strict-transport-security', 'use-as-dictionary',
]); // biome-ignore format: a list reads better in lines
/** As `affectsOrigin`, by family: attribution and auctions of advertisements, and sessions bound to a device. */
const familiesAffectOrigin =
  /^(?:attribution-reporting-.*|ad-auction-.*|.*-session-registration|.*-session-challenge)$/;

/** The response headers for a caller with a ticket: the response can neither affect our address nor run scripts on it. */
export function shieldedHeaders(headers: readonly string[]): string[] {
  const kept: string[] = [];
  for (let at = 0; at + 1 < headers.length; at += 2) {
    const name = headers[at] as string;
    const lower = name.toLowerCase();
    if (!affectsOrigin.has(lower) && !familiesAffectOrigin.test(lower)) {
      kept.push(name, headers[at + 1] as string);
    }
  }
  kept.push('content-security-policy', 'sandbox');
  return kept;
}

/**
 * As `shieldedHeaders`, for a page of the dashboard. Location becomes X-<Brand>-Location: a browser would follow a Location
 * to our own address with the method, body and cookie of the call, and with all headers that identify a page of the service.
 */
export function headersForPage(headers: readonly string[], brand: Brand): string[] {
  const shielded = shieldedHeaders(headers);
  return shielded.map((text, at) =>
    at % 2 === 0 && text.toLowerCase() === 'location' ? brand.header('Location').toLowerCase() : text,
  );
}
