/**
 * Which headers pass through the proxy, in both directions. Pure. Lists are flat, names and values in turn, as Node
 * gives and takes them, so that repeated headers stay repeated and names keep their case.
 */
import type { Brand } from '../brand.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { decodedPair, withoutPairs } from './target.ts';

/** Go on as the caller sent them. An entry with a `*` stands for every name that begins so. */
const passed = [
  'accept', 'accept-encoding', 'accept-language', 'cache-control', 'content-*', 'digest', 'idempotency-key', 'if-*',
  'last-event-id', 'mcp-*', 'prefer', 'range', 'te', 'user-agent', 'x-goog-api-client', 'x-goog-fieldmask',
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
  'base-url-override', 'connection-id', 'decompress', 'provider-config-key', 'quota-wait', 'retries', 'retry-on',
  'timeouts',
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
  // A prefixed header takes the place of what the client sends by itself.
  const kept = renamed.length === 0 ? sent : without(sent, namesOf(renamed));
  kept.push(...renamed, ...rules.placed);
  return kept;
}

/** The headers but those of these names (lower case). */
export function without(flat: readonly string[], names: ReadonlySet<string>): string[] {
  const kept: string[] = [];
  for (let at = 0; at + 1 < flat.length; at += 2) {
    const name = flat[at] as string;
    if (!names.has(name.toLowerCase())) kept.push(name, flat[at + 1] as string);
  }
  return kept;
}

function namesOf(flat: readonly string[]): Set<string> {
  return new Set(flat.filter((_, at) => at % 2 === 0).map((name) => name.toLowerCase()));
}

/** What becomes of an answer's header: `links` hold addresses, `coding` says how the message is framed. */
type AnswerFate = 'kept' | 'dropped' | 'location' | 'links' | 'coding';

/** Where an answer came from. */
export type AnswerSource = {
  readonly origin: string;
  readonly path: string;
  /** What credentials put into the query, which is the caller's to see nowhere; empty: nothing. */
  readonly placed: { readonly query: string };
};

/**
 * What may not come behind a body (RFC 9110 §6.5.1): how the message is framed, encoded or cached, where it leads, and
 * whatever acts on the origin.
 */
const neverTrailers = new Set([
  'age', 'authorization', 'cache-control', 'clear-site-data', 'content-encoding', 'content-length', 'content-range',
  'content-security-policy', 'content-type', 'date', 'expires', 'host', 'retry-after', 'set-cookie', 'set-cookie2',
  'strict-transport-security', 'vary', 'warning', 'www-authenticate',
]); // biome-ignore format: a list reads better in lines

/** The provider's answer headers for the caller; ours (CORS) are added by whoever writes them. */
export class AnswerRules {
  readonly #marker: string;
  readonly #fates = new Map<string, AnswerFate>();

  constructor(brand: Brand) {
    this.#marker = brand.header('Error').toLowerCase();
  }

  /**
   * A Location without a host is made absolute; credentials are cut out of addresses. Throws where the message was
   * coded in another way than in chunks (RFC 9112 §6.1): its bytes would arrive as what they are not.
   */
  headers(rawHeaders: readonly string[], from: AnswerSource): string[] {
    const listed = listedByConnection(rawHeaders);
    const kept: string[] = [];
    for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
      const name = rawHeaders[at] as string;
      const value = rawHeaders[at + 1] as string;
      const fate = this.#fateOf(name);
      if (fate === 'coding') requireChunked(value);
      else if (fate === 'dropped' || listed?.has(name.toLowerCase())) continue;
      else if (fate === 'kept') kept.push(name, value);
      else kept.push(name, withoutPlaced(fate === 'location' ? absolute(value, from) : value, from));
    }
    return kept;
  }

  /** As `headers`, for what comes behind a body; what cannot be sent on is left out, as any of it may be. */
  trailers(rawTrailers: readonly string[]): [string, string][] {
    const kept: [string, string][] = [];
    for (let at = 0; at + 1 < rawTrailers.length; at += 2) {
      const name = rawTrailers[at] as string;
      const value = rawTrailers[at + 1] as string;
      const isKept = this.#fateOf(name) === 'kept' && !neverTrailers.has(name.toLowerCase());
      if (isKept && isSendable(value)) kept.push([name, value]);
    }
    return kept;
  }

  #fateOf(name: string): AnswerFate {
    const known = this.#fates.get(name);
    if (known !== undefined) return known;
    const fate = this.#judge(name.toLowerCase());
    if (this.#fates.size >= mostNames) this.#fates.clear();
    this.#fates.set(name, fate);
    return fate;
  }

  #judge(name: string): AnswerFate {
    if (name === 'transfer-encoding') return 'coding';
    if (name === 'location') return 'location';
    if (name === 'link' || name === 'content-location' || name === 'refresh') return 'links';
    // Trailers are relayed without their announcement: a caller of HTTP/1.0 gets none.
    const isDropped =
      hopByHop.has(name) ||
      ['te', 'trailer', 'alt-svc', this.#marker].includes(name) ||
      name.startsWith('access-control-');
    return isDropped ? 'dropped' : 'kept';
  }
}

/** Whether a Transfer-Encoding names the one coding that ends with its hop unseen. */
export function isChunked(transferEncoding: string): boolean {
  return transferEncoding === 'chunked' || transferEncoding.trim().toLowerCase() === 'chunked';
}

/** A redirect without a host would lead the caller to us. One that is absolute stays as it is. */
function absolute(location: string, { origin, path }: { origin: string; path: string }): string {
  if (/^[a-z][a-z0-9+.-]*:/i.test(location)) return location;
  if (location.startsWith('/') && !/^\/[/\\]/.test(location)) return origin + location;
  return URL.parse(location, origin + path)?.href ?? location;
}

function requireChunked(coding: string): void {
  if (!isChunked(coding)) throw new Error('the answer has a transfer coding besides chunked');
}

/** Cuts the pair that carries credentials out of each query in a text; a provider may well repeat it. */
function withoutPlaced(text: string, { placed }: AnswerSource): string {
  if (placed.query === '') return text;
  const secret = decodedPair(placed.query);
  return text.replace(/\?[^\s#<>"]*/g, (query) =>
    withoutPairs(query, (pair) => decodedPair(pair) === secret),
  );
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

/** Node reads more characters than it writes. */
function isSendable(value: string): boolean {
  return /^[\t\x20-\x7e\x80-\xff]*$/.test(value);
}

function isPassed(name: string): boolean {
  return passedNames.has(name) || passedPrefixes.some((start) => name.startsWith(start));
}

function isToken(name: string): boolean {
  return /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name);
}
