/** Whether a webhook is from the provider: its signature, and when it was made. Pure. */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { WebhookProof } from '../providers/definition-webhook.ts';

/** What came, as it came. */
export type Sent = { headers: IncomingHttpHeaders; body: Buffer };

/** Older or younger than this and it may be one that somebody kept and sends again. */
const mostAgeMs = 5 * 60_000;

/** Why it is not believed, for whoever set the webhook up; undefined: it is. `secret` is the integration's of the proof's key. */
export function faultOfProof(
  proof: WebhookProof,
  { sent, secret, now }: { sent: Sent; secret: string | undefined; now: Date },
): string | undefined {
  if (secret === undefined) {
    if (proof.scheme === 'hmac' && proof.required === 'unset') return undefined;
    return 'The integration has no secret to prove the sender by: set its webhook secret to what the provider signs with.';
  }
  switch (proof.scheme) {
    case 'token':
      return isSame(Buffer.from(one(sent, proof.header) ?? ''), Buffer.from(secret))
        ? undefined
        : `The header ${proof.header} does not hold the secret.`;
    case 'standard':
      return faultOfStandard({ sent, secret, now });
    case 'hmac':
      return faultOfHmac(proof, { sent, secret, now });
  }
}

function faultOfHmac(
  proof: WebhookProof & { scheme: 'hmac' },
  { sent, secret, now }: { sent: Sent; secret: string; now: Date },
): string | undefined {
  const { header, parts, prefix, digest, encoding, signed, timestamp_header } = proof;
  const held = one(sent, header);
  if (held === undefined) return `The header ${header} is missing.`;
  const pairs = parts === undefined ? [] : held.split(',').map((pair) => pair.trim().split(/=(.*)/s));
  const named = (name: string) => pairs.filter(([key]) => key === name).map(([, value = '']) => value);
  const timestamp = parts ? named(parts.timestamp)[0] : timestamp_header && one(sent, timestamp_header);
  if (parts !== undefined || timestamp_header !== undefined) {
    const fault = faultOfTime(timestamp, now);
    if (fault !== undefined) return fault;
  }
  const [before = '', after = ''] = signed
    .split('{body}')
    .map((part) => part.replaceAll('{timestamp}', timestamp ?? ''));
  const right = createHmac(digest, secret).update(before).update(sent.body).update(after).digest();
  const given = parts ? named(parts.signature) : [held];
  const isRight = given.some(
    (text) => text.startsWith(prefix) && isSame(decoded(text.slice(prefix.length), encoding), right),
  );
  return isRight
    ? undefined
    : `The signature in ${header} is not that of this body under the integration's secret.`;
}

/** https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md */
function faultOfStandard({
  sent,
  secret,
  now,
}: {
  sent: Sent;
  secret: string;
  now: Date;
}): string | undefined {
  const id = one(sent, 'webhook-id');
  const timestamp = one(sent, 'webhook-timestamp');
  const signatures = one(sent, 'webhook-signature');
  if (id === undefined || signatures === undefined) return 'The headers of Standard Webhooks are missing.';
  const fault = faultOfTime(timestamp, now);
  if (fault !== undefined) return fault;
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
  const right = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(sent.body).digest();
  const isRight = signatures
    .split(' ')
    .some((text) => text.startsWith('v1,') && isSame(Buffer.from(text.slice(3), 'base64'), right));
  return isRight ? undefined : "The signature is not that of this body under the integration's secret.";
}

function faultOfTime(timestamp: string | undefined, now: Date): string | undefined {
  if (timestamp === undefined || !/^\d{1,12}$/.test(timestamp)) return 'It does not say when it was sent.';
  const ageMs = now.getTime() - Number(timestamp) * 1000;
  return Math.abs(ageMs) <= mostAgeMs ? undefined : 'It was sent too long ago, or in the future.';
}

/** Bytes in one spelling alone: what else decodes to the same is none. */
function decoded(text: string, encoding: 'hex' | 'base64'): Buffer {
  const pattern = encoding === 'hex' ? /^([0-9a-f]{2})+$/i : /^[A-Za-z0-9+/]+={0,2}$/;
  return pattern.test(text) ? Buffer.from(text, encoding) : Buffer.alloc(0);
}

/** Digests of equal length are compared, so that time tells nothing of the secret's length either. */
function isSame(one: Buffer, other: Buffer): boolean {
  const digest = (bytes: Buffer) => createHash('sha256').update(bytes).digest();
  return timingSafeEqual(digest(one), digest(other));
}

function one({ headers }: Sent, name: string): string | undefined {
  const value = headers[name.toLowerCase()];
  return typeof value === 'string' && value !== '' ? value : undefined;
}
