import { createHash, randomUUID } from 'node:crypto';
import { exportJWK, generateKeyPair, importJWK, type JWK, SignJWT } from 'jose';
import type { Account } from '../accounts.ts';
import type { Clock } from '../clock.ts';

/** Signs ID tokens and publishes the key that verifies them. */
export type IdTokens = ReturnType<typeof createIdTokens>;

/** The key as it is stored, and in the form for `jose`. */
export interface SigningKey {
  jwk: JWK;
  privateKey: CryptoKey | Uint8Array;
}

/** A new RS256 private key, to be stored in the data dir. */
export async function generateSigningKey(): Promise<JWK> {
  const { privateKey } = await generateKeyPair('RS256', { extractable: true });
  return {
    ...(await exportJWK(privateKey)),
    kid: randomUUID().replaceAll('-', ''),
    alg: 'RS256',
    use: 'sig',
  };
}

/** The stored key, imported for signing. */
export async function loadSigningKey(jwk: JWK): Promise<SigningKey> {
  return { jwk, privateKey: await importJWK(jwk, 'RS256') };
}

/** ID tokens signed with `signingKey` in the name of `issuer`. */
export function createIdTokens(by: { signingKey: SigningKey; issuer: string; clock: Clock }) {
  const { signingKey, issuer, clock } = by;
  const { kty, n, e, kid, alg, use } = signingKey.jwk;
  return {
    /** The JWK set for /oauth2/v3/certs. */
    publicKeys: () => ({ keys: [{ kty, n, e, kid, alg, use } as JWK] }),
    /** A signed ID token (OpenID Connect Core 1.0 §2), valid for an hour; the scopes determine the claims. */
    sign: (about: {
      account: Account;
      clientId: string;
      scopes: string[];
      accessToken: string;
      nonce?: string | undefined;
    }): Promise<string> => {
      const { account, clientId, scopes, accessToken, nonce } = about;
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

/** The claims of an account that these scopes allow (OpenID Connect Core 1.0 §5.1). */
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
