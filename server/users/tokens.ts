import { createHash, randomBytes } from 'node:crypto';

/** What stands behind the # of a link: 256 random bits. A browser sends that part of an address nowhere. */
export function newToken(): string {
  return randomBytes(32).toString('base64url');
}

/** What is stored of a token. */
export function hashOfToken(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

/** As better-auth makes them: 32 characters, 192 random bits. */
export function newUserId(): string {
  return randomBytes(24).toString('base64url');
}
