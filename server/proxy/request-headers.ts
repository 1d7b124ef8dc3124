/** Which of the caller's headers go to the provider. Pure. Names keep their case, and repeated ones stay repeated. */
import type { Brand } from '../brand.ts';
import { without } from '../http/raw-headers.ts';
import { normalizedHeaderName } from '../providers/credential-header.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { HeaderPolicy, hopByHop, listedByConnection } from './header-names.ts';

/** Go on as the caller sent them. An entry with a `*` stands for every name that begins so. */
const passed = [
  'accept', 'accept-encoding', 'accept-language', 'cache-control', 'content-*', 'digest', 'idempotency-key', 'if-*',
  'last-event-id', 'mcp-*', 'prefer', 'range', 'te', 'user-agent', 'x-goog-api-client', 'x-goog-fieldmask',
  'x-goog-upload-*', 'x-upload-content-*',
]; // biome-ignore format: a list reads better in lines
const passedNames = new Set(passed.filter((name) => !name.endsWith('*')));
const passedPrefixes = passed.filter((name) => name.endsWith('*')).map((name) => name.slice(0, -1));

/** Who the caller is, where it is, and how its browser came here: never the provider's business. */
const neverSent = new Set([
  'authorization', 'cookie', 'cookie2', 'forwarded', 'host', 'origin', 'referer',
  // Ours
  'base-url-override', 'connection-id', 'decompress', 'provider-config-key', 'quota-wait', 'retries', 'retry-on',
  'timeouts',
  // Answered by us: a client that waits for a 100 waits for the reader of the body, and that is the proxy.
  'expect',
]); // biome-ignore format: a list reads better in lines

/** They say where the message ends, which only the message itself may. */
const framing = new Set(['content-length', 'te', 'trailer']);

/** What becomes of a header: it goes on, it does not, it goes on under another name, or its value decides. */
type HeaderRule = 'passes' | 'drops' | 'te' | { readonly as: string };

/**
 * What happens to the caller's headers on the way to one connection's provider: the same for all of its calls, so it is
 * worked out once for each name.
 */
export class RequestRules {
  readonly placed: readonly string[];
  readonly policy: HeaderPolicy<HeaderRule>;

  /** `placed` is what the connection's credentials put there; the caller's headers of these names are dropped. */
  constructor(rules: {
    brand: Brand;
    definition: Pick<ProviderDefinition, 'api'>;
    placed: Readonly<Record<string, string>>;
  }) {
    const { brand, definition, placed } = rules;
    const dropped = new Set(
      [...definition.api.forbid.headers, ...Object.keys(placed)].map(normalizedHeaderName),
    );
    const passesToo = new Set(definition.api.pass_headers.map((name) => name.toLowerCase()));
    const own = [`${brand.word}-`, `x-${brand.word}-`, 'x-forwarded-'];
    const prefix = brand.proxyHeaderPrefix;
    const isNever = (name: string) =>
      hopByHop.has(name) ||
      neverSent.has(name) ||
      dropped.has(name) ||
      own.some((start) => name.startsWith(start));
    this.placed = Object.entries(placed).flat();
    this.policy = new HeaderPolicy((name) => {
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
}

/** The headers for the provider out of those that came in. */
export function requestHeaders(rawHeaders: readonly string[], { placed, policy }: RequestRules): string[] {
  const sent: string[] = [];
  const renamed: string[] = [];
  const listed = listedByConnection(rawHeaders);
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    const value = rawHeaders[at + 1] as string;
    const rule = policy.of(name);
    if (rule === 'drops') continue;
    if (typeof rule === 'object') {
      if (!listed?.has(rule.as.toLowerCase())) renamed.push(rule.as, value);
      // Transfer codings other than chunked would reach the caller undecoded and unannounced.
    } else if (rule === 'passes' || value.trim().toLowerCase() === 'trailers') {
      if (!listed?.has(name.toLowerCase())) sent.push(name, value);
    }
  }
  // A prefixed header takes the place of what the client sends by itself.
  const kept = renamed.length === 0 ? sent : without(sent, namesOf(renamed));
  kept.push(...renamed, ...placed);
  return kept;
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
