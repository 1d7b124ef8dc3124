/** Verifies that a webhook is from the provider: its signature and its age. Pure functions. */
import { createHash, createHmac, type KeyObject, timingSafeEqual, verify } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { crc32 } from 'node:zlib';
import type { WebhookSignature } from '../../providers/definition.ts';
import { keyBytes, publicKey, standardKey, strictBase64 } from '../../providers/webhook-secret.ts';

/** A webhook as it was received. `url` is the address at which the provider sent it, with its query. */
export type Sent = { headers: IncomingHttpHeaders; body: Buffer; url: string };

/** A webhook with a larger difference to the clock may be a recorded one that is sent again. */
export const maxAgeMs = 5 * 60_000;

/**
 * What a signature is verified with. `payload` is the parsed body, only for proofs whose secret is in the body. `published`
 * is what `published-keys.ts` knows: the key of a certificate, or that the issuer has signed the token.
 */
type Verified = {
  sent: Sent;
  secrets: readonly string[];
  now: Date;
  payload?: unknown;
  published?: Published | undefined;
};
export type Published = KeyObject | 'signed';
type Under = Omit<Verified, 'secrets'> & { secret: string };

/**
 * Why the signature is not valid, for the operator who set the webhook up; undefined if it is valid. `secrets` are the
 * integration's secrets for the proof's key, the current one first: during a rotation at the sender, both are valid. An
 * empty secret counts as none.
 */
export function faultOfSignature(
  proof: WebhookSignature,
  { secrets, ...given }: Verified,
): string | undefined {
  const [newest, ...others] = secrets.filter((secret) => secret !== '');
  if (newest === undefined) {
    if (proof.scheme === 'hmac' && proof.required === 'unset') return undefined;
    return 'The integration has no secret to verify the sender: set its webhook secret to the secret with which the provider signs.';
  }
  const fault = faultUnder(proof, { ...given, secret: newest });
  return others.some((secret) => faultUnder(proof, { ...given, secret }) === undefined) ? undefined : fault;
}

/**
 * What is signed besides the body, if the signature includes a time: such bytes are never sent twice on purpose. Undefined if
 * there is no time. Parts of a header that are not signed are left out, since any sender can add some.
 */
export function signedFacts(proof: WebhookSignature, sent: Sent): string[] | undefined {
  switch (proof.scheme) {
    case 'standard':
      return [one(sent, `${proof.headers}-id`) ?? '', one(sent, `${proof.headers}-timestamp`) ?? ''];
    case 'jwt': {
      const token = tokenOf(proof, sent);
      return token?.claims.exp === undefined ? undefined : [token.signed];
    }
    case 'id_token':
    case 'token':
      return undefined;
    default: {
      if (proof.timestamp_body !== undefined) return [];
      const timestamp = timestampOf(proof, sent);
      if (timestamp === undefined) return undefined;
      return coversBytes(proof) ? [timestamp] : [timestamp, one(sent, proof.header) ?? ''];
    }
  }
}

/** Whether no other body has the same signature. It is easy to make another body with the same checksum. */
export function coversBytes(proof: WebhookSignature): boolean {
  return !('signed' in proof) || !proof.signed.includes('{crc32}');
}

/**
 * Why the time in a verified body (`timestamp_body`, in ms since 1970) is refused; undefined if it is accepted or not
 * required.
 */
export function faultOfBodyTime(proof: WebhookSignature, payload: unknown, now: Date): string | undefined {
  if (!('timestamp_body' in proof) || proof.timestamp_body === undefined) return undefined;
  const [timestamp] = fieldsAt(payload, proof.timestamp_body);
  return faultOfTime(typeof timestamp === 'number' ? timestamp : Number.NaN, now);
}

/**
 * The fields at a path such as `event.type`; none if there is none. A step into a list that is no index goes into each
 * item: `events.type` are the types of all events.
 */
export function fieldsAt(payload: unknown, path: string): unknown[] {
  let values = [payload];
  for (const name of path.split('.')) {
    values = values
      .flatMap((value) => (Array.isArray(value) && !/^\d+$/.test(name) ? value : [value]))
      .filter((value) => typeof value === 'object' && value !== null && Object.hasOwn(value, name))
      .map((value) => (value as Record<string, unknown>)[name]);
  }
  return values;
}

function faultUnder(proof: WebhookSignature, under: Under): string | undefined {
  switch (proof.scheme) {
    case 'token':
      return faultOfToken(proof, under);
    case 'standard':
      return faultOfStandard(proof, under);
    case 'jwt':
      return faultOfJwt(proof, under);
    case 'id_token':
      return faultOfIdToken(proof, under);
    default:
      return faultOfSigned(proof, under);
  }
}

type Of<S extends WebhookSignature['scheme']> = Extract<WebhookSignature, { scheme: S }>;
type Signed = Of<'hmac'> | Of<'public_key'> | Of<'certificate'>;

