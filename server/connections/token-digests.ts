import { createHash } from 'node:crypto';
import type { Credentials } from '../auth-modes/mode.ts';

/**
 * Digests by which a connection is found whose refresh token a provider names without telling it.
 *
 * Owns: the columns `refresh_prefix_digest` and `refresh_token_digest`. They are written wherever credentials are.
 * Half a digest is enough for the index: the caller decrypts each match and compares it.
 */
const bytes = 16;

/** How many characters of a token its shortest prefix has (developers.google.com/identity/protocols/risc). */
export const prefixLength = 16;

/** The columns for these credentials; null where there is no refresh token. */
export function digestColumns(credentials: Credentials): {
  refresh_prefix_digest: Buffer | null;
  refresh_token_digest: Buffer | null;
} {
  const token = credentials.type === 'OAUTH2' ? credentials.refresh_token : undefined;
  if (token === undefined) return { refresh_prefix_digest: null, refresh_token_digest: null };
  return {
    refresh_prefix_digest: prefixDigest(token),
    refresh_token_digest: halfOf(twiceHashed(token)),
  };
}

/** For a token, or for a prefix of it that is long enough. */
export function prefixDigest(prefix: string): Buffer {
  return halfOf(createHash('sha256').update(prefix.slice(0, prefixLength)).digest());
}

/** SHA-512 of the SHA-512, as events tell it. */
export function twiceHashed(token: string): Buffer {
  return createHash('sha512').update(createHash('sha512').update(token).digest()).digest();
}

/** Of a digest, what is stored. */
export function halfOf(digest: Buffer): Buffer {
  return digest.subarray(0, bytes);
}
