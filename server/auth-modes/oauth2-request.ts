/**
 * What all requests to a provider's OAuth endpoints share: the server, client and client authentication that
 * oauth4webapi wants, out of a definition, and the fault behind what it throws.
 */
import * as oauth from 'oauth4webapi';
import { type ProviderDefinition, templateFields } from '../providers/definition.ts';
import { fillAddress, fillHeader, isFillable } from '../providers/template.ts';
import type { TemplateValues } from '../providers/template-grammar.ts';
import { faultOfAnswer, faultOfSilence, protocolFault, type TokenFault } from './token-fault.ts';
import { type Fetch, type SeenAnswer, UnreadableAnswerError } from './token-response.ts';

/** Our OAuth client at the provider. `scopes` are those that are asked for. */
type OAuthClient = {
  readonly clientId: string;
  readonly clientSecret: string;
  readonly scopes: readonly string[];
};

/** What every request needs: whose endpoints, filled with which values, by which client. */
export type OAuthContext = {
  readonly definition: ProviderDefinition;
  /** For the placeholders of the definition's addresses. */
  readonly values?: TemplateValues;
  readonly client: OAuthClient;
};
export type Network = {
  readonly fetch: Fetch;
  /** Defaults to the system's clock. */
  readonly now?: Date;
  readonly signal?: AbortSignal;
  /** Instead of the definition's `token.timeout_ms`. */
  readonly timeoutMs?: number;
};

/** The definition's authorization and token sections. Throws TypeError for a provider that lacks one. */
export function protocolOf(definition: ProviderDefinition) {
  const { authorization } = definition;
  const token = tokenSection(definition);
  if (authorization === undefined) throw new TypeError(`the provider "${definition.name}" asks nobody`);
  return { authorization, token };
}

/** The definition's token section. Throws TypeError for a provider that has none. */
export function tokenSection({ name, token }: ProviderDefinition) {
  if (token === undefined) throw new TypeError(`the provider "${name}" does not speak OAuth 2.0`);
  return token;
}

/** Parameters of a token request, filled; one whose placeholders were left empty is not sent. */
export function tokenParams(
  { values = {} }: OAuthContext,
  templates: Readonly<Record<string, string>>,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(templates)
      .filter(([, template]) => isFillable(template, values))
      .map(([name, template]) => [name, fillHeader(template, { values })]),
  );
}

/** An address of the definition, filled. Throws TemplateError. */
export function address({ definition, values = {} }: OAuthContext, template: string): string {
  return fillAddress(template, { values, fields: templateFields(definition) });
}

/** The provider as oauth4webapi sees it (RFC 8414). Without an issuer in the definition its origin stands in. */
export function serverOf({ definition }: OAuthContext, tokenEndpoint: string) {
  return {
    issuer: definition.issuer?.url ?? new URL(tokenEndpoint).origin,
    token_endpoint: tokenEndpoint,
    authorization_response_iss_parameter_supported: definition.issuer?.iss_in_callback === 'required',
  };
}

/** Clocks may differ by a minute; `now` is what the checks of an id_token count from. */
export function clientOf({ client, now }: OAuthContext & Partial<Network>): oauth.Client {
  const skewS = now === undefined ? 0 : Math.round((now.getTime() - Date.now()) / 1000);
  return { client_id: client.clientId, [oauth.clockTolerance]: 60, [oauth.clockSkew]: skewS };
}

/** How the client proves itself at the token endpoint (RFC 6749 §2.3.1). */
export function clientAuth({ definition, client }: OAuthContext): oauth.ClientAuth {
  const method = tokenSection(definition).auth_method;
  if (method === 'none') return oauth.None();
  return method === 'client_secret_basic'
    ? basicAuth(client.clientSecret)
    : oauth.ClientSecretPost(client.clientSecret);
}

/**
 * RFC 6749 §2.3.1, where only what the encoding must encode is encoded: many providers decode neither part, and take an
 * ID such as `a1-b2` only as it is.
 */
function basicAuth(clientSecret: string): oauth.ClientAuth {
  const encoded = (text: string) => new URLSearchParams({ '': text }).toString().slice(1);
  return (_server, { client_id }, _body, headers) => {
    const pair = Buffer.from(`${encoded(client_id)}:${encoded(clientSecret)}`).toString('base64');
    headers.set('authorization', `Basic ${pair}`);
  };
}

/** The fault behind what oauth4webapi or the normalising fetch threw. Rethrows what is neither. */
export function faultOf(
  error: unknown,
  {
    definition,
    client,
    seen,
  }: Pick<OAuthContext, 'definition' | 'client'> & { seen: SeenAnswer | undefined },
): TokenFault {
  if (error instanceof UnreadableAnswerError) return faultOfSilence(error);
  if (error instanceof oauth.ResponseBodyError && seen !== undefined) {
    const sent = [client.clientSecret, ...seen.sent];
    return faultOfAnswer(definition.token?.errors ?? {}, { ...seen, sent, error: error.error });
  }
  if (error instanceof oauth.OperationProcessingError || error instanceof oauth.UnsupportedOperationError) {
    if (seen?.httpStatus === 429) return { ...protocolFault('too_many_requests', seen), kind: 'transient' };
    const isIdToken = error.code === oauth.JWT_CLAIM_COMPARISON || error.code === oauth.JWT_TIMESTAMP_CHECK;
    return protocolFault(isIdToken ? 'invalid_id_token' : 'invalid_answer', seen);
  }
  throw error;
}

/** Only loopback passes `fillAddress` as plain http: the sandbox. */
export function isPlainHttp(endpoint: string): boolean {
  return endpoint.startsWith('http://');
}
