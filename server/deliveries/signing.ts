import { createHash, createHmac } from 'node:crypto';
import type { Brand } from '../brand.ts';

/** What a secret begins with (Standard Webhooks, "Signature scheme"); 32 bytes in Base64 follow. */
export const secretPrefix = 'whsec_';

/** Whom a signature is for: receivers of the envelope, or those that the official clients are used in. */
type SignedFor = 'envelope' | 'compat';

/**
 * The headers that prove who sent a body and when.
 *
 * Standard Webhooks: `webhook-id`, `webhook-timestamp` and a `webhook-signature` for each secret, so that a receiver
 * may go over from one to the next in its own time. Beside them `X-<Brand>-Hmac-Sha256`: hex HMAC-SHA-256 of the body
 * under the newest secret as it is written, which official clients verify. The older `X-<Brand>-Signature` (SHA-256 of
 * secret and body) proves less, since a hash can be continued; it goes only where old receivers may ask for it.
 */
export function signatureHeaders({
  brand,
  eventId,
  nowMs,
  body,
  secrets,
  signedFor,
}: {
  brand: Brand;
  eventId: string;
  nowMs: number;
  body: string;
  /** Newest first. */
  secrets: readonly [string, ...string[]];
  signedFor: SignedFor;
}): Record<string, string> {
  const timestamp = String(Math.floor(nowMs / 1000));
  const content = `${eventId}.${timestamp}.${body}`;
  const signatures = secrets.map((secret) => {
    const bytes = Buffer.from(secret.slice(secretPrefix.length), 'base64');
    return `v1,${createHmac('sha256', bytes).update(content).digest('base64')}`;
  });
  const [newest] = secrets;
  return {
    'webhook-id': eventId,
    'webhook-timestamp': timestamp,
    'webhook-signature': signatures.join(' '),
    [brand.header('Hmac-Sha256')]: createHmac('sha256', newest).update(body).digest('hex'),
    ...(signedFor === 'compat' && {
      [brand.header('Signature')]: createHash('sha256')
        .update(newest + body)
        .digest('hex'),
    }),
  };
}
