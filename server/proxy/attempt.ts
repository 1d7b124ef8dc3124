/**
 * Where a call of a connection goes, and what goes along. What is the same for all calls of a connection as it was last
 * read is worked out once: most come within that second.
 */
import type { Credentials } from '../auth-modes/mode.ts';
import { apiBase, type Placed, placeCredentials, withQuery } from '../auth-modes/place.ts';
import type { Brand } from '../brand.ts';
import type { LiveConnection } from '../connections/reader.ts';
import { templateValues } from '../connections/values.ts';
import { AppError } from '../errors.ts';
import type { OutboundCall } from '../outbound.ts';
import { TemplateError } from '../providers/template-grammar.ts';
import { RequestRules, requestHeaders } from './request-headers.ts';
import { isPermitted, type JudgedCall, type RuleList, requirePermission } from './rules.ts';
import { type Base, baseOf, namesToCut, originsOf, overrideOf, safePath, targetAt } from './target.ts';

/** What a caller of the proxy asked for. */
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
  /** The credentials: those for the headers and the query are there already. */
  readonly placed: Placed;
};

/**
 * Where the request goes with these credentials, and with which headers. Throws what `targetAt` throws,
 * `proxy_rule_denied` (403), and `integration_misconfigured` (424) where a setting that the provider's address needs is
 * missing.
 */
export function attemptWith(credentials: Credentials, proxyRequest: ProxyRequest): Attempt {
  const address = addressOf(proxyRequest, credentials);
  const base = chosenBase(proxyRequest, address) ?? address.base();
  const { origin, path } = targetAt(base, { rawUrl: proxyRequest.rawUrl, forbidQuery: address.forbidQuery });
  const headers = requestHeaders(proxyRequest.rawHeaders, address.rules);
  requirePermission(proxyRequest.rules, judgedCall(proxyRequest, address, { origin, path, headers }));
  const { placed } = address;
  return { origin, path: withQuery(path, placed.query), headers, placed };
}

/**
 * The request that a redirect asks for, if it stays at the origin of the previous request; undefined: it leads elsewhere,
 * nowhere, or to a target that the rules deny. Credentials in the query are added again.
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
  const path = safePath(url.pathname + url.search, address.forbidQuery);
  if (path === undefined) return undefined;
  if (!isPermitted(proxyRequest.rules, judgedCall(proxyRequest, address, { ...before, path })))
    return undefined;
  return { ...before, path: withQuery(path, address.placed.query) };
}

/** What its rules see of a request. */
function judgedCall(
  proxyRequest: ProxyRequest,
  address: Address,
  { origin, path, headers }: Pick<Attempt, 'origin' | 'path' | 'headers'>,
): JudgedCall {
  const { connection, method, rules } = proxyRequest;
  const { overrides } = connection.integration.provider.api;
  const call = { method, target: path, headers, overrides };
  if (rules.length === 0) return call;
  // Rules are meant behind the API's own address, so it must be known, an override or not.
  const base = address.base();
  const overridePath = chosenBase(proxyRequest, address)?.prefix;
  return { ...call, basePath: base.prefix, isElsewhere: origin !== base.origin, overridePath };
}

/** The address that the caller chose in place of the API's; undefined: none. */
function chosenBase({ override, connection }: ProxyRequest, { allowedOrigins }: Address): Base | undefined {
  if (!override) return undefined;
  const { other_base_urls: others } = connection.integration.provider.api;
  const known = Object.hasOwn(others, override) ? others[override] : undefined;
  return known === undefined ? overrideOf(override, allowedOrigins) : baseOf(known);
}

type Address = {
  credentials: Credentials;
  placed: Placed;
  rules: RequestRules;
  /** The provider's base address. Throws where a setting that it needs is missing, which an override does not. */
  base: () => Base;
  /** Query parameters that the credentials take up, and those that compete with them. */
  forbidQuery: ReadonlySet<string>;
  allowedOrigins: Set<string>;
};

const addresses = new WeakMap<LiveConnection, Address>();

function addressOf({ connection, brand }: ProxyRequest, credentials: Credentials): Address {
  const known = addresses.get(connection);
  if (known?.credentials === credentials) return known;
  const { provider: definition, integrationConfig } = connection.integration;
  const subject = { definition, credentials, values: templateValues(connection) };
  const placed = filled(() => placeCredentials(subject));
  let base: Base | undefined;
  const address = {
    credentials,
    placed,
    rules: new RequestRules({ brand, definition, placed: placed.headers }),
    base: () => (base ??= baseOf(filled(() => apiBase(subject)))),
    forbidQuery: namesToCut([...definition.api.forbid.query, ...new URLSearchParams(placed.query).keys()]),
    allowedOrigins: originsOf(integrationConfig.allowed_base_urls),
  };
  addresses.set(connection, address);
  return address;
}

/** A placeholder without a fitting value is a fault of the integration's or the connection's settings. */
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
