/**
 * OAuth 2.0 with authorization code and refresh (RFC 6749), PKCE (RFC 7636) and `iss` (RFC 9207).
 *
 * Owns: the requests and their judgement, on top of oauth4webapi, whose types keep the order safe: a code can only be
 * exchanged out of a callback whose state and issuer have been checked. Does not own: sessions, attempts and cookies
 * (`connect/`), tables and refresh leases (`connections/`), who the account is (`account.ts`), ending a grant
 * (`revocation.ts`), what the provider's errors mean (`token-fault.ts`). All network goes through the `fetch` that is passed in.
 */
import * as oauth from 'oauth4webapi';
import type { ProviderDefinition } from '../providers/definition.ts';
import {
  address,
  clientAuth,
  clientOf,
  faultOf,
  isPlainHttp,
  type Network,
  type OAuthContext,
  protocolOf,
  serverOf,
} from './oauth2-request.ts';
import { faultOfCallback, protocolFault, type TokenFault } from './token-fault.ts';
import { type JsonObject, normalizingFetch, type SeenAnswer } from './token-response.ts';

export type Tokens = {
  readonly accessToken: string;
  /** Only when the answer holds one; a refresh answer without it means that the old one stays good. */
  readonly refreshToken?: string;
  readonly tokenType: 'Bearer';
  /** Absent when the answer names no end and there is nothing to refresh with. */
  readonly expiresAt?: Date;
  readonly refreshExpiresAt?: Date;
  /** What was granted; absent on a refresh answer that does not say, which changes nothing. */
  readonly scopes?: readonly string[];
  /** Claims of an id_token whose issuer, audience and times were checked; only from an exchange. */
  readonly idTokenClaims?: JsonObject;
  /** The provider's whole answer as decoded. Holds secrets. */
  readonly raw: JsonObject;
};
/** RFC 6749 §3.3 has no control characters in a scope; PostgreSQL stores no NUL, and the tokens must not be lost for it. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is taken out
const noScopeText = /[\u0000-\u001f\u007f]+/g;

export type TokenOutcome =
  | { readonly ok: true; readonly tokens: Tokens }
  | { readonly ok: false; readonly fault: TokenFault };

/**
 * Where to send the browser, with the secrets to keep until it returns. `extraParams` from the browser count only if
 * the definition lists them and their value fits; anything else in it is dropped. The parameters of the protocol are
 * set last, so nothing replaces them. Throws TemplateError when a placeholder has no fitting value.
 */
export async function authorizationRequest(
  context: OAuthContext & {
    redirectUri: string;
    state?: string;
    extraParams?: Readonly<Record<string, string>>;
  },
): Promise<{ url: string; state: string; codeVerifier: string | undefined }> {
  const { definition, client, redirectUri } = context;
  const { authorization } = protocolOf(definition);
  const state = context.state ?? oauth.generateRandomState();
  const codeVerifier = authorization.pkce === 'S256' ? oauth.generateRandomCodeVerifier() : undefined;
  const url = new URL(address(context, authorization.url));
  const params = url.searchParams;
  for (const [name, value] of Object.entries(authorization.params)) params.set(name, value);
  for (const [name, { pattern }] of Object.entries(authorization.browser_params)) {
    const given = context.extraParams;
    const value = given !== undefined && Object.hasOwn(given, name) ? given[name] : undefined;
    if (value !== undefined && new RegExp(`^(?:${pattern})$`, 'u').test(value)) params.set(name, value);
  }
  params.set('response_type', 'code');
  params.set('client_id', client.clientId);
  params.set('redirect_uri', redirectUri);
  if (client.scopes.length > 0)
    params.set(authorization.scope_param ?? 'scope', client.scopes.join(definition.scopes.separator));
  params.set('state', state);
  if (codeVerifier !== undefined) {
    params.set('code_challenge', await oauth.calculatePKCECodeChallenge(codeVerifier));
    params.set('code_challenge_method', 'S256');
  }
  // RFC 3986 spelling: some providers compare scope and redirect_uri before they turn "+" into a space.
  return { url: url.href.replaceAll('+', '%20'), state, codeVerifier };
}

/**
 * Judges a callback and exchanges its code. State and issuer are checked before anything is sent; a mismatch is the
 * fault `state_mismatch` or `iss_mismatch`, a refusal of the person `denied`. An id_token is checked as OpenID Connect
 * Core §3.1.3.7 asks; its signature is not, since it comes straight from the token endpoint over TLS (item 6).
 * Throws TemplateError, and AppError when the address may not be reached.
 */
export async function exchangeCode(
  context: OAuthContext &
    Network & {
      callbackParams: URLSearchParams;
      redirectUri: string;
      expectedState: string;
      codeVerifier: string | undefined;
    },
): Promise<TokenOutcome> {
  const { definition, callbackParams } = context;
  const { token } = protocolOf(definition);
  const server = serverOf(context, address(context, token.url));
  const client = clientOf(context);
  const checked = checkCallback(server, client, context);
  if ('kind' in checked) return { ok: false, fault: checked };
  if (!callbackParams.get('code')) return { ok: false, fault: protocolFault('code_missing') };
  const request = (options: oauth.TokenEndpointRequestOptions) =>
    oauth.authorizationCodeGrantRequest(
      server,
      client,
      clientAuth(context),
      checked,
      context.redirectUri,
      context.codeVerifier ?? oauth.nopkce,
      { ...options, additionalParameters: token.params },
    );
  return tokenOutcome(context, {
    endpoint: server.token_endpoint,
    request,
    judge: (response) => oauth.processAuthorizationCodeResponse(server, client, response),
    keepIdToken: definition.issuer !== undefined,
    isRefresh: false,
  });
}

