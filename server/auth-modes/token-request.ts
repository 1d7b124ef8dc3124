/**
 * What all grants share at the token endpoint (RFC 6749 §3.2): the request is sent under its time limit, the answer
 * made regular and judged, and told as tokens or as a fault.
 *
 * Does not own: what a grant sends (`oauth2.ts`, `client-credentials.ts`), the shape of an answer
 * (`token-response.ts`), what an error means (`token-fault.ts`).
 */
import * as oauth from 'oauth4webapi';
import { faultOf, isPlainHttp, type Network, type OAuthContext, tokenSection } from './oauth2-request.ts';
import { protocolFault, type TokenFault } from './token-fault.ts';
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

/** How one grant asks, and what its answers leave unsaid. */
type TokenRequest = {
  endpoint: string;
  request: (options: oauth.TokenEndpointRequestOptions) => Promise<Response>;
  judge: (response: Response) => Promise<oauth.TokenEndpointResponse>;
  keepIdToken: boolean;
  /** Whether another token is to be had also where the answer brings nothing to renew it with. */
  isRenewable: boolean;
  /** What an answer grants that names no scope; undefined where that changes nothing. */
  silentScopes: readonly string[] | undefined;
};

/** Sends a token request and reads its answer. Throws AppError when the address may not be reached. */
export async function tokenOutcome(
  context: OAuthContext & Network,
  asked: TokenRequest,
): Promise<TokenOutcome> {
  const { definition, client } = context;
  const token = tokenSection(definition);
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
      tokens: tokensOf(judged, { context, raw: seen?.raw ?? {}, asked }),
    };
  } catch (error) {
    return { ok: false, fault: faultOf(error, { definition, client, seen }) };
  }
}

function tokensOf(
  judged: oauth.TokenEndpointResponse,
  { context, raw, asked }: { context: OAuthContext & Network; raw: JsonObject; asked: TokenRequest },
): Tokens {
  const { definition } = context;
  const now = (context.now ?? new Date()).getTime();
  const canRefresh = asked.isRenewable || judged.refresh_token !== undefined;
  const expiresInS = judged.expires_in ?? (canRefresh ? definition.refresh.default_expires_in_s : undefined);
  const refreshExpiresInS = judged.refresh_token_expires_in;
  const claims = oauth.getValidatedIdTokenClaims(judged);
  const granted = judged.scope
    ?.replace(noScopeText, '')
    // Whatever divides them at a provider, none holds a space (RFC 6749 §3.3).
    .split(definition.scopes.granted_separator ?? definition.scopes.separator)
    .flatMap((part) => part.split(' '))
    .filter((scope) => scope !== '');
  const scopes = granted ?? asked.silentScopes;
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
