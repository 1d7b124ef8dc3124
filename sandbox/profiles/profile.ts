/**
 * How one provider's OAuth endpoints behave, as far as it matters to a client: what they insist on and what their
 * answers look like. `provider.ts` plays a profile on a socket; `profiles.ts` holds one for each provider.
 */
export type Profile = {
  /** Where ID and secret must stand: in the header, in the body, or the ID alone in the body. */
  clientAuth: 'basic' | 'post' | 'public';
  tokenRequest: 'form' | 'json';
  /** An authorization without an S256 challenge is refused. */
  needsChallenge: boolean;
  /** Parameters without which an authorization, an exchange or a refresh is refused. */
  needs: {
    authorization?: Record<string, string>;
    exchange?: Record<string, string>;
    refresh?: Record<string, string>;
  };
  requestedScopes: { param: 'scope' | 'user_scope'; separator: ' ' | ',' };
  /** Parameters and a scope without any of which an exchange gives no refresh token. */
  offline: { params?: Record<string, string>; scope?: string };
  /**
   * A parameter without which tokens have no end and no refresh token comes: in exchanges, or in refreshes too. In a
   * request that is JSON it is a number.
   */
  endsBy?: { param: string; in: 'exchange' | 'exchange and refresh' };
  /** `iss` of the callback (RFC 9207). */
  issuer?: string;

  answer: 'json' | 'form';
  /** The token object of an exchange lies in this field, and what lies around it is no token. */
  tokenIn?: string;
  tokenType?: string;
  /** How the life of an access token is told; `zero` says 0 and means no end. */
  life: 'expires_in' | 'text' | 'expires' | 'date' | 'unix' | 'zero' | 'untold';
  refreshLifeIn?: string;
  /** `empty` grants by other means than scopes. */
  grantedScopes: 'space' | 'comma' | 'list' | 'null' | 'empty' | 'untold';
  grantedIn: string;
  /** A scope that is granted and never named. */
  unnamedScope?: string;
  /**
   * Whether an exchange gives a refresh token, and what the answer to a refresh says of it; `overlaps`: it rotates, and the
   * token before lives until its successor is used.
   */
  refresh: 'rotates' | 'overlaps' | 'silent' | 'repeats' | 'none';

  /** How a fault is told, and which code a dead refresh token has. */
  faults: 'status' | 'in_200' | 'message';
  deadGrant: string;

  /** Where an API call must carry the token. */
  token: { scheme: string } | { header: string } | { query: string };
  /** What userinfo answers for the account `77`. */
  userinfo?: unknown;
  revocationAuth: 'client' | 'none';
};

/** RFC 6749 to the letter, with rotating refresh tokens. */
export const standard: Profile = {
  clientAuth: 'post',
  tokenRequest: 'form',
  needsChallenge: false,
  needs: {},
  requestedScopes: { param: 'scope', separator: ' ' },
  offline: {},
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
