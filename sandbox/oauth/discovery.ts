import { AUTHORIZATION_PATH } from './authorize.ts';
import { SIGN_IN_SCOPES } from './scopes.ts';

/**
 * The metadata at /.well-known/openid-configuration (OpenID Connect Discovery 1.0 §3), with the sandbox itself as
 * the issuer. It says as Google's does that `iss` comes with the redirect (RFC 9207).
 */
export function discoveryDocument(issuer: string): Record<string, unknown> {
  return {
    issuer,
    authorization_endpoint: `${issuer}${AUTHORIZATION_PATH}`,
    token_endpoint: `${issuer}/token`,
    userinfo_endpoint: `${issuer}/v1/userinfo`,
    revocation_endpoint: `${issuer}/revoke`,
    jwks_uri: `${issuer}/oauth2/v3/certs`,
    response_types_supported: ['code'],
    response_modes_supported: ['query'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['RS256'],
    scopes_supported: SIGN_IN_SCOPES,
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
