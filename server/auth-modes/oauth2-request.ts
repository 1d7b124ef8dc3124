/**
 * The part of a request that all OAuth endpoints and grants share (RFC 6749 §3.2): server, client and client
 * authentication for oauth4webapi, made from a definition; a token request, its time limit, and its tokens or fault.
 *
 * Does not own: the parameters of a grant (`oauth2.ts`, `client-credentials.ts`), the shape of a response
 * (`token-response.ts`), the meaning of an error (`token-fault.ts`).
 */
import * as oauth from 'oauth4webapi';
import type { Fetch } from '../outbound/outbound.ts';
import { type ProviderDefinition, templateFields } from '../providers/definition.ts';
import {
  fillAddress,
  fillHeader,
  isFillable,
  placeholdersOf,
  type TemplateValues,
} from '../providers/template.ts';
import { clientCertificate, privateKeyJwt, UnusableClientKeyError } from './client-key.ts';
import { faultOfAnswer, faultOfSilence, protocolFault, type TokenFault } from './token-fault.ts';
import {
  type JsonObject,
  normalizingFetch,
  type SeenAnswer,
  UnreadableAnswerError,
} from './token-response.ts';

/** The OAuth client at the provider, and the scopes to request. */
export type OAuthClient = {
  readonly clientId: string;
  readonly clientSecret: string;
  readonly scopes: readonly string[];
  /** The private key and the certificate, in PEM, which the client presents in addition to its secret; absent: none. */
  readonly certificate?: string;
};

/** Of every request: the endpoints, the values for their placeholders, and the client. */
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
  if (authorization === undefined)
    throw new TypeError(`the provider "${definition.name}" has no authorization endpoint`);
  return { authorization, token };
}

/** The definition's token section. Throws TypeError for a provider that has none. */
export function tokenSection({ name, token }: ProviderDefinition) {
  if (token === undefined) throw new TypeError(`the provider "${name}" has no token endpoint`);
  return token;
}

/** Parameters of a token request, filled; without those that have a placeholder without a value. */
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

/** Whether a template contains a setting of the connection. */
export function isOfConnection(template: string): boolean {
  return placeholdersOf(template).some(({ source }) => source === 'connectionConfig');
}

/**
 * The address of the authorization page. An entry of `extraParams`, which come from the browser, is used only if the
 * definition lists it and its value matches. The scopes and `own`, the parameters of the protocol, are set last, so that
 * nothing replaces them. Throws TemplateError.
 */
export function authorizationUrl(
  context: OAuthContext & { extraParams?: Readonly<Record<string, string>> },
  own: Readonly<Record<string, string>>,
): string {
  const { definition, client, extraParams: given } = context;
  const { authorization } = protocolOf(definition);
  const url = new URL(address(context, authorization.url));
  const params = url.searchParams;
  for (const [name, value] of Object.entries(authorization.params)) params.set(name, value);
  for (const [name, { pattern }] of Object.entries(authorization.browser_params)) {
    const value = given !== undefined && Object.hasOwn(given, name) ? given[name] : undefined;
    if (value !== undefined && new RegExp(`^(?:${pattern})$`, 'u').test(value)) params.set(name, value);
  }
  if (client.scopes.length > 0)
    params.set(authorization.scope_param ?? 'scope', client.scopes.join(definition.scopes.separator));
  for (const [name, value] of Object.entries(own)) params.set(name, value);
  // RFC 3986 encoding: some providers compare scope and redirect_uri before they decode "+" as a space.
  return url.href.replaceAll('+', '%20');
}

/** The provider as oauth4webapi takes it (RFC 8414). If the definition has no issuer, the issuer is the origin. */
export function serverOf({ definition }: OAuthContext, tokenEndpoint: string) {
  return {
    issuer: definition.issuer?.url ?? new URL(tokenEndpoint).origin,
    token_endpoint: tokenEndpoint,
    authorization_response_iss_parameter_supported: definition.issuer?.iss_in_callback === 'required',
  };
}

/** Clocks may differ by a minute. The checks of an id_token use `now`. */
export function clientOf({ client, now }: OAuthContext & Partial<Network>): oauth.Client {
  const skewS = now === undefined ? 0 : Math.round((now.getTime() - Date.now()) / 1000);
  return { client_id: client.clientId, [oauth.clockTolerance]: 60, [oauth.clockSkew]: skewS };
}

