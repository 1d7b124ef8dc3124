/**
 * One request to the provider: its base address, path, headers and credentials, if the rules permit it.
 *
 * Addresses are built only by concatenation, since every URL parser resolves dot segments, backslashes and escapes, which
 * the provider must get as the caller wrote them.
 */
import type { Credentials } from '../auth-modes/modes.ts';
import { apiBase, type Placed, placeCredentials, withQuery } from '../auth-modes/place.ts';
import type { Brand } from '../brand.ts';
import { type LiveConnection, templateValues } from '../connections/store/reader.ts';
import { AppError } from '../errors.ts';
import { decodedName, plainName, withoutPairs } from '../http/query.ts';
import type { OutboundCall } from '../outbound/outbound.ts';
import { TemplateError } from '../providers/template.ts';
import { RequestHeaderRules } from './headers.ts';
import { isPermitted, type JudgedCall, type RuleList, requirePermission } from './rules.ts';

/** A call that its caller is permitted to make for this connection, subject to the rules. */
export type ProxyRequest = {
  readonly connection: LiveConnection;
  readonly brand: Brand;
  readonly method: string;
  /** The rule lists of the caller and of the integration. */
  readonly rules: readonly RuleList[];
  /** Path and query as they came in, undecoded. */
  readonly rawUrl: string;
  /** Names and values in turn. */
  readonly rawHeaders: readonly string[];
  /** The Base-Url-Override; undefined or empty: none. */
  readonly override: string | undefined;
};

/** One request to the provider, without its method and body. */
export type Attempt = Pick<OutboundCall, 'origin' | 'path' | 'headers'> & {
  /** The credentials. Headers and path already include theirs. */
  readonly placed: Placed;
  /** The part of the path that contains credentials; absent: none. It is never logged, stored or returned. */
  readonly secretPath?: string;
  /** It goes to a host that the integration allows besides the provider's. */
  readonly isForeign?: true;
};

/**
 * The request with these credentials. Throws the errors of `targetAt`, `proxy_rule_denied` (403), and
 * `integration_misconfigured` (424) if the provider's address needs a setting that is missing.
 */
export function attemptWith(credentials: Credentials, proxyRequest: ProxyRequest): Attempt {
  const { api } = proxyRequest.connection.integration.provider;
  const address = addressOf(proxyRequest, credentials);
  const chosen = chosenBase(proxyRequest, address);
  const base = chosen ?? address.base();
  const hasSecret = chosen === undefined && api.base_url?.includes('${credentials.') === true;
  const { origin, path } = targetAt(base, {
    rawUrl: proxyRequest.rawUrl,
    forbidQuery: address.forbidQuery,
    cutsBasePath: chosen === undefined && api.repeated_base_path === 'cut',
  });
  const headers = address.headerRules.headers(proxyRequest.rawHeaders);
  requirePermission(proxyRequest.rules, judgedCall(proxyRequest, address, { origin, path, headers }));
  const { placed } = address;
  const attempt = {
    origin,
    path: withQuery(path, placed.query),
    headers,
    placed,
    ...(chosen?.isForeign && { isForeign: true as const }),
  };
  return hasSecret ? { ...attempt, secretPath: base.prefix } : attempt;
}

/**
 * The request that a redirect leads to. Undefined if it leads to another origin than that of `before`, is invalid, or is
 * denied by the rules. Credentials in the query are added again.
 */
export function attemptAfterRedirect(
  location: string,
  {
    before,
    credentials,
    proxyRequest,
  }: { before: Attempt; credentials: Credentials; proxyRequest: ProxyRequest },
): Attempt | undefined {
  const url = URL.parse(location, before.origin + before.path);
  if (url === null || url.origin !== before.origin || url.username !== '' || url.password !== '') {
    return undefined;
  }
  const address = addressOf(proxyRequest, credentials);
  const target = url.pathname + url.search;
  if (unsafeTarget(target) !== undefined) return undefined;
  const path = withoutNamed(target, address.forbidQuery);
  if (!isPermitted(proxyRequest.rules, judgedCall(proxyRequest, address, { ...before, path })))
    return undefined;
  return { ...before, path: withQuery(path, address.placed.query) };
}

function judgedCall(
  proxyRequest: ProxyRequest,
  address: Address,
  { origin, path, headers }: Pick<Attempt, 'origin' | 'path' | 'headers'>,
): JudgedCall {
  const { connection, method, rules } = proxyRequest;
  const { overrides, repeated_base_path } = connection.integration.provider.api;
  const cutsBasePath = repeated_base_path === 'cut';
  const call = { method, target: path, headers, overrides, cutsBasePath };
  if (rules.length === 0) return call;
  // Rules are relative to the API's own address, which must be known even if the caller chose another.
  const base = address.base();
  const overridePath = chosenBase(proxyRequest, address)?.prefix;
  return { ...call, basePath: base.prefix, isElsewhere: origin !== base.origin, overridePath };
}

/**
 * The base address that the caller chose instead of the API's; undefined: none. It may be the provider's own or one below it,
 * since a call without an override reaches the same addresses, or have an origin that the integration allows.
 */
function chosenBase(
  { override, connection }: ProxyRequest,
  address: Address,
): (Base & { isForeign?: true }) | undefined {
  if (!override) return undefined;
  const { base_url: own, other_base_urls: others } = connection.integration.provider.api;
  const base = readBase(override);
  for (const [named, called] of Object.entries(others)) {
    const rest = base && pathBelow(base, baseOf(named));
    if (rest !== undefined) return baseOf(called + rest);
  }
  const isAllowed = base !== undefined && address.allowedOrigins.has(base.origin);
  // The log leaves out a base address with credentials only as the API's own.
  if (base !== undefined && !isAllowed && own?.includes('${credentials.') === false) {
    if (pathBelow(base, address.base()) !== undefined) return base;
  }
  return { ...overrideOf(override, address.allowedOrigins), isForeign: true };
}

