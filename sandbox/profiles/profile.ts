/**
 * The behaviour of a provider's OAuth endpoints that matters to clients: required parameters and the format of
 * responses. `provider.ts` serves a profile over HTTP; `profiles.ts` has the profile of each provider.
 */
export type Profile = {
  /**
   * The place of ID and secret: in the header, in the body, or only the ID in the body; or what replaces the secret, an
   * assertion (RFC 7523 §2.2) or the certificate of the connection (RFC 8705 §2).
   */
  clientAuth: 'basic' | 'post' | 'public' | 'private_key_jwt' | 'tls_client_auth';
  /** The parameter with the ID, in an authorization and in a body. */
  clientIdIn: string;
  tokenRequest: 'form' | 'json';
  /** Whether an authorization without an S256 challenge is refused. */
  needsChallenge: boolean;
  /** Required parameters of an authorization, an exchange or a refresh. */
  needs: {
    authorization?: Record<string, string>;
    exchange?: Record<string, string>;
    refresh?: Record<string, string>;
  };
  requestedScopes: { param: 'scope' | 'user_scope'; separator: ' ' | ',' };
  /** Parameters and a scope that an exchange needs to return a refresh token. */
  offline: { params?: Record<string, string>; scope?: string };
  /**
   * A parameter for tokens that expire; without it they do not, and there is no refresh token. It is for exchanges, or also
   * for refreshes. In a JSON request it is a number.
   */
  endsBy?: { param: string; in: 'exchange' | 'exchange and refresh' };
  /** `iss` of the callback (RFC 9207). */
  issuer?: string;
  /** The parameter of the callback with the code. */
  codeIn: string;

  answer: 'json' | 'form';
  /** The field of the response to an exchange that contains the token object. */
  tokenIn?: string;
  tokenType?: string;
  /** The format of an access token's lifetime; `zero` is 0 for a token that does not expire. */
  life: 'expires_in' | 'text' | 'expires' | 'date' | 'unix' | 'zero' | 'absent';
  refreshLifeIn?: string;
  /** `empty`: permissions are not granted by scopes. */
  grantedScopes: 'space' | 'comma' | 'list' | 'null' | 'empty' | 'absent';
  grantedIn: string;
  /** A scope that is granted, but never in the response. */
  unnamedScope?: string;
  /**
   * Whether an exchange returns a refresh token, and whether a refresh does; `overlaps`: it rotates, and the
   * previous token is valid until its successor is used.
   */
  refresh: 'rotates' | 'overlaps' | 'silent' | 'repeats' | 'none';

  /** The format of errors, and the error code for an ended refresh token. */
  faults: 'status' | 'in_200' | 'message';
  deadGrant: string;

  /** The place of the token in API requests. */
  token: { scheme: string } | { header: string } | { query: string };
  /** The userinfo response for the account `77`. */
  userinfo?: unknown;
  revocationAuth: 'client' | 'none';
};

/** RFC 6749, with rotating refresh tokens. */
export const standard: Profile = {
  clientAuth: 'post',
  clientIdIn: 'client_id',
  tokenRequest: 'form',
  needsChallenge: false,
  needs: {},
  requestedScopes: { param: 'scope', separator: ' ' },
  offline: {},
  codeIn: 'code',
  answer: 'json',
  tokenType: 'Bearer',
  life: 'expires_in',
  grantedScopes: 'space',
  grantedIn: 'scope',
  refresh: 'rotates',
  faults: 'status',
  deadGrant: 'invalid_grant',
  token: { scheme: 'Bearer' },
  revocationAuth: 'client',
};
