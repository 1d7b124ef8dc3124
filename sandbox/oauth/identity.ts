import type { Accounts } from '../accounts.ts';
import { type Access, bearerToken, checkAccess } from '../api.ts';
import type { Clock } from '../clock.ts';
import { type Incoming, json, type Reply } from '../http.ts';
import type { Tokens } from '../tokens.ts';
import { authorizationPath } from './authorize.ts';
import { claimsOf } from './id-token.ts';
import { isSignInScope, signInScopes } from './scopes.ts';

/** The parts of the sandbox that the identity endpoints use. */
interface IdentityParts {
  tokens: Tokens;
  accounts: Accounts;
  clock: Clock;
}

/** Answers `GET /v1/userinfo` (OpenID Connect Core 1.0 §5.3): `sub` always, the rest by scope. */
export function answerUserinfo(request: Incoming, parts: IdentityParts): Reply {
  const access = accessOf(request, parts);
  if (!access.ok || !maySignIn(access))
    return unauthorized({ error: 'invalid_request', error_description: 'Invalid Credentials' });
  return json(200, { sub: access.sub, ...claimsFor(access, parts) });
}

/** Answers `GET /oauth2/v2/userinfo`, the older shape: `id` and `verified_email`. */
export function answerUserinfoV2(request: Incoming, parts: IdentityParts): Reply {
  const access = accessOf(request, parts);
  if (!access.ok || !maySignIn(access)) {
    const message =
      'Request is missing required authentication credential. Expected OAuth 2 access token, login cookie or other valid authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.';
    return unauthorized({ error: { code: 401, message, status: 'UNAUTHENTICATED' } });
  }
  const { email_verified: verified, ...claims } = claimsFor(access, parts);
  return json(200, {
    id: access.sub,
    ...claims,
    ...(verified === undefined ? {} : { verified_email: verified }),
  });
}

/** Answers `/tokeninfo` for an access token in the query, the form or the header; "Invalid Value" if it has ended. */
export function answerTokeninfo(request: Incoming, parts: IdentityParts): Reply {
  const text =
    request.query.get('access_token') ??
    bearerToken(request.headers.authorization) ??
    new URLSearchParams(request.body.toString()).get('access_token') ??
    '';
  const token = parts.tokens.findAccess(text);
  const account = token && parts.accounts.find(token.sub);
  if (token === undefined || account === undefined) {
    return json(400, { error: 'invalid_token', error_description: 'Invalid Value' });
  }
  const { email, email_verified: verified } = claimsOf(account, token.scopes);
  // Google's v3 response has numbers as strings.
  return json(200, {
    azp: token.clientId,
    aud: token.clientId,
    sub: token.sub,
    scope: token.scopes.join(' '),
    exp: String(Math.floor(token.expiresAt / 1000)),
    expires_in: String(Math.floor((token.expiresAt - parts.clock.now()) / 1000)),
    ...(email === undefined ? {} : { email, email_verified: String(verified) }),
    access_type: token.offline ? 'offline' : 'online',
  });
}

function accessOf(request: Incoming, parts: IdentityParts): Access {
  const access = checkAccess(request.headers.authorization, parts);
  if (access.ok) Object.assign(request.about, { sub: access.sub, clientId: access.clientId });
  return access;
}

type Granted = Extract<Access, { ok: true }>;

function maySignIn(access: Granted): boolean {
  return [...access.scopes].some(isSignInScope);
}

function claimsFor(access: Granted, parts: IdentityParts): Record<string, unknown> {
  return claimsOf(parts.accounts.find(access.sub)!, access.scopes);
}

function unauthorized(body: unknown): Reply {
  return json(401, body, {
    'www-authenticate': 'Bearer realm="https://accounts.google.com/", error="invalid_request"',
  });
}

/**
 * The metadata at /.well-known/openid-configuration (OpenID Connect Discovery 1.0 §3), with the sandbox as the issuer. Like
 * Google's, it announces `iss` in the redirect (RFC 9207).
 */
export function discoveryDocument(issuer: string): Record<string, unknown> {
  return {
    issuer,
    authorization_endpoint: `${issuer}${authorizationPath}`,
    token_endpoint: `${issuer}/token`,
    userinfo_endpoint: `${issuer}/v1/userinfo`,
    revocation_endpoint: `${issuer}/revoke`,
    jwks_uri: `${issuer}/oauth2/v3/certs`,
    response_types_supported: ['code'],
    response_modes_supported: ['query'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['RS256'],
    scopes_supported: signInScopes,
    token_endpoint_auth_methods_supported: ['client_secret_post', 'client_secret_basic'],
    claims_supported: [
      'aud',
      'email',
      'email_verified',
      'exp',
      'family_name',
      'given_name',
      'hd',
      'iat',
      'iss',
      'name',
      'sub',
    ],
    code_challenge_methods_supported: ['plain', 'S256'],
    grant_types_supported: ['authorization_code', 'refresh_token', 'client_credentials'],
    authorization_response_iss_parameter_supported: true,
  };
}
