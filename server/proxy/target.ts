/**
 * Where a proxied request goes. Pure: text in, text out, by concatenation alone, since every URL parser resolves dot
 * segments, backslashes and escapes that the provider must get as the caller wrote them.
 */
import { AppError } from '../errors.ts';
import { decodedName, plainName, withoutPairs } from '../http/query.ts';

type Target = {
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
 * `/proxy` in front or not; pairs of the names in `forbidQuery` (`namesToCut`) are cut out. Throws `invalid_proxy_path`.
 */
export function targetAt(
  base: Base,
  { rawUrl, forbidQuery }: { rawUrl: string; forbidQuery: ReadonlySet<string> },
): Target {
  const text = behindPrefix(rawUrl, base.text);
  const fault = faultOf(text);
  if (fault !== undefined) throw invalidPath(fault);
  const target = base.prefix + withoutNamed(text, forbidQuery);
  // An authority ends with the first slash (RFC 3986 §3.2): behind one, nothing of the target can be read as part of it.
  if (!target.startsWith('/')) throw invalidPath('leaves the provider');
  return { origin: base.origin, path: target };
}

/**
 * Path and query as they are sent when a provider itself asks for them; pairs of these names are cut out. Undefined
 * where a caller could not ask for them either.
 */
export function safePath(target: string, forbidQuery: ReadonlySet<string>): string | undefined {
  return faultOf(target) === undefined ? withoutNamed(target, forbidQuery) : undefined;
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

/** Why path and query cannot be sent safely; undefined: they can. */
function faultOf(target: string): string | undefined {
  if (/[^\x21-\x7e]|#/.test(target))
    return 'holds a space, a control character, `#` or a character beyond ASCII that is not encoded';
  const at = target.indexOf('?');
  const path = at === -1 ? target : target.slice(0, at);
  if (!path.startsWith('/')) return 'does not begin with a slash';
  if (path.startsWith('//')) return 'begins with two slashes';
  if (path.includes('\\')) return 'holds a backslash';
  // Servers differ in what they decode before they resolve `..`, so escapes count as what they stand for.
  if (/(?:\/|%2f|%5c)(?:\.|%2e){1,2}(?:\/|%2f|%5c|;|%3b|$)/i.test(path)) return 'holds a dot segment';
  return undefined;
}

/** Names of query pairs, for what cuts them out: in every spelling that a server could take for one of them. */
export function namesToCut(names: readonly string[]): ReadonlySet<string> {
  return new Set(names.map(plainName));
}

function withoutNamed(target: string, cut: ReadonlySet<string>): string {
  const at = target.indexOf('?');
  if (at === -1 || cut.size === 0) return target;
  return (
    target.slice(0, at) + withoutPairs(target.slice(at), (pair) => cut.has(plainName(decodedName(pair))))
  );
}

function invalidPath(reason: string): AppError {
  return new AppError('invalid_proxy_path', `The path to the provider ${reason}.`);
}
