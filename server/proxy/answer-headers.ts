/** Which of the provider's headers and trailers come back to the caller, and how. Pure. */
import type { Brand } from '../brand.ts';
import { decodedPair, withoutPairs } from '../http/query.ts';
import { isChunked } from '../http/raw-headers.ts';
import { HeaderPolicy, hopByHop, listedByConnection } from './header-names.ts';

/** What becomes of an answer's header: `links` hold addresses, `coding` says how the message is framed. */
type HeaderRule = 'kept' | 'dropped' | 'location' | 'links' | 'coding';

/** Where an answer came from. */
type AnswerSource = {
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

/** The provider's answer headers for the caller; the code that writes them adds ours (CORS). */
export class AnswerRules {
  readonly #policy: HeaderPolicy<HeaderRule>;

  constructor(brand: Brand) {
    const marker = brand.header('Error').toLowerCase();
    this.#policy = new HeaderPolicy((name) => ruleOf(name.toLowerCase(), marker));
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
      const rule = this.#policy.of(name);
      if (rule === 'coding') requireChunked(value);
      else if (rule === 'dropped' || listed?.has(name.toLowerCase())) continue;
      else if (rule === 'kept') kept.push(name, value);
      else kept.push(name, withoutPlaced(rule === 'location' ? absolute(value, from) : value, from));
    }
    return kept;
  }

  /** As `headers`, for what comes behind a body; what cannot be sent on is left out, as any of it may be. */
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

function ruleOf(name: string, marker: string): HeaderRule {
  if (name === 'transfer-encoding') return 'coding';
  if (name === 'location') return 'location';
  if (name === 'link' || name === 'content-location' || name === 'refresh') return 'links';
  // Trailers are relayed without their announcement: a caller of HTTP/1.0 gets none.
  const isDropped =
    hopByHop.has(name) ||
    ['te', 'trailer', 'alt-svc', marker].includes(name) ||
    name.startsWith('access-control-');
  return isDropped ? 'dropped' : 'kept';
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

/** Node reads more characters than it writes. */
function isSendable(value: string): boolean {
  return /^[\t\x20-\x7e\x80-\xff]*$/.test(value);
}
