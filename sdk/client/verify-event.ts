import { TrellisError } from './errors.ts';
import type { TrellisEvent } from './events.ts';

type HeaderValue = string | readonly string[] | null | undefined;
/** Whatever has a `get`, as `Headers` of any origin or a Map has; or an object of headers by their names. */
export type EventHeaders =
  | { get(name: string): HeaderValue }
  | Readonly<Record<string, string | readonly string[] | undefined>>;
export type VerifyOptions = {
  /** How old a signature may be, and how far ahead; 300 seconds unless said otherwise. */
  toleranceS?: number | undefined;
  /** The time, in ms since 1970. */
  now?: number | undefined;
};

/**
 * The event that the service has sent, once it is proved to be of the service and new. Give it the body as the bytes came,
 * before anything parses them, and the signing key (`whsec_...`), or several while one replaces the other.
 *
 * Goes by Standard Webhooks (`webhook-id`, `webhook-timestamp`, `webhook-signature`), compared in constant time. Throws
 * `invalid_signature` and `stale_signature`. What an address of the settings gets has other fields than an event: name
 * their type, `verifyEvent<MyBody>(...)`.
 */
export async function verifyEvent<E = TrellisEvent>(
  rawBody: string | Uint8Array | ArrayBuffer,
  headers: EventHeaders,
  secret: string | readonly string[],
  { toleranceS = 300, now = Date.now() }: VerifyOptions = {},
): Promise<E> {
  const body = bytesOf(rawBody);
  const [id, timestamp, signatures] = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) =>
    headerOf(headers, name),
  );
  if (!id || !timestamp || !signatures) throw invalid('The headers of Standard Webhooks are missing.');
  if (!/^\d{1,12}$/.test(timestamp)) throw invalid('The timestamp is no number of seconds.');
  const content = joined(new TextEncoder().encode(`${id}.${timestamp}.`), body);
  const given = signatures.split(' ').flatMap((one) => {
    const [version, signature = ''] = one.split(',', 2);
    const bytes = version === 'v1' ? fromBase64(signature) : undefined;
    return bytes === undefined ? [] : [bytes];
  });
  const keys = [secret].flat().map((one) => fromBase64(one.replace(/^whsec_/, '')));
  if (!(await isSigned(content, { keys, given }))) throw invalid('The signature is not that of the body.');
  // No number is no tolerance.
  if (!(Math.abs(now / 1000 - Number(timestamp)) <= toleranceS))
    throw new TrellisError({
      code: 'stale_signature',
      message: 'The signature is too old, or of the future.',
    });
  return parsed<E>(body);
}

/**
 * As `verifyEvent`, by the header `X-<Brand>-Hmac-Sha256` alone, which older receivers support. It contains no time: anyone who
 * has captured a request can send it again. So keep the ids of the events that you have handled, or use `verifyEvent`.
 */
export async function verifyHmac<E = TrellisEvent>(
  rawBody: string | Uint8Array | ArrayBuffer,
  headers: EventHeaders,
  secret: string | readonly string[],
  { brand = 'trellis' }: { brand?: string } = {},
): Promise<E> {
  const body = bytesOf(rawBody);
  const hex = headerOf(headers, `x-${brand}-hmac-sha256`) ?? '';
  if (!/^([0-9a-f]{2})+$/i.test(hex))
    throw invalid(`The header X-${brand}-Hmac-Sha256 is missing or no hex.`);
  const given = [Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16))];
  const keys = [secret].flat().map((one) => new TextEncoder().encode(one));
  if (!(await isSigned(body, { keys, given }))) throw invalid('The signature is not that of the body.');
  return parsed<E>(body);
}

/** All are compared, so that the time says nothing of which one fits. */
async function isSigned(
  content: Bytes,
  { keys, given }: { keys: (Bytes | undefined)[]; given: Bytes[] },
): Promise<boolean> {
  let isFound = false;
  for (const bytes of keys) {
    if (bytes === undefined || bytes.length === 0)
      throw new TypeError('The signing key reads whsec_ and Base64.');
    const algorithm = { name: 'HMAC', hash: 'SHA-256' };
    const key = await crypto.subtle.importKey('raw', bytes, algorithm, false, ['verify']);
    for (const signature of given.slice(0, 20)) {
      if (await crypto.subtle.verify('HMAC', key, signature, content)) isFound = true;
    }
  }
  return isFound;
}

type Bytes = Uint8Array<ArrayBuffer>;

function bytesOf(body: string | Uint8Array | ArrayBuffer): Bytes {
  if (typeof body === 'string') return new TextEncoder().encode(body);
  return body instanceof ArrayBuffer ? new Uint8Array(body) : new Uint8Array(body);
}

function joined(one: Bytes, other: Bytes): Bytes {
  const both = new Uint8Array(one.length + other.length);
  both.set(one);
  both.set(other, one.length);
  return both;
}

function headerOf(headers: EventHeaders, name: string): string | undefined {
  const found: HeaderValue = hasGet(headers)
    ? headers.get(name)
    : Object.entries(headers).find(([one]) => one.toLowerCase() === name)?.[1];
  return typeof found === 'string' ? found : found?.[0];
}

/** By its form: headers may be of another window or library. */
function hasGet(headers: EventHeaders): headers is Extract<EventHeaders, { get(name: string): HeaderValue }> {
  return typeof headers.get === 'function';
}

function fromBase64(text: string): Bytes | undefined {
  try {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  } catch {
    return undefined;
  }
}

/** What is signed was written by the service. */
function parsed<E>(body: Bytes): E {
  try {
    return JSON.parse(new TextDecoder().decode(body)) as E;
  } catch {
    throw invalid('The body is no JSON.');
  }
}

function invalid(message: string): TrellisError {
  return new TrellisError({ code: 'invalid_signature', message });
}
