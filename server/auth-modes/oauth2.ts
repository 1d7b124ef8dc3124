/**
 * OAuth 2.0 with authorization code and refresh (RFC 6749), PKCE (RFC 7636) and `iss` (RFC 9207).
 *
 * Owns: the requests and their judgement, on top of oauth4webapi, whose types keep the order safe: a code can only be
 * exchanged out of a callback whose state and issuer have been checked. Does not own: sessions, attempts and cookies
 * (`connect/`), tables and refresh leases (`connections/`), who the account is (`account.ts`), ending a grant
 * (`revocation.ts`), how a token request is sent and read (`token-request.ts`), what the provider's errors mean
 * (`token-fault.ts`). All network goes through the `fetch` that is passed in.
 */
import * as oauth from 'oauth4webapi';
import type { ProviderDefinition } from '../providers/definition.ts';
import {
  address,
  clientAuth,
  clientOf,
  type Network,
  type OAuthContext,
  protocolOf,
  serverOf,
  tokenParams,
  tokenSection,
} from './oauth2-request.ts';
import { faultOfCallback, protocolFault, type TokenFault } from './token-fault.ts';
import { type TokenOutcome, tokenOutcome } from './token-request.ts';

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
  const token = tokenSection(definition);
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
      { ...options, additionalParameters: tokenParams(context, token.params) },
    );
  return tokenOutcome(context, {
    endpoint: server.token_endpoint,
    request,
    judge: (response) => oauth.processAuthorizationCodeResponse(server, client, response),
    keepIdToken: definition.issuer !== undefined,
    isRenewable: false,
    // RFC 6749 §5.1: an answer to a code that names no scope grants what was asked for.
    silentScopes: context.client.scopes,
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
  const server = serverOf(context, address(context, definition.refresh.url ?? tokenSection(definition).url));
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
    isRenewable: true,
    silentScopes: undefined,
  });
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