function faultOfToken({ header, query, body, basic }: Of<'token'>, { sent, secret, payload }: Under) {
  const place = header ? `header ${header}` : query ? `query parameter ${query}` : `field ${body}`;
  const found = header
    ? [one(sent, header)]
    : query
      ? [URL.parse(sent.url)?.searchParams.get(query)]
      : fieldsAt(payload, body ?? '');
  const expected = basic ? `Basic ${Buffer.from(secret).toString('base64')}` : secret;
  const isRight = (text: unknown) =>
    typeof text === 'string' && isSame(Buffer.from(text), Buffer.from(expected));
  return found.length > 0 && found.every(isRight)
    ? undefined
    : `The ${place} does not contain the secret${basic ? ' as user:password' : ''}.`;
}

function faultOfSigned(proof: Signed, { sent, secret, now, published }: Under): string | undefined {
  const { header, parts, prefix, encoding, timestamp_format } = proof;
  const held = one(sent, header);
  if (held === undefined) return `The header ${header} is missing.`;
  const timestamp = timestampOf(proof, sent);
  if (parts?.timestamp !== undefined || proof.timestamp_header !== undefined) {
    const fault = faultOfTime(msOf(timestamp, timestamp_format), now);
    if (fault !== undefined) return fault;
  }
  if (proof.scheme === 'certificate' && typeof published !== 'object')
    return `The header ${proof.certificate.header} names no valid certificate of the provider.`;
  const isRight = verifierOf(proof, { secret, published });
  if (isRight === undefined) return "The integration's webhook secret is not a key of the provider's form.";
  const given = parts ? namedIn(held, parts.signature).slice(0, maxSignatures) : [held];
  // Twilio signs the address with or without its usual port.
  const addresses = proof.signed.includes('{form}') ? [sent.url, withPort(sent.url)] : [sent.url];
  const comparisons: ((signature: Buffer) => boolean)[] = [];
  for (const url of addresses) {
    const text = signedText(proof, { sent: { ...sent, url }, timestamp, secret });
    if (text === undefined) return 'The query parameter bodySHA256 is not that of this body.';
    comparisons.push(isRight(text));
  }
  return given.some(
    (signature) =>
      signature.startsWith(prefix) &&
      comparisons.some((isOfText) => isOfText(decoded(signature.slice(prefix.length), encoding))),
  )
    ? undefined
    : `The signature in ${header} is not that of this body under the integration's secret.`;
}

/** The signed text; undefined if it has the fields of a form, and the body is neither a form nor that of `bodySHA256`. */
function signedText(
  { scheme, signed }: Signed,
  { sent, timestamp, secret }: { sent: Sent; timestamp: string | undefined; secret: string },
): Buffer | undefined {
  const [before = '', covered = 'body', after = ''] = signed.split(/\{(body|form|crc32)\}/);
  const around = [before, after].map((part) =>
    Buffer.from(
      part.replaceAll(
        /\{(timestamp|url|secret|header\.([\w-]+))\}/g,
        (all, name: string, header?: string) => {
          if (header !== undefined) return one(sent, header) ?? '';
          if (name === 'secret') return scheme === 'certificate' ? secret : all;
          return name === 'url' ? sent.url : (timestamp ?? '');
        },
      ),
    ),
  );
  const middle = {
    body: () => sent.body,
    form: () => formOf(sent),
    crc32: () => Buffer.from(String(crc32(sent.body))),
  }[covered as 'body' | 'form' | 'crc32']();
  return middle && Buffer.concat([around[0]!, middle, around[1]!]);
}

function withPort(url: string): string {
  return url.replace(
    /^(https?):\/\/([^/:]+)(?=\/)/,
    (_, scheme, host) => `${scheme}://${host}:${scheme === 'https' ? 443 : 80}`,
  );
}

/** Twilio's text: https://www.twilio.com/docs/usage/webhooks/webhooks-security */
function formOf({ headers, body, url }: Sent): Buffer | undefined {
  const type = headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  if (type !== 'application/x-www-form-urlencoded') {
    const digest = URL.parse(url)?.searchParams.get('bodySHA256')?.toLowerCase();
    return digest === createHash('sha256').update(body).digest('hex') ? Buffer.alloc(0) : undefined;
  }
  const fields = [...new URLSearchParams(body.toString('utf8'))];
  // A repeated field is sorted by its values, of which each is used once.
  const texts = new Set(fields.map(([name, value]) => JSON.stringify([name, value])));
  const sorted = [...texts].map((text) => JSON.parse(text) as [string, string]);
  const compare = (one: string, other: string) => (one < other ? -1 : one > other ? 1 : 0);
  sorted.sort((one, other) => compare(one[0], other[0]) || compare(one[1], other[1]));
  return Buffer.from(sorted.flat().join(''));
}

/** During a change of its secret, a sender sends two signatures. Each verification by a public key reads the whole body. */
const maxSignatures = 10;