/** The client authentication at the token endpoint (RFC 6749 §2.3.1, RFC 7523 §2.2, RFC 8705 §2). */
export function clientAuth(context: OAuthContext & Partial<Network>): oauth.ClientAuth {
  const { definition, client } = context;
  const token = tokenSection(definition);
  const { auth_method: method, client_id_param: idParam } = token;
  if (method === 'none') return oauth.None();
  if (method === 'tls_client_auth') return oauth.TlsClientAuth();
  if (method === 'private_key_jwt') {
    const { key_id: keyId, audience } = tokenParams(context, assertionTexts(token));
    return privateKeyJwt(client.clientSecret, {
      token,
      ...(keyId !== undefined && { keyId }),
      audience: audience ?? address(context, token.url),
      now: context.now ?? new Date(),
    });
  }
  if (idParam !== 'client_id') return renamedPost(idParam, client.clientSecret);
  return method === 'client_secret_basic'
    ? basicAuth(client.clientSecret)
    : oauth.ClientSecretPost(client.clientSecret);
}

function assertionTexts({ client_assertion: rules }: ReturnType<typeof tokenSection>) {
  return {
    ...(rules?.key_id !== undefined && { key_id: rules.key_id }),
    ...(rules?.audience !== undefined && { audience: rules.audience }),
  };
}

/** The `fetch` of a request by the client: with its certificate if it has one, which may have expired. */
export function clientFetch({
  definition,
  client,
  fetch,
  now,
}: OAuthContext & Network): { fetch: Fetch } | { fault: TokenFault } {
  const isSecret = tokenSection(definition).auth_method === 'tls_client_auth';
  const text = isSecret ? client.clientSecret : client.certificate;
  if (text === undefined) return { fetch };
  try {
    const certificate = clientCertificate(text, now ?? new Date());
    return { fetch: (url, init) => fetch(url, { ...init, clientCertificate: certificate }) };
  } catch (error) {
    return { fault: tokenFaultOf(error, { definition, client, seen: undefined }) };
  }
}

/**
 * RFC 6749 §2.3.1, which encodes only the characters that need it: many providers decode neither part, and accept an ID
 * such as `a1-b2` only unencoded.
 */
function basicAuth(clientSecret: string): oauth.ClientAuth {
  const encoded = (text: string) => new URLSearchParams({ '': text }).toString().slice(1);
  return (_server, { client_id }, _body, headers) => {
    const pair = Buffer.from(`${encoded(client_id)}:${encoded(clientSecret)}`).toString('base64');
    headers.set('authorization', `Basic ${pair}`);
  };
}

/** As `ClientSecretPost`, with another name for the ID. */
function renamedPost(idParam: string, clientSecret: string): oauth.ClientAuth {
  return (_server, { client_id }, body) => {
    body.set(idParam, client_id);
    body.set('client_secret', clientSecret);
  };
}