/** The path of a base address behind another one; undefined: it is not below it, or servers may read its path differently. */
function pathBelow(base: Base, upper: Base): string | undefined {
  if (base.origin !== upper.origin || !`${base.prefix}/`.startsWith(`${upper.prefix}/`)) return undefined;
  const rest = base.prefix.slice(upper.prefix.length);
  return rest === '' || unsafeTarget(rest) === undefined ? rest : undefined;
}

/** The parts of requests that all calls of a connection share. */
type Address = {
  credentials: Credentials;
  placed: Placed;
  headerRules: RequestHeaderRules;
  /** The API's base address. Throws if it needs a setting that is missing; a Base-Url-Override does not need it. */
  base: () => Base;
  /** Query parameters of the credentials, and those that compete with them. */
  forbidQuery: ReadonlySet<string>;
  allowedOrigins: Set<string>;
};

/** A connection object is kept for a second, in which most of its calls arrive. */
const addresses = new WeakMap<LiveConnection, Address>();

function addressOf({ connection, brand }: ProxyRequest, credentials: Credentials): Address {
  const known = addresses.get(connection);
  if (known?.credentials === credentials) return known;
  const { provider: definition, integrationConfig, client } = connection.integration;
  const { api } = definition;
  const subject = { definition, credentials, values: templateValues(connection), client };
  const placed = filled(() => placeCredentials(subject));
  let base: Base | undefined;
  const address = {
    credentials,
    placed,
    headerRules: new RequestHeaderRules(placed.headers, { brand, api }),
    base: () => (base ??= baseOf(filled(() => apiBase(subject)))),
    forbidQuery: namesToCut([...api.forbid.query, ...new URLSearchParams(placed.query).keys()]),
    allowedOrigins: originsOf(integrationConfig.allowed_base_urls),
  };
  addresses.set(connection, address);
  return address;
}

/** A placeholder without a valid value is an error in the settings of the integration or the connection. */
function filled<T>(fill: () => T): T {
  try {
    return fill();
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error;
    throw new AppError('integration_misconfigured', `The provider cannot be addressed: ${error.message}.`, {
      cause: error,
    });
  }
}

/** The parts of an API's base address. */
type Base = {
  /** As it was given, without a trailing slash: a caller may repeat it. */
  readonly text: string;
  /** As `URL.origin` spells it. */
  readonly origin: string;
  /** Its path, without a trailing slash. */
  readonly prefix: string;
};

/**
 * The provider's address for a request to the proxy: its path and query are byte for byte those of the caller after the base
 * address. `rawUrl` is path and query as they came in, undecoded, with or without `/proxy`. Pairs of the names in
 * `forbidQuery` (`namesToCut`) are removed, and with `cutsBasePath` a path of the base address that the caller repeats.
 * Throws `invalid_proxy_path`.
 */
export function targetAt(
  base: Base,
  {
    rawUrl,
    forbidQuery,
    cutsBasePath = false,
  }: { rawUrl: string; forbidQuery: ReadonlySet<string>; cutsBasePath?: boolean },
): { origin: string; path: string } {
  const rest = rawUrl.startsWith('/proxy/') ? rawUrl.slice('/proxy'.length) : rawUrl;
  const given = withoutStart(rest, `/${base.text}`);
  const text = cutsBasePath && given === rest ? withoutStart(rest, base.prefix) : given;
  const reason = unsafeTarget(text);
  if (reason !== undefined) throw invalidPath(reason);
  const target = base.prefix + withoutNamed(text, forbidQuery);
  // An authority ends with the first slash (RFC 3986 §3.2), so no part of the target can be read as authority.
  if (!target.startsWith('/')) throw invalidPath('leaves the provider');
  return { origin: base.origin, path: target };
}

/** The filled-in base address of an API. Throws `unsupported_provider` if it is invalid. */
export function baseOf(address: string): Base {
  const base = readBase(address);
  if (base === undefined) throw new AppError('unsupported_provider');
  return base;
}

/** The base address that a caller chose. Throws `base_url_override_not_allowed` unless its origin is allowed. */
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

/** Path and query behind `start`; all of `text` if it does not begin with `start` or a segment goes on behind it. */
function withoutStart(text: string, start: string): string {
  if (!text.startsWith(start)) return text;
  const after = text.slice(start.length);
  if (after === '' || after.startsWith('?')) return `/${after}`;
  return after.startsWith('/') ? after : text;
}

/** Why path and query cannot be sent safely; undefined: they can. */
function unsafeTarget(target: string): string | undefined {
  if (/[^\x21-\x7e]|#/.test(target))
    return 'contains a space, a control character, `#` or a non-ASCII character that is not encoded';
  const at = target.indexOf('?');
  const path = at === -1 ? target : target.slice(0, at);
  if (!path.startsWith('/')) return 'does not begin with a slash';
  if (path.startsWith('//')) return 'begins with two slashes';
  if (path.includes('\\')) return 'contains a backslash';
  // Servers differ in which escapes they decode before they resolve `..`, so an escape counts as its character.
  if (/(?:\/|%2f|%5c)(?:\.|%2e){1,2}(?:\/|%2f|%5c|;|%3b|$)/i.test(path)) return 'contains a dot segment';
  return undefined;
}

/** Names of query parameters, in a form that matches each spelling that a server may accept for them. */
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
