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

/** An API's address, taken apart. */
export type Base = {
  /** As it was given, without a trailing slash: a caller may repeat it. */
  readonly text: string;
  readonly origin: string;
  /** Its path, without a trailing slash. */
  readonly prefix: string;
};

/**
 * The provider's address for a request to the proxy. `rawUrl` is path and query as they came in, undecoded, with
 * `/proxy` in front or not; pairs of the names in `forbidQuery` are cut out. Throws `invalid_proxy_path`.
 */
export function targetAt(
  base: Base,
  { rawUrl, forbidQuery }: { rawUrl: string; forbidQuery: readonly string[] },
): Target {
  const { path, query } = split(behindPrefix(rawUrl, base.text));
  refuseUnsafePath(path);
  const target = `${base.prefix}${path}${withoutPairs(query, forbidQuery)}`;
  // What has been put together must still point where the base does, whoever parses it.
  if (URL.parse(base.origin + target)?.origin !== base.origin) throw invalidPath('leaves the provider');
  return { origin: base.origin, path: target };
}

/** The provider's API address, filled in. Throws `unsupported_provider` where it is none. */
export function baseOf(address: string): Base {
  const base = readBase(address);
  if (base === undefined) throw new AppError('unsupported_provider');
  return base;
}

/** The address that a caller chose. Throws `base_url_override_not_allowed` unless its origin is one of these. */
export function overrideOf(address: string, allowedOrigins: ReadonlySet<string>): Base {
  const base = readBase(address);
  if (base === undefined || !allowedOrigins.has(base.origin)) {
    throw new AppError('base_url_override_not_allowed');
  }
  return base;
}

/** The origins in `integration_config.allowed_base_urls`, a comma-separated list. */
export function originsOf(list: string | undefined): Set<string> {
  const origins = (list ?? '').split(',').map((text) => URL.parse(text.trim())?.origin);
  return new Set(origins.filter((origin) => origin !== undefined && origin !== 'null') as string[]);
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
  if (/(?:\/|%2f|%5c)(?:\.|%2e){1,2}(?:\/|%2f|%5c|;|%3b|$)/i.test(path))
    throw invalidPath('holds a dot segment');
}

/** Cuts `name=value` pairs out of a query; every other byte stays where it is. */
function withoutPairs(query: string, forbidden: readonly string[]): string {
  if (query === '' || forbidden.length === 0) return query;
  const pairs = query.slice(1).split('&');
  const kept = pairs.filter((pair) => !forbidden.includes(decodedName(pair)));
  if (kept.length === pairs.length) return query;
  return kept.length === 0 ? '' : `?${kept.join('&')}`;
}

/** The name of a query pair as a server would read it. */
export function decodedName(pair: string): string {
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
