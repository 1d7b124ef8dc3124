/**
 * Where a proxied request goes. Pure: text in, text out, by concatenation alone, since every URL parser resolves dot
 * segments, backslashes and escapes that the provider must get as the caller wrote them.
 */
import { AppError } from '../errors.ts';

export type Target = {
  /** As `URL.origin` spells it. */
  readonly origin: string;
  /** Path and query, byte for byte what the caller sent behind the provider's base address. */
  readonly path: string;
};

export type TargetRequest = {
  /** Path and query as they came in, undecoded, with `/proxy` in front or not. */
  readonly rawUrl: string;
  /** The provider's API address, filled in, without a trailing slash. */
  readonly baseUrl: string;
  /** Names of query parameters that never reach the provider. */
  readonly forbidQuery: readonly string[];
  /** The caller's Base-Url-Override; undefined or empty: none. */
  readonly override: string | undefined;
  /** Origins that an override may name. */
  readonly allowedOrigins: ReadonlySet<string>;
};

/**
 * The provider's address for a request to the proxy. Throws `invalid_proxy_path`, `base_url_override_not_allowed`, or
 * `unsupported_provider` where the provider's own base address is none.
 */
export function proxyTarget(request: TargetRequest): Target {
  const base = baseOf(request);
  const { path, query } = split(behindPrefix(request.rawUrl, base.text));
  refuseUnsafePath(path);
  const target = `${base.prefix}${path}${withoutPairs(query, request.forbidQuery)}`;
  // What has been put together must still point where the base does, whoever parses it.
  if (URL.parse(base.origin + target)?.origin !== base.origin) throw invalidPath('leaves the provider');
  return { origin: base.origin, path: target };
}

/** The origins in `integration_config.allowed_base_urls`, a comma-separated list. */
export function originsOf(list: string | undefined): Set<string> {
  const origins = (list ?? '').split(',').map((text) => URL.parse(text.trim())?.origin);
  return new Set(origins.filter((origin) => origin !== undefined && origin !== 'null') as string[]);
}

type Base = { text: string; origin: string; prefix: string };

function baseOf({ baseUrl, override, allowedOrigins }: TargetRequest): Base {
  if (override === undefined || override === '') {
    const base = readBase(baseUrl);
    if (base === undefined) throw new AppError('unsupported_provider');
    return base;
  }
  const base = readBase(override);
  if (base === undefined || !allowedOrigins.has(base.origin)) {
    throw new AppError('base_url_override_not_allowed');
  }
  return base;
}

function readBase(address: string): Base | undefined {
  const text = address.replace(/\/+$/, '');
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol) || /[?#@\\]/.test(text)) return undefined;
  return { text, origin: url.origin, prefix: url.pathname.replace(/\/+$/, '') };
}

/** What follows `/proxy`, or the whole of a root alias; a repeated base address of the provider goes too. */
function behindPrefix(rawUrl: string, base: string): string {
  const rest = rawUrl.startsWith('/proxy/') ? rawUrl.slice('/proxy'.length) : rawUrl;
  if (!rest.startsWith(base, 1)) return rest;
  const behind = rest.slice(1 + base.length);
  if (behind === '' || behind.startsWith('?')) return `/${behind}`;
  return behind.startsWith('/') ? behind : rest;
}

function split(target: string): { path: string; query: string } {
  if (/[^\x21-\x7e]|#/.test(target)) {
    throw invalidPath(
      'holds a space, a control character, `#` or a character beyond ASCII that is not encoded',
    );
  }
  const at = target.indexOf('?');
  return at === -1 ? { path: target, query: '' } : { path: target.slice(0, at), query: target.slice(at) };
}

function refuseUnsafePath(path: string): void {
  if (!path.startsWith('/')) throw invalidPath('does not begin with a slash');
  if (path.startsWith('//')) throw invalidPath('begins with two slashes');
  if (path.includes('\\')) throw invalidPath('holds a backslash');
  // Servers differ in what they decode before they resolve `..`, so escapes count as what they stand for.
  for (const segment of path.replace(/%2e/gi, '.').split(/\/|%2f|%5c/i)) {
    if (/^\.\.?(;|$)/.test(segment)) throw invalidPath('holds a dot segment');
  }
}

/** Cuts `name=value` pairs out of a query; every other byte stays where it is. */
function withoutPairs(query: string, forbidden: readonly string[]): string {
  if (query === '' || forbidden.length === 0) return query;
  const pairs = query.slice(1).split('&');
  const kept = pairs.filter((pair) => !forbidden.includes(decodedName(pair)));
  if (kept.length === pairs.length) return query;
  return kept.length === 0 ? '' : `?${kept.join('&')}`;
}

function decodedName(pair: string): string {
  const name = pair.split('=', 1)[0] ?? '';
  if (!/[%+]/.test(name)) return name;
  return name
    .replaceAll('+', ' ')
    .replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
    .trim();
}

function invalidPath(reason: string): AppError {
  return new AppError('invalid_proxy_path', `The path to the provider ${reason}.`);
}
