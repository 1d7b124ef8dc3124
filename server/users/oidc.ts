/**
 * Signing in at an OpenID provider (OpenID Connect Core 1.0, authorization code with PKCE), as better-auth calls it.
 *
 * Owns: discovery, the exchange, the checks of an ID token. Does not own: state, nonce and PKCE, which better-auth
 * creates and binds to the browser; who may sign in (`sign-in.ts`).
 */
import type { OAuthProvider } from 'better-auth/oauth2';
import * as oauth from 'oauth4webapi';
import type { OidcConfig } from '../config/sign-in.ts';
import type { Logger } from '../log.ts';
import type { Fetch } from '../outbound/outbound.ts';
import { asPersonName } from './users.ts';

const timeoutMs = 10_000;
const maxBytes = 256 * 1024;
const discoveredMs = 3_600_000;

/** The provider `oidc`. Its endpoints are read at the first use, and again after an hour. */
export function createOidcProvider(given: {
  oidc: OidcConfig;
  fetch: Fetch;
  log: Pick<Logger, 'warn'>;
}): OAuthProvider {
  const { oidc, fetch, log } = given;
  const issuer = new URL(oidc.issuer);
  const client: oauth.Client = { client_id: oidc.clientId };
  const clientAuth = oauth.ClientSecretPost(oidc.clientSecret);
  const options = {
    [oauth.customFetch]: asFetch(fetch),
    // The operator gives the address; `outbound/` refuses plain http except to allowed ranges.
    [oauth.allowInsecureRequests]: issuer.protocol === 'http:',
  };
  let known: { server: oauth.AuthorizationServer; until: number } | undefined;

  async function discover(): Promise<oauth.AuthorizationServer> {
    if (known !== undefined && known.until > performance.now()) return known.server;
    const answer = await oauth.discoveryRequest(issuer, { ...options, algorithm: 'oidc' });
    const server = await oauth.processDiscoveryResponse(issuer, answer);
    known = { server, until: performance.now() + discoveredMs };
    return server;
  }

  return {
    id: 'oidc',
    name: oidc.name,
    issuer: oidc.issuer,
    requiresIdTokenNonce: true,
    // Only both together are one account: `sub` is unique within its issuer (OpenID Connect Core §2, §5.7).
    accountSubject: ({ profile }) => {
      const { sub } = profile as { sub?: unknown };
      return typeof sub === 'string' && sub !== '' ? `${oidc.issuer} ${sub}` : '';
    },
    async createAuthorizationURL({ state, codeVerifier, redirectURI, idTokenNonce }) {
      const { authorization_endpoint: endpoint } = await discover();
      if (endpoint === undefined)
        throw new Error('The configuration of the OpenID provider has no authorization_endpoint.');
      const url = new URL(endpoint);
      url.searchParams.set('response_type', 'code');
      url.searchParams.set('client_id', oidc.clientId);
      url.searchParams.set('redirect_uri', redirectURI);
      url.searchParams.set('scope', 'openid email profile');
      url.searchParams.set('state', state);
      if (idTokenNonce !== undefined) url.searchParams.set('nonce', idTokenNonce);
      url.searchParams.set('code_challenge', await oauth.calculatePKCECodeChallenge(codeVerifier));
      url.searchParams.set('code_challenge_method', 'S256');
      return url;
    },
    async validateAuthorizationCode({ code, codeVerifier, redirectURI }) {
      const server = await discover();
      // better-auth has already compared state and issuer.
      const callback = oauth.validateAuthResponse(
        { ...server, authorization_response_iss_parameter_supported: false },
        client,
        new URLSearchParams({ code }),
        oauth.skipStateCheck,
      );
      const answer = await oauth.authorizationCodeGrantRequest(
        server,
        client,
        clientAuth,
        callback,
        redirectURI,
        codeVerifier ?? oauth.nopkce,
        options,
      );
      const tokens = await answer.json();
      return {
        idToken: String((tokens as { id_token?: unknown }).id_token ?? ''),
        raw: tokens as Record<string, unknown>,
      };
    },
    async getUserInfo(tokens) {
      try {
        return await readUser(tokens);
      } catch (error) {
        // The error's own message holds the claims of the user.
        log.warn({ reason: (error as Error).message }, 'a sign-in with the OpenID provider was rejected');
        return null;
      }
    },
  };

  async function readUser({
    raw,
    expectedIdTokenNonce,
  }: Parameters<OAuthProvider['getUserInfo']>[0]): ReturnType<OAuthProvider['getUserInfo']> {
    const server = await discover();
    // Checks issuer, audience, times and nonce (OpenID Connect Core §3.1.3.7), here because the nonce is known here. The token
    // came directly from the token endpoint, so TLS replaces the signature (§3.1.3.7, 6).
    const validated = await oauth.processAuthorizationCodeResponse(server, client, Response.json(raw), {
      expectedNonce: expectedIdTokenNonce ?? oauth.expectNoNonce,
      requireIdToken: true,
    });
    const claims = oauth.getValidatedIdTokenClaims(validated);
    if (claims === undefined) return null;
    const profile =
      typeof claims.email === 'string' ? claims : await askUserInfo(server, validated, claims.sub);
    const email = typeof profile.email === 'string' ? profile.email : undefined;
    // An address that the provider has not verified is not used.
    if (email === undefined || profile.email_verified !== true) return null;
    const name = asPersonName(typeof profile.name === 'string' && profile.name !== '' ? profile.name : email);
    return { user: { email, name, emailVerified: true }, data: { ...profile, sub: claims.sub } };
  }

  async function askUserInfo(
    server: oauth.AuthorizationServer,
    { access_token }: oauth.TokenEndpointResponse,
    sub: string,
  ): Promise<Record<string, unknown>> {
    const answer = await oauth.userInfoRequest(server, client, access_token, options);
    return oauth.processUserInfoResponse(server, client, sub, answer);
  }
}

/** The guarded fetch, in the form that oauth4webapi requires. */
function asFetch(fetch: Fetch) {
  return async (
    url: string,
    { method, headers, body }: { method: string; headers: Record<string, string>; body?: unknown },
  ) => {
    const signal = AbortSignal.timeout(timeoutMs);
    const answer = await fetch(url, {
      method,
      headers,
      ...(body !== undefined && body !== null && { body: String(body) }),
      redirect: 'manual',
      signal,
    });
    const parts: Uint8Array[] = [];
    let bytes = 0;
    for await (const part of answer.body ?? []) {
      bytes += part.length;
      if (bytes > maxBytes) throw new Error('The response of the OpenID provider is larger than 256 KB.');
      parts.push(part);
    }
    const type = answer.headers.get('content-type');
    return new Response(Buffer.concat(parts), {
      status: answer.status,
      ...(type !== null && { headers: { 'content-type': type } }),
    });
  };
}
