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
  authorizationUrl,
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
 * The address to which the browser is sent, with the secrets to keep until it returns; `extraParams` as for
 * `authorizationUrl`. Throws TemplateError when a placeholder has no fitting value.
 */
export async function authorizationRequest(
  context: OAuthContext & {
    redirectUri: string;
    state?: string;
    extraParams?: Readonly<Record<string, string>>;
  },
): Promise<{ url: string; state: string; codeVerifier: string | undefined }> {
  const { authorization, token } = protocolOf(context.definition);
  const state = context.state ?? oauth.generateRandomState();
  const codeVerifier = authorization.pkce === 'S256' ? oauth.generateRandomCodeVerifier() : undefined;
  const url = authorizationUrl(context, {
    response_type: 'code',
    [token.client_id_param]: context.client.clientId,
    redirect_uri: context.redirectUri,
    state,
    ...(codeVerifier !== undefined && {
      code_challenge: await oauth.calculatePKCECodeChallenge(codeVerifier),
      code_challenge_method: 'S256',
    }),
  });
  return { url, state, codeVerifier };
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
  const { definition } = context;
  const token = tokenSection(definition);
  const server = serverOf(context, address(context, token.url));
  const client = clientOf(context);
  const callbackParams = renamedCode(context);
  const checked = checkCallback(server, client, { ...context, callbackParams });
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

/** The parameters of a callback with the code under the name of RFC 6749 §4.1.2. */
function renamedCode({
  definition,
  callbackParams,
}: {
  definition: ProviderDefinition;
  callbackParams: URLSearchParams;
}): URLSearchParams {
  const name = definition.authorization?.code_param;
  if (name === undefined) return callbackParams;
  const params = new URLSearchParams([...callbackParams].filter(([other]) => other !== 'code'));
  for (const code of callbackParams.getAll(name)) params.append('code', code);
  return params;
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