/**
 * Asks for a new access token. On success `refreshToken` is there only when the provider sent one: it replaces the old
 * one. An id_token of the answer is not judged, so that a fault in it cannot lose a rotated refresh token.
 * Throws TemplateError, and AppError when the address may not be reached.
 */
export async function refreshToken(
  context: OAuthContext & Network & { refreshToken: string },
): Promise<TokenOutcome> {
  const { definition } = context;
  const { token } = protocolOf(definition);
  const server = serverOf(context, address(context, definition.refresh.url ?? token.url));
  const client = clientOf(context);
  const request = (options: oauth.TokenEndpointRequestOptions) =>
    oauth.refreshTokenGrantRequest(server, client, clientAuth(context), context.refreshToken, {
      ...options,
      additionalParameters: definition.refresh.params,
    });
  return tokenOutcome(context, {
    endpoint: server.token_endpoint,
    request,
    judge: (response) => oauth.processRefreshTokenResponse(server, client, response),
    keepIdToken: false,
    isRefresh: true,
  });
}

type TokenRequest = {
  endpoint: string;
  request: (options: oauth.TokenEndpointRequestOptions) => Promise<Response>;
  judge: (response: Response) => Promise<oauth.TokenEndpointResponse>;
  keepIdToken: boolean;
  isRefresh: boolean;
};

async function tokenOutcome(context: OAuthContext & Network, asked: TokenRequest): Promise<TokenOutcome> {
  const { definition } = context;
  const { token } = protocolOf(definition);
  let seen: SeenAnswer | undefined;
  const fetchAnswer = normalizingFetch({
    fetch: context.fetch,
    token: { ...token, timeout_ms: context.timeoutMs ?? token.timeout_ms },
    keepIdToken: asked.keepIdToken,
    signal: context.signal,
    now: context.now,
    seen: (answer) => {
      seen = answer;
    },
  });
  try {
    const response = await asked.request({
      [oauth.customFetch]: fetchAnswer,
      [oauth.allowInsecureRequests]: isPlainHttp(asked.endpoint),
    });
    const judged = await asked.judge(response);
    if (judged.token_type !== 'bearer')
      return { ok: false, fault: protocolFault('token_type_unsupported', seen) };
    return {
      ok: true,
      tokens: tokensOf(judged, { context, raw: seen?.raw ?? {}, isRefresh: asked.isRefresh }),
    };
  } catch (error) {
    return { ok: false, fault: faultOf(error, { definition, seen }) };
  }
}

function tokensOf(
  judged: oauth.TokenEndpointResponse,
  { context, raw, isRefresh }: { context: OAuthContext & Network; raw: JsonObject; isRefresh: boolean },
): Tokens {
  const { definition, client } = context;
  const now = (context.now ?? new Date()).getTime();
  const canRefresh = isRefresh || judged.refresh_token !== undefined;
  const expiresInS = judged.expires_in ?? (canRefresh ? definition.refresh.default_expires_in_s : undefined);
  const refreshExpiresInS = judged.refresh_token_expires_in;
  const claims = oauth.getValidatedIdTokenClaims(judged);
  const granted = judged.scope
    ?.replace(noScopeText, '')
    // Whatever divides them at a provider, none holds a space (RFC 6749 §3.3).
    .split(definition.scopes.granted_separator ?? definition.scopes.separator)
    .flatMap((part) => part.split(' '))
    .filter((scope) => scope !== '');
  // RFC 6749 §5.1: an answer to a code that names no scope grants what was asked for.
  const scopes = granted ?? (isRefresh ? undefined : client.scopes);
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

function checkCallback(
  server: oauth.AuthorizationServer,
  client: oauth.Client,
  {
    definition,
    callbackParams,
    expectedState,
  }: { definition: ProviderDefinition; callbackParams: URLSearchParams; expectedState: string },
): URLSearchParams | TokenFault {
  const params = new URLSearchParams(callbackParams);
  // Without an issuer in the definition there is nothing to compare an `iss` with.
  if (definition.issuer === undefined) params.delete('iss');
  try {
    return oauth.validateAuthResponse(server, client, params, expectedState);
  } catch (error) {
    if (error instanceof oauth.AuthorizationResponseError)
      return faultOfCallback(definition.token?.errors ?? {}, params);
    if (
      !(error instanceof oauth.OperationProcessingError || error instanceof oauth.UnsupportedOperationError)
    )
      throw error;
    if (params.getAll('state').join() !== expectedState) return protocolFault('state_mismatch');
    const isIssuerWrong = definition.issuer !== undefined && params.getAll('iss').join() !== server.issuer;
    return protocolFault(isIssuerWrong ? 'iss_mismatch' : 'invalid_callback');
  }
}
