/**
 * OAuth 2.0 with authorization code and refresh (RFC 6749), PKCE (RFC 7636) and `iss` (RFC 9207).
 *
 * Owns: the requests and the checks of their responses, on top of oauth4webapi. Its types keep the order safe: a code
 * can only be exchanged from a callback with checked state and issuer. Does not own: sessions, attempts and cookies
 * (`connect/`), tables and refresh leases (`connections/`), the account (`account.ts`), the end of a grant
 * (`revocation.ts`), how a token request is sent and read (`oauth2-request.ts`), the meaning of the provider's errors
 * (`token-fault.ts`). All requests use the `fetch` that is passed in.
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
  type TokenOutcome,
  tokenOutcome,
  tokenParams,
  tokenSection,
} from './oauth2-request.ts';
import { faultOfCallback, protocolFault, type TokenFault } from './token-fault.ts';

/**
 * The address to which the browser is sent, with the secrets to keep until it returns. An entry of `extraParams`,
 * which come from the browser, is used only if the definition lists it and its value matches. The parameters of the
 * protocol are set last, so that nothing replaces them. Throws TemplateError when a placeholder has no fitting value.
 */
export async function authorizationRequest(
  context: OAuthContext & {
    redirectUri: string;
    state?: string;
    extraParams?: Readonly<Record<string, string>>;
  },
): Promise<{ url: string; state: string; codeVerifier: string | undefined }> {
  const { definition, client, redirectUri } = context;
  const { authorization, token } = protocolOf(definition);
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
  params.set(token.client_id_param, client.clientId);
  params.set('redirect_uri', redirectUri);
  if (client.scopes.length > 0)
    params.set(authorization.scope_param ?? 'scope', client.scopes.join(definition.scopes.separator));
  params.set('state', state);
  if (codeVerifier !== undefined) {
    params.set('code_challenge', await oauth.calculatePKCECodeChallenge(codeVerifier));
    params.set('code_challenge_method', 'S256');
  }
  // RFC 3986 encoding: some providers compare scope and redirect_uri before they decode "+" as a space.
  return { url: url.href.replaceAll('+', '%20'), state, codeVerifier };
}

/**
 * Checks a callback and exchanges its code. State and issuer are checked before any request; a mismatch is the fault
 * `state_mismatch` or `iss_mismatch`, a refusal by the end user `denied`. An id_token is checked by OpenID Connect
 * Core §3.1.3.7, except for its signature, since it comes directly from the token endpoint over TLS (item 6). Throws
 * TemplateError, and AppError when the address may not be reached.
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
    // RFC 6749 §5.1: a response without scopes grants the requested ones.
    defaultScopes: context.client.scopes,
  });
}

/**
 * Requests a new access token. `refreshToken` is present in the result only if the provider sent one, which replaces
 * the previous one. An id_token of the response is not checked, so that a fault in it cannot lose a rotated refresh
 * token. Throws TemplateError, and AppError when the address may not be reached.
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
    defaultScopes: undefined,
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
  // Without an issuer in the definition, `iss` cannot be compared.
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
