/**
 * Which headers pass through the proxy, in both directions. Pure. Lists are flat, names and values in turn, as Node
 * gives and takes them, so that repeated headers stay repeated and names keep their case.
 */
import type { Brand } from '../brand.ts';
import type { ProviderDefinition } from '../providers/definition.ts';

/** Go on as the caller sent them. An entry with a `*` stands for every name that begins so. */
const passed = [
  'accept', 'accept-encoding', 'accept-language', 'cache-control', 'content-*', 'digest', 'idempotency-key', 'if-*',
  'last-event-id', 'mcp-*', 'prefer', 'range', 'te', 'trailer', 'user-agent', 'x-goog-api-client', 'x-goog-fieldmask',
  'x-goog-upload-*', 'x-upload-content-*',
]; // biome-ignore format: a list reads better in lines
const passedNames = new Set(passed.filter((name) => !name.endsWith('*')));
const passedPrefixes = passed.filter((name) => name.endsWith('*')).map((name) => name.slice(0, -1));

/** Between two neighbours only (RFC 9110 §7.6.1, RFC 9113 §8.2.2). */
const hopByHop = new Set([
  'connection', 'http2-settings', 'keep-alive', 'proxy-authenticate', 'proxy-authentication-info',
  'proxy-authorization', 'proxy-connection', 'transfer-encoding', 'upgrade',
]); // biome-ignore format: a list reads better in lines

/** Who the caller is, where it is, and how its browser came here: never the provider's business. */
const neverSent = new Set([
  'authorization', 'cookie', 'cookie2', 'forwarded', 'host', 'origin', 'referer',
  // Ours
  'base-url-override', 'connection-id', 'decompress', 'forward-headers-on-redirect', 'provider-config-key',
  'quota-wait', 'retries', 'retry-on',
  // Answered by us: what waits for a 100 is waiting for whoever reads the body, and that is the proxy.
  'expect',
]); // biome-ignore format: a list reads better in lines

/** They say where the message ends, which only the message itself may. */
const framing = new Set(['content-length', 'te', 'trailer']);

export type RequestRules = {
  readonly brand: Brand;
  readonly definition: Pick<ProviderDefinition, 'api'>;
  /** What the connection's credentials put there; the caller's headers of these names are dropped. */
  readonly placed: Readonly<Record<string, string>>;
};

/** The headers for the provider out of those that came in. */
export function requestHeaders(rawHeaders: readonly string[], rules: RequestRules): string[] {
  const { brand, definition, placed } = rules;
  const prefix = brand.proxyHeaderPrefix;
  const dropped = new Set([...definition.api.forbid.headers, ...listedByConnection(rawHeaders)]);
  for (const name of Object.keys(placed)) dropped.add(name.toLowerCase());
  const own = [`${brand.word}-`, `x-${brand.word}-`, 'x-forwarded-'];
  const isNever = (name: string) =>
    hopByHop.has(name) ||
    neverSent.has(name) ||
    dropped.has(name) ||
    own.some((start) => name.startsWith(start));
  const passesToo = new Set(definition.api.pass_headers.map((name) => name.toLowerCase()));

  const plain: [string, string, string][] = [];
  const prefixed: [string, string][] = [];
  const renamed = new Set<string>();
  for (const [name, value] of pairs(rawHeaders)) {
    const lower = name.toLowerCase();
    if (lower.startsWith(prefix)) {
      const wanted = lower.slice(prefix.length);
      if (!isToken(wanted) || isNever(wanted) || framing.has(wanted)) continue;
      prefixed.push([name.slice(prefix.length), value]);
      renamed.add(wanted);
    } else if ((isPassed(lower) || passesToo.has(lower)) && !isNever(lower)) {
      // Transfer codings other than chunked would reach the caller undecoded and unannounced.
      if (lower === 'te' && value.trim().toLowerCase() !== 'trailers') continue;
      plain.push([lower, name, value]);
    }
  }
  const sent: string[] = [];
  for (const [lower, name, value] of plain) if (!renamed.has(lower)) sent.push(name, value);
  for (const [name, value] of prefixed) sent.push(name, value);
  for (const [name, value] of Object.entries(placed)) sent.push(name, value);
  return sent;
}

export type ResponseRules = {
  readonly brand: Brand;
  /** Where the answer came from: what a relative Location is relative to. */
  readonly origin: string;
  readonly path: string;
};

/** The provider's answer headers for the caller; ours (CORS) are added by whoever writes them. */
export function responseHeaders(rawHeaders: readonly string[], rules: ResponseRules): string[] {
  const marker = rules.brand.header('Error').toLowerCase();
  const listed = listedByConnection(rawHeaders);
  const kept: string[] = [];
  for (const [name, value] of pairs(rawHeaders)) {
    const lower = name.toLowerCase();
    // Trailers are relayed without their announcement: a caller of HTTP/1.0 gets none.
    if (hopByHop.has(lower) || lower === 'te' || lower === 'trailer' || listed.has(lower)) continue;
    if (lower === 'alt-svc' || lower === marker || lower.startsWith('access-control-')) continue;
    kept.push(name, lower === 'location' ? absolute(value, rules) : value);
  }
  return kept;
}

/** A redirect without a host would lead the caller to us. One that is absolute stays as it is. */
function absolute(location: string, { origin, path }: ResponseRules): string {
  if (/^[a-z][a-z0-9+.-]*:/i.test(location)) return location;
  if (location.startsWith('/') && !/^\/[/\\]/.test(location)) return origin + location;
  return URL.parse(location, origin + path)?.href ?? location;
}

/** Names that `Connection` declares to be for this hop (RFC 9110 §7.6.1), lower case. */
function listedByConnection(rawHeaders: readonly string[]): Set<string> {
  const names = new Set<string>();
  for (const [name, value] of pairs(rawHeaders)) {
    if (name.length !== 10 || name.toLowerCase() !== 'connection') continue;
    for (const listed of value.split(',')) names.add(listed.trim().toLowerCase());
  }
  // Both say how the message is to be read; no option of a connection can take them away.
  names.delete('content-length');
  names.delete('content-type');
  return names;
}

function isPassed(name: string): boolean {
  return passedNames.has(name) || passedPrefixes.some((start) => name.startsWith(start));
}

function isToken(name: string): boolean {
  return /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name);
}

function* pairs(flat: readonly string[]): Generator<[string, string]> {
  for (let at = 0; at + 1 < flat.length; at += 2) yield [flat[at] ?? '', flat[at + 1] ?? ''];
}
