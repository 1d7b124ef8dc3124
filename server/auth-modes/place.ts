/**
 * Puts a connection's credentials on a request: for the proxy, for the connect pages and for verification alike.
 * Pure. The definition's `placement` says where, else the mode's own.
 */
import { credentialHeaderFault, isUnsendable } from '../providers/credential-header.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { templateFields } from '../providers/definition.ts';
import { fillAddress, fillHeader, fillPath, isFillable } from '../providers/template.ts';
import { nameOf, placeholdersOf, TemplateError, type TemplateValues } from '../providers/template-grammar.ts';
import { type Credentials, modeOf } from './mode.ts';

export type Placed = {
  /** Names as to be sent. The sender drops the caller's headers of the same names first. */
  readonly headers: Readonly<Record<string, string>>;
  /** Percent-encoded pairs without a leading `?`; empty when nothing goes there. */
  readonly query: string;
  /** A field of the body, as its value reads unescaped; absent when nothing goes there. */
  readonly body?: { readonly name: string; readonly value: string };
};

/** Where a call of this connection goes and what proves who it is. */
type PlacedRequest = Placed & { readonly method: string; readonly url: string };

type Connection = {
  readonly definition: ProviderDefinition;
  readonly credentials: Credentials;
  /** The connection's and the integration's configuration; credentials are added here. */
  readonly values: Omit<TemplateValues, 'credentials'>;
};

/**
 * The definition's fixed headers and the credentials. Throws TemplateError naming the field that is missing, does not
 * fit into a header, or names a header that may not carry credentials; the message holds no value.
 */
export function placeCredentials(connection: Connection): Placed {
  const { definition, credentials } = connection;
  const mode = modeOf(credentials);
  const values = allValues(connection);
  const headers: [string, string][] = Object.entries(definition.api.headers).map(([name, value]) => [
    name,
    fillHeader(value, { values }),
  ]);
  const choices = definition.placement.length > 0 ? definition.placement : mode.placement;
  const choice = choices.find(({ name, value }) => isFillable(name, values) && isFillable(value, values));
  if (choice === undefined) {
    if (choices.length > 0) throw new TemplateError('the connection lacks a value for its credentials');
    return { headers: Object.fromEntries(headers), query: '' };
  }
  const name = fillHeader(choice.name, { values });
  const value = fillHeader(choice.value, { values });
  if (choice.in === 'query') {
    return {
      headers: Object.fromEntries(headers),
      query: `${encodeURIComponent(name)}=${encodeURIComponent(value)}`,
    };
  }
  if (choice.in === 'body') return { headers: Object.fromEntries(headers), query: '', body: { name, value } };
  requireSendable(name, choice.name);
  const others = headers.filter(([fixed]) => fixed.toLowerCase() !== name.toLowerCase());
  return { headers: Object.fromEntries([...others, [name, value]]), query: '' };
}

/** A name that a setting chose is refused for more than one that the definition fixes. */
function requireSendable(name: string, template: string): void {
  if (isUnsendable(name))
    throw new TemplateError('the header for the credentials has a name that cannot be sent');
  const [setting] = placeholdersOf(template);
  const fault = setting && credentialHeaderFault(name);
  if (fault !== undefined)
    throw new TemplateError(`names a header that may not carry credentials: it ${fault}`, nameOf(setting!));
}

/** Where the connection's API starts, without a trailing slash. Throws TemplateError. */
export function apiBase(connection: Connection): string {
  const { definition } = connection;
  const filled = fillAddress(definition.api.base_url, {
    values: allValues(connection),
    fields: templateFields(definition),
  });
  return filled.replace(/\/+$/, '');
}

/**
 * The call that tells whether the credentials work; `connections/verify.ts` says what its answer means. Undefined when
 * the definition names none, or its path has a placeholder that was left empty. Throws TemplateError.
 */
export function verificationRequest(connection: Connection): PlacedRequest | undefined {
  const { verification } = connection.definition;
  const values = allValues(connection);
  if (verification === undefined || !isFillable(verification.path, values)) return undefined;
  const placed = placeCredentials(connection);
  const path = fillPath(verification.path, { values, fields: templateFields(connection.definition) });
  return { ...placed, method: verification.method, url: withQuery(apiBase(connection) + path, placed.query) };
}

/** Adds encoded pairs to an address or raw path; every byte that was there stays. */
export function withQuery(target: string, query: string): string {
  if (query === '') return target;
  return `${target}${target.includes('?') ? '&' : '?'}${query}`;
}

function allValues({ credentials, values }: Connection): TemplateValues {
  return { ...values, credentials: modeOf(credentials).templateValues(credentials) };
}
