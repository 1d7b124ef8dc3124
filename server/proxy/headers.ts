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
  'quota-wait', 'retries', 'retry-on', 'timeouts',
  // Answered by us: what waits for a 100 is waiting for whoever reads the body, and that is the proxy.
  'expect',
]); // biome-ignore format: a list reads better in lines

/** They say where the message ends, which only the message itself may. */
const framing = new Set(['content-length', 'te', 'trailer']);

/** What becomes of a header: it goes on, it does not, it goes on under another name, or its value decides. */
type Fate = 'passes' | 'drops' | 'te' | { readonly as: string };

/**
 * What happens to the caller's headers on the way to one connection's provider: the same for all of its calls, so it is
 * worked out once for each name.
 */
export class RequestRules {
  readonly placed: readonly string[];
  readonly #isNever: (name: string) => boolean;
  readonly #passesToo: ReadonlySet<string>;
  readonly #prefix: string;
  readonly #fates = new Map<string, Fate>();

  /** `placed` is what the connection's credentials put there; the caller's headers of these names are dropped. */
  constructor(rules: {
    brand: Brand;
    definition: Pick<ProviderDefinition, 'api'>;
    placed: Readonly<Record<string, string>>;
  }) {
    const { brand, definition, placed } = rules;
    const dropped = new Set(definition.api.forbid.headers);
    for (const name of Object.keys(placed)) dropped.add(name.toLowerCase());
    const own = [`${brand.word}-`, `x-${brand.word}-`, 'x-forwarded-'];
    this.placed = Object.entries(placed).flat();
    this.#prefix = brand.proxyHeaderPrefix;
    this.#passesToo = new Set(definition.api.pass_headers.map((name) => name.toLowerCase()));
    this.#isNever = (name) =>
      hopByHop.has(name) ||
      neverSent.has(name) ||
      dropped.has(name) ||
      own.some((start) => name.startsWith(start));
  }

  fateOf(name: string): Fate {
    const known = this.#fates.get(name);
    if (known !== undefined) return known;
    const fate = this.#judge(name);
    if (this.#fates.size >= mostNames) this.#fates.clear();
    this.#fates.set(name, fate);
    return fate;
  }

  #judge(name: string): Fate {
    const lower = name.toLowerCase();
    if (lower.startsWith(this.#prefix)) {
      const wanted = lower.slice(this.#prefix.length);
      const isRefused = !isToken(wanted) || this.#isNever(wanted) || framing.has(wanted);
      return isRefused ? 'drops' : { as: name.slice(this.#prefix.length) };
    }
    if (this.#isNever(lower) || !(isPassed(lower) || this.#passesToo.has(lower))) return 'drops';
    return lower === 'te' ? 'te' : 'passes';
  }
}

/** A caller who thinks up names cannot fill the memory. */
const mostNames = 500;

/** The headers for the provider out of those that came in. */
export function requestHeaders(rawHeaders: readonly string[], rules: RequestRules): string[] {
  const sent: string[] = [];
  const renamed: string[] = [];
  const listed = listedByConnection(rawHeaders);
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    const value = rawHeaders[at + 1] as string;
    const fate = rules.fateOf(name);
    if (fate === 'drops') continue;
    if (typeof fate === 'object') {
      if (!listed?.has(fate.as.toLowerCase())) renamed.push(fate.as, value);
      // Transfer codings other than chunked would reach the caller undecoded and unannounced.
    } else if (fate === 'passes' || value.trim().toLowerCase() === 'trailers') {
      if (!listed?.has(name.toLowerCase())) sent.push(name, value);
    }
  }
  const kept = renamed.length === 0 ? sent : without(sent, renamed);
  kept.push(...renamed, ...rules.placed);
  return kept;
}

/** A prefixed header takes the place of what the client sends by itself. */
function without(sent: readonly string[], renamed: readonly string[]): string[] {
  const names = new Set(renamed.filter((_, at) => at % 2 === 0).map((name) => name.toLowerCase()));
  return [...pairs(sent)].filter(([name]) => !names.has(name.toLowerCase())).flat();
}

/** The provider's answer headers for the caller; ours (CORS) are added by whoever writes them. */
export class AnswerRules {
  readonly #marker: string;
  readonly #fates = new Map<string, 'kept' | 'dropped' | 'location'>();

  constructor(brand: Brand) {
    this.#marker = brand.header('Error').toLowerCase();
  }

  /** `from` is where the answer came from: what a relative Location is relative to. */
  headers(rawHeaders: readonly string[], from: { origin: string; path: string }): string[] {
    const listed = listedByConnection(rawHeaders);
    const kept: string[] = [];
    for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
      const name = rawHeaders[at] as string;
      const value = rawHeaders[at + 1] as string;
      const fate = this.#fateOf(name);
      if (fate === 'dropped' || listed?.has(name.toLowerCase())) continue;
      kept.push(name, fate === 'location' ? absolute(value, from) : value);
    }
    return kept;
  }

  #fateOf(name: string): 'kept' | 'dropped' | 'location' {
    const known = this.#fates.get(name);
    if (known !== undefined) return known;
    const lower = name.toLowerCase();
    // Trailers are relayed without their announcement: a caller of HTTP/1.0 gets none.
    const isDropped =
      hopByHop.has(lower) ||
      ['te', 'trailer', 'alt-svc', this.#marker].includes(lower) ||
      lower.startsWith('access-control-');
    const fate = isDropped ? 'dropped' : lower === 'location' ? 'location' : 'kept';
    if (this.#fates.size >= mostNames) this.#fates.clear();
    this.#fates.set(name, fate);
    return fate;
  }
}

/** A redirect without a host would lead the caller to us. One that is absolute stays as it is. */
function absolute(location: string, { origin, path }: { origin: string; path: string }): string {
  if (/^[a-z][a-z0-9+.-]*:/i.test(location)) return location;
  if (location.startsWith('/') && !/^\/[/\\]/.test(location)) return origin + location;
  return URL.parse(location, origin + path)?.href ?? location;
}

/** Names that `Connection` declares to be for this hop (RFC 9110 §7.6.1), lower case; undefined: none. */
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
  // Both say how the message is to be read; no option of a connection can take them away.
  names?.delete('content-length');
  names?.delete('content-type');
  return names;
}

/** The first value of a header, by its name in lower case. */
export function firstValue(rawHeaders: readonly string[], name: string): string | undefined {
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const found = rawHeaders[at] as string;
    if (found.length === name.length && found.toLowerCase() === name) return rawHeaders[at + 1];
  }
  return undefined;
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
