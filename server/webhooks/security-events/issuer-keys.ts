/**
 * The published keys of an issuer.
 *
 * Owns: the verification of signatures, and when the keys are read, so that a forged token cannot cause any number of requests.
 * Does not own: the content of a token (`security-event-token.ts`).
 */
import { compactVerify, createRemoteJWKSet, customFetch, errors } from 'jose';
import { AppError } from '../../errors.ts';
import type { Fetch } from '../../outbound/outbound.ts';
import { readBody } from '../../outbound/read-body.ts';

export type IssuerKeys = {
  /**
   * Resolves if a key of the issuer has made the signature. For an unknown key, the published keys are read again. Throws
   * `unavailable` if they may not be read again yet, `JWKSNoMatchingKey` if they do not have the key, and otherwise the
   * error of jose or of the request.
   */
  verify(token: string): Promise<void>;
};

/** Time after a failure during which no request makes the service read the keys again. */
export const retryAfterMs = 5_000;
/** Unknown keys cause one request in this time, since any sender can invent a key ID. */
const rereadAfterMs = 60_000;
const cachedMs = 3600_000;
const timeoutMs = 5_000;
const maxBytes = 256 * 1024;

/** Caches the keys for an hour. */
export function createIssuerKeys(url: string, { fetch, now }: { fetch: Fetch; now: () => Date }): IssuerKeys {
  let reads = 0;
  let readAt = 0;
  let failedAt = 0;
  const keys = createRemoteJWKSet(new URL(url), {
    // `verify` decides whether the keys are read again, since it can refuse with `unavailable`.
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
      const body = await readBody(answer.body, maxBytes);
      if (body.isTooLarge) throw new Error('the keys are too long');
      reads += 1;
      readAt = now().getTime();
      return new Response(body.bytes.toString('utf8'));
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
        // A final refusal would lose an event that was signed with a key of the last minute.
        if (waitMs > 0 && !keys.reloading) {
          throw new AppError(
            'unavailable',
            "The issuer's keys were read recently and cannot be read again yet.",
            {
              retryAfterS: waitMs / 1000,
            },
          );
        }
        await keys.reload();
      }
      await verifyBy(token);
    },
  };
}