/** The fault behind an error of oauth4webapi or of the normalizing fetch. Rethrows any other error. */
export function tokenFaultOf(
  error: unknown,
  given: Pick<OAuthContext, 'definition' | 'client'> & { seen: SeenAnswer | undefined },
): TokenFault {
  const { definition, client, seen } = given;
  if (error instanceof UnreadableAnswerError) return faultOfSilence(error);
  if (error instanceof UnusableClientKeyError)
    return { kind: 'client_misconfigured', error: 'invalid_key', isOfClient: true };
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

/** `fillAddress` accepts plain http only for loopback, where the sandbox is. */
export function isPlainHttp(endpoint: string): boolean {
  return endpoint.startsWith('http://');
}

export type Tokens = {
  readonly accessToken: string;
  /** Absent if the response has none; after a refresh the previous refresh token then stays valid. */
  readonly refreshToken?: string;
  readonly tokenType: 'Bearer';
  /** Absent if the response has no expiry and the token cannot be renewed. */
  readonly expiresAt?: Date;
  readonly refreshExpiresAt?: Date;
  /** The granted scopes; absent if the response to a refresh has none, which changes nothing. */
  readonly scopes?: readonly string[];
  /** Claims of an id_token with checked issuer, audience and times; only from an exchange. */
  readonly idTokenClaims?: JsonObject;
  /** The provider has neither issued the token nor accepted it: the service signed it, or has it from the import. */
  readonly isUnproven?: boolean;
  /** Of `OAUTH1` (RFC 5849 §2.3). */
  readonly tokenSecret?: string;
  /** What `TWO_STEP` stores besides: its own refresh token, and the lifetime in seconds. */
  readonly session?: { readonly refresh_token?: string; readonly life_s: number };
  /** The provider's whole response, decoded. Contains secrets. */
  readonly raw: JsonObject;
};
/** RFC 6749 §3.3 allows no control character in a scope. PostgreSQL stores no NUL, which must not lose the tokens. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the expression removes control characters
const noScopeText = /[\u0000-\u001f\u007f]+/g;

export type TokenOutcome =
  | { readonly ok: true; readonly tokens: Tokens }
  | { readonly ok: false; readonly fault: TokenFault };

/** The request of one grant, and the defaults for its response. */
type TokenRequest = {
  endpoint: string;
  request: (options: oauth.TokenEndpointRequestOptions) => Promise<Response>;
  judge: (response: Response) => Promise<oauth.TokenEndpointResponse>;
  keepIdToken: boolean;
  /** Whether the token can be renewed even if the response has no refresh token. */
  isRenewable: boolean;
  /** The granted scopes if the response has none; undefined if they do not change. */
  defaultScopes: readonly string[] | undefined;
};

/** Sends a token request and reads its response. Throws AppError when the address may not be reached. */
export async function tokenOutcome(
  context: OAuthContext & Network,
  request: TokenRequest,
): Promise<TokenOutcome> {
  const { definition, client } = context;
  const token = tokenSection(definition);
  const by = clientFetch(context);
  if ('fault' in by) return { ok: false, fault: by.fault };
  const answer = normalizingFetch({
    fetch: by.fetch,
    token: { ...token, timeout_ms: context.timeoutMs ?? token.timeout_ms },
    keepIdToken: request.keepIdToken,
    signal: context.signal,
    now: context.now,
  });
  try {
    const response = await request.request({
      [oauth.customFetch]: answer.fetch,
      [oauth.allowInsecureRequests]: isPlainHttp(request.endpoint),
    });
    const judged = await request.judge(response);
    if (judged.token_type !== 'bearer')
      return { ok: false, fault: protocolFault('token_type_unsupported', answer.seen()) };
    return { ok: true, tokens: tokensOf(judged, { context, raw: answer.seen()?.raw ?? {}, request }) };
  } catch (error) {
    return { ok: false, fault: tokenFaultOf(error, { definition, client, seen: answer.seen() }) };
  }
}

function tokensOf(
  judged: oauth.TokenEndpointResponse,
  { context, raw, request }: { context: OAuthContext & Network; raw: JsonObject; request: TokenRequest },
): Tokens {
  const { definition } = context;
  const now = (context.now ?? new Date()).getTime();
  const canRefresh = request.isRenewable || judged.refresh_token !== undefined;
  const expiresInS = judged.expires_in ?? (canRefresh ? definition.refresh.default_expires_in_s : undefined);
  const refreshExpiresInS = judged.refresh_token_expires_in;
  const claims = oauth.getValidatedIdTokenClaims(judged);
  const granted = judged.scope
    ?.replace(noScopeText, '')
    // A scope never contains a space, whatever separator a provider uses (RFC 6749 §3.3).
    .split(definition.scopes.granted_separator ?? definition.scopes.separator)
    .flatMap((part) => part.split(' '))
    .filter((scope) => scope !== '');
  const scopes = granted ?? request.defaultScopes;
  return {
    accessToken: judged.access_token,
    tokenType: 'Bearer',
    raw,
    ...(judged.refresh_token !== undefined && { refreshToken: judged.refresh_token }),
    ...(expiresInS !== undefined && { expiresAt: new Date(now + expiresInS * 1000) }),
    ...(typeof refreshExpiresInS === 'number' &&
      refreshExpiresInS > 0 && { refreshExpiresAt: new Date(now + refreshExpiresInS * 1000) }),
    ...(scopes !== undefined && { scopes }),
    ...(claims !== undefined && { idTokenClaims: claims as JsonObject }),
  };
}
