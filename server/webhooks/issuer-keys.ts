import { compactVerify, createRemoteJWKSet, customFetch, errors } from 'jose';
import type { Fetch } from '../auth-modes/token-response.ts';
import { AppError } from '../errors.ts';

/**
 * The keys by which an issuer signs, read from where it publishes them.
 *
 * Owns: signatures, and when the keys are read, so that no stranger can make us call out at will. Does not own: what a
 * signed token says (`security-event-token.ts`).
 */
export type IssuerKeys = {
  /**
   * Resolves where the signature is by a key of the issuer; a key that is not known is looked for among those that it
   * publishes now. Throws `unavailable` where that has to wait, `JWKSNoMatchingKey` where it was in vain, and otherwise
   * what jose or reading the keys throws.
   */
  verify(token: string): Promise<void>;
};

/** Time after a failure during which no request makes the service read the keys again. */
export const retryAfterMs = 5_000;
/** For an unknown key they are read again once in this time: anyone can make one up. */
const rereadAfterMs = 60_000;
const cachedMs = 3600_000;
const timeoutMs = 5_000;
const maxBytes = 256 * 1024;

/** Keeps the keys for an hour. */
export function createIssuerKeys(url: string, { fetch, now }: { fetch: Fetch; now: () => Date }): IssuerKeys {
  let reads = 0;
  let readAt = 0;
  let failedAt = 0;
  const keys = createRemoteJWKSet(new URL(url), {
    // Whether an unknown key may be looked for is decided in `verify`, which can say that it has to wait.
    cooldownDuration: Number.POSITIVE_INFINITY,
    cacheMaxAge: cachedMs,
    timeoutDuration: timeoutMs,
    [customFetch]: read,
  });
  const verifyBy = (token: string) => compactVerify(token, keys, { algorithms: ['RS256'] });
  const msSince = (time: number) => now().getTime() - time;

  async function read(from: string, { signal }: { signal: AbortSignal }): Promise<Response> {
    if (msSince(failedAt) < retryAfterMs) throw new Error('the keys could not be read a moment ago');
    try {
      const headers = { accept: 'application/json' };
      const answer = await fetch(from, { method: 'GET', headers, redirect: 'manual', signal });
      if (answer.status !== 200) throw new Error(`the keys answer ${answer.status}`);
      const chunks: Uint8Array[] = [];
      let size = 0;
      for await (const chunk of answer.body ?? []) {
        chunks.push(chunk);
        size += chunk.length;
        if (size > maxBytes) throw new Error('the keys are too long');
      }
      reads += 1;
      readAt = now().getTime();
      return new Response(Buffer.concat(chunks));
    } catch (error) {
      failedAt = now().getTime();
      throw error;
    }
  }

  return {
    async verify(token) {
      const before = reads;
      try {
        await verifyBy(token);
        return;
      } catch (error) {
        if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      }
      if (reads === before) {
        const waitMs = rereadAfterMs - msSince(readAt);
        // A last word would lose an event that was signed by a key of the last minute.
        if (waitMs > 0 && !keys.reloading) {
          throw new AppError('unavailable', "The issuer's keys may not be read again yet.", {
            retryAfterS: waitMs / 1000,
          });
        }
        await keys.reload();
      }
      await verifyBy(token);
    },
  };
}
