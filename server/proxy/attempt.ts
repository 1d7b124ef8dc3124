import type { Credentials } from '../auth-modes/mode.ts';
import { apiBase, type Placed, placeCredentials, withQuery } from '../auth-modes/place.ts';
import type { Brand } from '../brand.ts';
import type { LiveConnection } from '../connections/reader.ts';
import { templateValues } from '../connections/values.ts';
import { AppError } from '../errors.ts';
import type { OutboundCall } from '../outbound.ts';
import { TemplateError } from '../providers/template-grammar.ts';
import { requestHeaders } from './headers.ts';
import { originsOf, proxyTarget } from './target.ts';

/** What a caller of the proxy asked for. */
export type Ask = {
  readonly connection: LiveConnection;
  readonly brand: Brand;
  /** Path and query as they came in, undecoded. */
  readonly rawUrl: string;
  /** Names and values in turn. */
  readonly rawHeaders: readonly string[];
  /** The Base-Url-Override; undefined or empty: none. */
  readonly override: string | undefined;
};

/**
 * Where the request goes with these credentials, and with which headers. Throws what `proxyTarget` throws, and
 * `integration_misconfigured` (424) where a setting that the provider's address needs is missing.
 */
export function attemptWith(
  credentials: Credentials,
  { connection, brand, rawUrl, rawHeaders, override }: Ask,
): Pick<OutboundCall, 'origin' | 'path' | 'headers'> {
  const { provider: definition } = connection.integration;
  const { placed, base, placedNames, allowedOrigins } = addressOf(connection, credentials);
  const target = proxyTarget({
    rawUrl,
    baseUrl: override ? '' : base(),
    forbidQuery: [...definition.api.forbid.query, ...placedNames],
    override,
    allowedOrigins,
  });
  return {
    origin: target.origin,
    path: withQuery(target.path, placed.query),
    headers: requestHeaders(rawHeaders, { brand, definition, placed: placed.headers }),
  };
}

type Address = {
  credentials: Credentials;
  placed: Placed;
  /** The provider's base address. Throws where a setting that it needs is missing, which an override does not. */
  base: () => string;
  /** Query parameters that the credentials take up. */
  placedNames: string[];
  allowedOrigins: Set<string>;
};

/** What is the same for all calls of a connection as it was last read: most come within that second. */
const addresses = new WeakMap<LiveConnection, Address>();

function addressOf(connection: LiveConnection, credentials: Credentials): Address {
  const known = addresses.get(connection);
  if (known?.credentials === credentials) return known;
  const { provider: definition, integrationConfig } = connection.integration;
  const subject = { definition, credentials, values: templateValues(connection) };
  const placed = filled(() => placeCredentials(subject));
  let base: string | undefined;
  const address = {
    credentials,
    placed,
    base: () => (base ??= filled(() => apiBase(subject))),
    placedNames: [...new URLSearchParams(placed.query).keys()],
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
