import { createHash, randomUUID } from 'node:crypto';
import { exportJWK, generateKeyPair, importJWK, type JWK, SignJWT } from 'jose';
import type { Account } from '../accounts.ts';
import type { Clock } from '../clock.ts';

/** Makes ID tokens and shows the key that verifies them. */
export interface IdTokens {
  /** The JWK set for /oauth2/v3/certs. */
  publicKeys(): { keys: JWK[] };
  /** A signed ID token (OpenID Connect Core 1.0 §2), good for an hour; claims follow the granted scopes. */
  sign(about: {
    account: Account;
    clientId: string;
    scopes: string[];
    accessToken: string;
    nonce?: string | undefined;
  }): Promise<string>;
}

/** The key in both its forms: as kept, and as `jose` signs with it. */
export interface SigningKey {
  jwk: JWK;
  privateKey: CryptoKey | Uint8Array;
}

/** A new RS256 key with its private half, to be kept in the data dir. */
export async function generateSigningKey(): Promise<JWK> {
  const { privateKey } = await generateKeyPair('RS256', { extractable: true });
  return {
    ...(await exportJWK(privateKey)),
    kid: randomUUID().replaceAll('-', ''),
    alg: 'RS256',
    use: 'sig',
  };
}

/** The kept key made ready to sign with. */
export async function loadSigningKey(jwk: JWK): Promise<SigningKey> {
  return { jwk, privateKey: await importJWK(jwk, 'RS256') };
}

/** ID tokens signed with `signingKey` in the name of `issuer`. */
export function createIdTokens(by: { signingKey: SigningKey; issuer: string; clock: Clock }): IdTokens {
  const { signingKey, issuer, clock } = by;
  const { kty, n, e, kid, alg, use } = signingKey.jwk;
  return {
    publicKeys: () => ({ keys: [{ kty, n, e, kid, alg, use } as JWK] }),
    sign: ({ account, clientId, scopes, accessToken, nonce }) => {
      const issuedAt = Math.floor(clock.now() / 1000);
      const claims = {
        azp: clientId,
        ...claimsOf(account, scopes),
        at_hash: createHash('sha256').update(accessToken).digest().subarray(0, 16).toString('base64url'),
        ...(nonce === undefined ? {} : { nonce }),
      };
      return new SignJWT(claims)
        .setProtectedHeader({ alg: 'RS256', kid: kid!, typ: 'JWT' })
        .setIssuer(issuer)
        .setAudience(clientId)
        .setSubject(account.sub)
        .setIssuedAt(issuedAt)
        .setExpirationTime(issuedAt + 3600)
        .sign(signingKey.privateKey);
    },
  };
}

/** What these scopes let a client know of an account, in the names of OpenID Connect Core 1.0 §5.1. */
export function claimsOf(account: Account, scopes: Iterable<string>): Record<string, unknown> {
  const granted = new Set(scopes);
  const [given, ...rest] = account.name.split(' ');
  return {
    ...(account.hostedDomain === undefined ? {} : { hd: account.hostedDomain }),
    ...(granted.has('https://www.googleapis.com/auth/userinfo.email')
      ? { email: account.email, email_verified: true }
      : {}),
    ...(granted.has('https://www.googleapis.com/auth/userinfo.profile')
      ? { name: account.name, given_name: given, ...(rest.length > 0 ? { family_name: rest.join(' ') } : {}) }
      : {}),
  };
}
