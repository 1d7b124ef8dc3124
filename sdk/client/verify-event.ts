import { TrellisError } from './errors.ts';
import type { TrellisEvent } from './events.ts';

type HeaderValue = string | readonly string[] | null | undefined;
/** Any object with a `get` method, such as `Headers` or a `Map`, or an object of headers by name. */
export type EventHeaders =
  | { get(name: string): HeaderValue }
  | Readonly<Record<string, string | readonly string[] | undefined>>;
export type VerifyOptions = {
  /** The largest difference between the timestamp and now, in seconds. Defaults to 300. */
  toleranceS?: number | undefined;
  /** The current time, in ms since 1970. */
  now?: number | undefined;
};

/**
 * Verifies the signature and the age of a delivery, and returns its event. Pass the body as received, before it is parsed,
 * and the signing key (`whsec_...`), or several keys during a rotation.
 *
 * Implements Standard Webhooks (`webhook-id`, `webhook-timestamp`, `webhook-signature`), with a comparison in constant time.
 * Throws `invalid_signature`, `stale_signature`, and a `TypeError` for an invalid signing key. The body for an endpoint of the
 * settings has other fields than an event: pass its type, `verifyEvent<MyBody>(...)`.
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
  if (!/^\d{1,12}$/.test(timestamp)) throw invalid('The timestamp is not a number of seconds.');
  const content = concat(new TextEncoder().encode(`${id}.${timestamp}.`), body);
  const candidates = signatures.split(' ').flatMap((one) => {
    const [version, signature = ''] = one.split(',', 2);
    const bytes = version === 'v1' ? fromBase64(signature) : undefined;
    return bytes === undefined ? [] : [bytes];
  });
  const keys = [secret].flat().map((one) => fromBase64(one.replace(/^whsec_/, '')));
  if (!(await isSigned(content, { keys, candidates })))
    throw invalid('The signature does not match the body.');
  // The negation also refuses a tolerance that is NaN.
  if (!(Math.abs(now / 1000 - Number(timestamp)) <= toleranceS))
    throw new TrellisError({
      code: 'stale_signature',
      message: 'The timestamp of the signature is too old or in the future.',
    });
  return parsed<E>(body);
}

/**
 * Like `verifyEvent`, but verifies only the header `X-<Brand>-Hmac-Sha256`, which older receivers support. The header contains
 * no time, so a captured request can be replayed. Store the IDs of processed events, or use `verifyEvent`.
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
    throw invalid(`The header X-${brand}-Hmac-Sha256 is missing or is not hexadecimal.`);
  const candidates = [Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16))];
  const keys = [secret].flat().map((one) => new TextEncoder().encode(one));
  if (!(await isSigned(body, { keys, candidates }))) throw invalid('The signature does not match the body.');
  return parsed<E>(body);
}

/** Compares all signatures with all keys, so that the duration does not reveal which of them matched. */
async function isSigned(
  content: Bytes,
  { keys, candidates }: { keys: (Bytes | undefined)[]; candidates: Bytes[] },
): Promise<boolean> {
  let isFound = false;
  for (const bytes of keys) {
    if (bytes === undefined || bytes.length === 0)
      throw new TypeError('The signing key must be whsec_ followed by Base64.');
    const algorithm = { name: 'HMAC', hash: 'SHA-256' };
    const key = await crypto.subtle.importKey('raw', bytes, algorithm, false, ['verify']);
    for (const signature of candidates.slice(0, 20)) {
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

function concat(first: Bytes, second: Bytes): Bytes {
  const bytes = new Uint8Array(first.length + second.length);
  bytes.set(first);
  bytes.set(second, first.length);
  return bytes;
}

function headerOf(headers: EventHeaders, name: string): string | undefined {
  const found: HeaderValue = hasGet(headers)
    ? headers.get(name)
    : Object.entries(headers).find(([one]) => one.toLowerCase() === name)?.[1];
  return typeof found === 'string' ? found : found?.[0];
}

/** Checks for the method, not the class: the headers may come from another realm or library. */
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

/** Parses a body whose signature is valid, so the service has written it. */
function parsed<E>(body: Bytes): E {
  try {
    return JSON.parse(new TextDecoder().decode(body)) as E;
  } catch {
    throw invalid('The body is not JSON.');
  }
}

function invalid(message: string): TrellisError {
  return new TrellisError({ code: 'invalid_signature', message });
}
