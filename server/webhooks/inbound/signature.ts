/** Verifies that a webhook is from the provider: its signature and its age. Pure functions. */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { WebhookSignature } from '../../providers/definition.ts';
import { standardKey, strictBase64 } from '../../providers/webhook-secret.ts';

/** A webhook as it was received. */
export type Sent = { headers: IncomingHttpHeaders; body: Buffer };

/** A webhook with a larger difference to the clock may be a recorded one that is sent again. */
export const maxAgeMs = 5 * 60_000;

/**
 * Why the signature is not valid, for the operator who set the webhook up; undefined if it is valid. `secrets` are the
 * integration's secrets for the proof's key, the current one first: during a rotation at the sender, both are valid. An
 * empty secret counts as none.
 */
export function faultOfSignature(
  proof: WebhookSignature,
  { sent, secrets, now }: { sent: Sent; secrets: readonly string[]; now: Date },
): string | undefined {
  const [newest, ...others] = secrets.filter((secret) => secret !== '');
  if (newest === undefined) {
    if (proof.scheme === 'hmac' && proof.required === 'unset') return undefined;
    return 'The integration has no secret to verify the sender: set its webhook secret to the secret with which the provider signs.';
  }
  const fault = faultUnder(newest, { proof, sent, now });
  return others.some((secret) => faultUnder(secret, { proof, sent, now }) === undefined) ? undefined : fault;
}

/**
 * What is signed besides the body, if the signature includes a time: such bytes are never sent twice on purpose. Undefined if
 * there is no time. Parts of a header that are not signed are left out, since any sender can add some.
 */
export function signedFacts(proof: WebhookSignature, sent: Sent): string[] | undefined {
  if (proof.scheme === 'standard')
    return [one(sent, 'webhook-id') ?? '', one(sent, 'webhook-timestamp') ?? ''];
  if (proof.scheme !== 'hmac') return undefined;
  if (proof.timestamp_body !== undefined) return [];
  const timestamp = timestampOf(proof, sent);
  return timestamp === undefined ? undefined : [timestamp];
}

/**
 * Why the time in a verified body (`timestamp_body`, in ms since 1970) is refused; undefined if it is accepted or not
 * required.
 */
export function faultOfBodyTime(proof: WebhookSignature, payload: unknown, now: Date): string | undefined {
  if (proof.scheme !== 'hmac' || proof.timestamp_body === undefined) return undefined;
  const timestamp = fieldAt(payload, proof.timestamp_body);
  return faultOfTime(typeof timestamp === 'number' ? timestamp : Number.NaN, now);
}

/** The field at a path such as `event.type`; undefined if there is none. */
export function fieldAt(payload: unknown, path: string): unknown {
  let value = payload;
  for (const name of path.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

function faultUnder(
  secret: string,
  { proof, sent, now }: { proof: WebhookSignature; sent: Sent; now: Date },
): string | undefined {
  switch (proof.scheme) {
    case 'token':
      return isSame(Buffer.from(one(sent, proof.header) ?? ''), Buffer.from(secret))
        ? undefined
        : `The header ${proof.header} does not contain the secret.`;
    case 'standard':
      return faultOfStandard({ sent, secret, now });
    case 'hmac':
      return faultOfHmac(proof, { sent, secret, now });
  }
}

type Hmac = WebhookSignature & { scheme: 'hmac' };

function faultOfHmac(
  proof: Hmac,
  { sent, secret, now }: { sent: Sent; secret: string; now: Date },
): string | undefined {
  const { header, parts, prefix, digest, encoding, signed, timestamp_header } = proof;
  const held = one(sent, header);
  if (held === undefined) return `The header ${header} is missing.`;
  const timestamp = timestampOf(proof, sent);
  if (parts !== undefined || timestamp_header !== undefined) {
    const fault = faultOfTime(msOf(timestamp), now);
    if (fault !== undefined) return fault;
  }
  const [before = '', after = ''] = signed
    .split('{body}')
    .map((part) => part.replaceAll('{timestamp}', timestamp ?? ''));
  const right = createHmac(digest, secret).update(before).update(sent.body).update(after).digest();
  const given = parts ? namedIn(held, parts.signature) : [held];
  const isRight = given.some(
    (text) => text.startsWith(prefix) && isSame(decoded(text.slice(prefix.length), encoding), right),
  );
  return isRight
    ? undefined
    : `The signature in ${header} is not that of this body under the integration's secret.`;
}

function timestampOf({ header, parts, timestamp_header }: Hmac, sent: Sent): string | undefined {
  if (parts !== undefined) return namedIn(one(sent, header) ?? '', parts.timestamp)[0];
  return timestamp_header && one(sent, timestamp_header);
}

/** The values of a name in a list such as `t=1,v1=ab,v1=cd`. */
function namedIn(list: string, name: string): string[] {
  const pairs = list.split(',').map((pair) => pair.trim().split(/=(.*)/s));
  return pairs.filter(([key]) => key === name).map(([, value = '']) => value);
}

/** https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md */
function faultOfStandard(by: { sent: Sent; secret: string; now: Date }): string | undefined {
  const { sent, secret, now } = by;
  const id = one(sent, 'webhook-id');
  const timestamp = one(sent, 'webhook-timestamp');
  const signatures = one(sent, 'webhook-signature');
  if (id === undefined || signatures === undefined) return 'The headers of Standard Webhooks are missing.';
  const fault = faultOfTime(msOf(timestamp), now);
  if (fault !== undefined) return fault;
  const key = standardKey(secret);
  if (key === undefined)
    return "The integration's webhook secret is not one of Standard Webhooks: base64 of 16 bytes or more, after `whsec_`.";
  const right = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(sent.body).digest();
  const isRight = signatures
    .split(' ')
    .some((text) => text.startsWith('v1,') && isSame(decoded(text.slice(3), 'base64'), right));
  return isRight ? undefined : "The signature is not that of this body under the integration's secret.";
}

/** Converts seconds since 1970; NaN for any other text. */
function msOf(timestamp: string | undefined): number {
  return /^\d{1,12}$/.test(timestamp ?? '') ? Number(timestamp) * 1000 : Number.NaN;
}

function faultOfTime(sentAtMs: number, now: Date): string | undefined {
  if (!Number.isFinite(sentAtMs)) return 'The webhook has no valid timestamp.';
  const ageMs = now.getTime() - sentAtMs;
  return Math.abs(ageMs) <= maxAgeMs ? undefined : 'The webhook was sent too long ago, or in the future.';
}

/** Accepts only one spelling of the bytes; empty for any other text. */
function decoded(text: string, encoding: 'hex' | 'base64'): Buffer {
  const none = Buffer.alloc(0);
  if (encoding === 'base64') return strictBase64(text) ?? none;
  return /^([0-9a-f]{2})+$/i.test(text) ? Buffer.from(text, 'hex') : none;
}

/** Compares digests of equal length, so that the time reveals nothing about the secret, not even its length. */
function isSame(one: Buffer, other: Buffer): boolean {
  const digest = (bytes: Buffer) => createHash('sha256').update(bytes).digest();
  return timingSafeEqual(digest(one), digest(other));
}

function one({ headers }: Sent, name: string): string | undefined {
  const value = headers[name.toLowerCase()];
  return typeof value === 'string' && value !== '' ? value : undefined;
}