/** A function for a text that compares signatures of it. Undefined if the secret is not a key. */
function verifierOf(
  proof: Signed,
  { secret, published }: Pick<Under, 'secret' | 'published'>,
): ((text: Buffer) => (signature: Buffer) => boolean) | undefined {
  if (proof.scheme === 'hmac') {
    const key = keyBytes(secret, proof.key_encoding);
    if (key === undefined) return undefined;
    return (text) => {
      const right = createHmac(proof.digest, key).update(text).digest();
      return (given) => isSame(given, right);
    };
  }
  const isCertified = proof.scheme === 'certificate';
  const key = isCertified ? (published as KeyObject) : publicKey(secret, proof.algorithm);
  const digest = !isCertified && proof.algorithm === 'ed25519' ? null : 'sha256';
  return key && ((text) => (given) => verify(digest, text, key, given));
}

function timestampOf({ header, parts, timestamp_header }: Signed, sent: Sent): string | undefined {
  if (parts?.timestamp !== undefined) return namedIn(one(sent, header) ?? '', parts.timestamp)[0];
  return timestamp_header && one(sent, timestamp_header);
}

/** The values of a name in a list such as `t=1,v1=ab,v1=cd`. */
function namedIn(list: string, name: string): string[] {
  const pairs = list.split(',').map((pair) => pair.trim().split(/=(.*)/s));
  return pairs.filter(([key]) => key === name).map(([, value = '']) => value);
}

/** https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md */
function faultOfStandard({ headers }: Of<'standard'>, { sent, secret, now }: Under): string | undefined {
  const id = one(sent, `${headers}-id`);
  const timestamp = one(sent, `${headers}-timestamp`);
  const signatures = one(sent, `${headers}-signature`);
  if (id === undefined || signatures === undefined) return 'The headers of Standard Webhooks are missing.';
  const fault = faultOfTime(msOf(timestamp, 'seconds'), now);
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

/** RFC 7519 §7.2 with `alg` HS256 only, and `exp` and `nbf` if the token has them. */
function faultOfJwt(proof: Of<'jwt'>, { sent, secret, now }: Under): string | undefined {
  const token = tokenOf(proof, sent);
  if (token === undefined) return `The header ${proof.header} contains no JSON Web Token with HS256.`;
  const right = createHmac('sha256', secret).update(token.signed).digest();
  if (!isSame(token.signature, right))
    return `The token in ${proof.header} is not signed with the integration's secret.`;
  const { exp, nbf } = token.claims;
  const seconds = now.getTime() / 1000;
  const isTimely = (time: unknown, isPast: boolean) =>
    time === undefined || (typeof time === 'number' && (isPast ? seconds > time - 60 : seconds < time + 60));
  if (!isTimely(exp, false) || !isTimely(nbf, true))
    return 'The webhook was sent too long ago, or in the future.';
  if (proof.body_claim === undefined) return undefined;
  const digest = createHash('sha256').update(sent.body).digest('hex');
  return token.claims[proof.body_claim] === digest ? undefined : 'The token is not that of this body.';
}

/** OpenID Connect Core §3.1.3.7, with the e-mail address of a service account as the subject. */
function faultOfIdToken(proof: Of<'id_token'>, { sent, secret, now, published }: Under): string | undefined {
  const token = tokenOf(proof, sent, 'RS256');
  if (token === undefined) return `The header ${proof.header} contains no JSON Web Token with RS256.`;
  if (published !== 'signed') return `The token in ${proof.header} is not signed by its issuer.`;
  const { iss, aud, exp, email, email_verified: isVerified } = token.claims;
  if (!proof.issuers.includes(String(iss))) return 'The token is of another issuer.';
  if (aud !== sent.url && aud !== sent.url.split('?', 1)[0])
    return 'The audience of the token is not the address of the webhook.';
  if (typeof exp !== 'number' || now.getTime() / 1000 > exp + 60) return 'The token has expired.';
  return isVerified === true && isSame(Buffer.from(String(email)), Buffer.from(secret))
    ? undefined
    : "The token is not that of the service account in the integration's webhook secret.";
}

function tokenOf(
  { header, prefix }: Of<'jwt'> | Of<'id_token'>,
  sent: Sent,
  algorithm: 'HS256' | 'RS256' = 'HS256',
) {
  const held = one(sent, header);
  const parts = held?.startsWith(prefix) ? held.slice(prefix.length).split('.') : [];
  const [head = '', payload = '', signature = ''] = parts;
  const { alg } = objectIn(head) ?? {};
  const claims = objectIn(payload);
  if (parts.length !== 3 || alg !== algorithm || claims === undefined) return undefined;
  return { signed: `${head}.${payload}`, claims, signature: Buffer.from(signature, 'base64url') };
}

function objectIn(base64url: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(base64url, 'base64url').toString());
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

const rfc3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;

/** Milliseconds since 1970; NaN for a text of another form. */
function msOf(timestamp = '', format: Signed['timestamp_format']): number {
  if (format === 'rfc3339') return rfc3339.test(timestamp) ? Date.parse(timestamp) : Number.NaN;
  if (format === 'milliseconds') return /^\d{1,15}$/.test(timestamp) ? Number(timestamp) : Number.NaN;
  return /^\d{1,12}$/.test(timestamp) ? Number(timestamp) * 1000 : Number.NaN;
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
