/**
 * Puts a connection's credentials on a request: for the proxy, the connect pages and the verification. Pure, except
 * that a certificate may have expired. The definition's `placement` says where they go, else the mode's own.
 */
import { AppError } from '../errors.ts';
import type { ClientCertificate } from '../outbound/outbound.ts';
import { credentialHeaderFault, isUnsendable } from '../providers/credential-header.ts';
import { type ProviderDefinition, templateFields } from '../providers/definition.ts';
import {
  fillAddress,
  fillHeader,
  fillPath,
  isFillable,
  nameOf,
  placeholdersOf,
  TemplateError,
  type TemplateValues,
} from '../providers/template.ts';
import { clientCertificate, UnusableClientKeyError } from './client-key.ts';
import type { Signer } from './mode.ts';
import { type Credentials, modeNamed } from './modes.ts';
import type { OAuthClient } from './oauth2-request.ts';

export type Placed = {
  /** With the names to send. The sender first removes the caller's headers of the same names. */
  readonly headers: Readonly<Record<string, string>>;
  /** Percent-encoded pairs without a leading `?`; empty if there are none. */
  readonly query: string;
  /** For credentials that sign each request; absent: they are placed. */
  readonly signer?: Signer;
  /** A field of the body, with its unescaped value; absent if there is none. */
  readonly body?: { readonly name: string; readonly value: string };
  /** Presented in the TLS connection; absent: none. */
  readonly clientCertificate?: ClientCertificate;
};

/** A whole request of the connection, with its credentials. */
export type PlacedRequest = Placed & { readonly method: string; readonly url: string };

type Connection = {
  readonly definition: ProviderDefinition;
  readonly credentials: Credentials;
  /** The configuration of the connection and the integration, without credentials. */
  readonly values: Omit<TemplateValues, 'credentials'>;
  /** The integration's OAuth client, for credentials that sign with it. */
  readonly client?: Pick<OAuthClient, 'clientId' | 'clientSecret'> | undefined;
};

/**
 * The definition's fixed headers and the credentials. Throws TemplateError naming the field that is missing, does not
 * fit into a header, or names a header that may not carry credentials; the message does not contain the value. Throws
 * `connection_needs_reauth` (424) if the certificate of the connection has expired.
 */
export function placeCredentials(connection: Connection): Placed {
  const certificate = certificateIn(connection);
  const placed = placedInRequest(connection);
  return certificate === undefined ? placed : { ...placed, clientCertificate: certificate };
}

function certificateIn({ credentials }: Connection): ClientCertificate | undefined {
  const text = modeNamed(credentials.type).certificateOf?.(credentials);
  try {
    return text === undefined ? undefined : clientCertificate(text, new Date());
  } catch (error) {
    if (!(error instanceof UnusableClientKeyError)) throw error;
    const message = `The private key of this connection ${error.reason}: its user needs to enter another.`;
    throw new AppError('connection_needs_reauth', message, { cause: error });
  }
}

function placedInRequest(connection: Connection): Placed {
  const { definition, credentials } = connection;
  const mode = modeNamed(credentials.type);
  const values = allValues(connection);
  const signer = signerOf(connection);
  const fixed = Object.entries(definition.api.headers).map(([name, value]): [string, string] => [
    name,
    fillHeader(value, { values }),
  ]);
  const headers = Object.fromEntries(fixed);
  if (signer !== undefined) return { headers, query: '', signer };
  const choices = definition.placement.length > 0 ? definition.placement : mode.placement;
  const choice = choices.find(({ name, value }) => isFillable(name, values) && isFillable(value, values));
  if (choice === undefined) {
    if (choices.length > 0) throw new TemplateError('the connection lacks a value for its credentials');
    return { headers, query: '' };
  }
  const name = fillHeader(choice.name, { values });
  const value = fillHeader(choice.value, { values });
  if (choice.in === 'query')
    return { headers, query: `${encodeURIComponent(name)}=${encodeURIComponent(value)}` };
  if (choice.in === 'body') return { headers, query: '', body: { name, value } };
  requireSendable(name, choice.name);
  const others = fixed.filter(([other]) => other.toLowerCase() !== name.toLowerCase());
  return { headers: Object.fromEntries([...others, [name, value]]), query: '' };
}

/** Signs the requests of the connection; undefined if its credentials are placed. Throws TemplateError. */
export function signerOf({ definition, credentials, values, client }: Connection): Signer | undefined {
  return modeNamed(credentials.type).signer?.(credentials, { definition, values, client });
}

/** The headers of a request without a body, with its signature if the credentials sign it. */
export async function signedHeaders(request: {
  method: string;
  url: string;
  headers: Readonly<Record<string, string>>;
  signer?: Signer | undefined;
}): Promise<Record<string, string>> {
  const { method, url, headers, signer } = request;
  const given = { method, url, headers: Object.entries(headers).flat(), body: Buffer.alloc(0) };
  return { ...headers, ...(await signer?.sign(given)) };
}

/** A name from a setting has more restrictions than a fixed name of the definition. */
function requireSendable(name: string, template: string): void {
  if (isUnsendable(name))
    throw new TemplateError('the header for the credentials has a name that cannot be sent');
  const [setting] = placeholdersOf(template);
  const fault = setting && credentialHeaderFault(name);
  if (fault !== undefined)
    throw new TemplateError(`names a header that may not carry credentials: it ${fault}`, nameOf(setting!));
}

/** The base address of the connection's API, without a trailing slash. Throws TemplateError and `unsupported_provider`. */
export function apiBase(connection: Connection): string {
  return filledBase(connection.definition.api.base_url, connection);
}

function filledBase(template: string | null, connection: Connection): string {
  if (template === null) {
    const message =
      'The provider has no HTTP API. Read the credentials with GET /connections/{id}, and connect with them.';
    throw new AppError('unsupported_provider', message);
  }
  const { definition } = connection;
  const filled = fillAddress(template, {
    values: allValues(connection),
    fields: templateFields(definition),
  });
  return filled.replace(/\/+$/, '');
}

/**
 * The call that verifies the credentials; `connections/verify.ts` reads its response. Undefined if the
 * definition has none, or if its path has a placeholder without a value. Throws TemplateError.
 */
export function verificationRequest(connection: Connection): PlacedRequest | undefined {
  const { verification } = connection.definition;
  const values = allValues(connection);
  if (verification === undefined || !isFillable(verification.path, values)) return undefined;
  const placed = placeCredentials(connection);
  const path = fillPath(verification.path, { values, fields: templateFields(connection.definition) });
  const base = filledBase(verification.base_url ?? connection.definition.api.base_url, connection);
  return { ...placed, method: verification.method, url: withQuery(base + path, placed.query) };
}

/** Adds encoded pairs to an address or raw path, which is not changed otherwise. */
export function withQuery(target: string, query: string): string {
  if (query === '') return target;
  return `${target}${target.includes('?') ? '&' : '?'}${query}`;
}

function allValues({ credentials, values }: Connection): TemplateValues {
  return { ...values, credentials: modeNamed(credentials.type).templateValues(credentials) };
}
