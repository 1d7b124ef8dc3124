import type { Brand } from '../brand.ts';
import { AppError } from '../errors.ts';
import { type CompatType, compatTypes } from '../events/compat-types.ts';
import { readRetryAfter } from '../http/retry-after.ts';
import type { Outbound } from '../outbound.ts';
import type { Claim } from './claims.ts';
import { compatBody } from './compat-body.ts';
import { signatureHeaders } from './signing.ts';
import type { SigningKeys } from './signing-keys.ts';
import type { WebhookBody } from './webhook-bodies.ts';

/** The guarded way to receivers; it follows no redirect. */
export type Fetch = ReturnType<Outbound['fetchFor']>;

/** What became of one attempt. */
export type Attempt = {
  readonly isDelivered: boolean;
  readonly durationMs: number;
  readonly httpStatus?: number;
  readonly error?: AttemptError;
  /** Of the system or the client, where nothing was answered: ECONNREFUSED, ENOTFOUND. */
  readonly code?: string;
  /** The beginning of the answer, without secrets. */
  readonly answer?: string;
  /** For how long the receiver asked for silence. */
  readonly askedPauseMs?: number;
};
/**
 * `status`: the receiver answered, but not with 2xx; redirects are never followed. `internal`: nothing was sent, since
 * this node could not write or sign the request.
 */
type AttemptError = 'status' | 'redirect' | 'timeout' | 'no_answer' | 'address_not_allowed' | 'internal';

type Sending = {
  fetch: Fetch;
  brand: Brand;
  authModeOf: (provider: string) => string | undefined;
  keys: SigningKeys;
  /** Of an event about a webhook; undefined where it can no longer be opened. */
  webhook?: WebhookBody | undefined;
  timeoutMs: number;
  /** Breaks it off. */
  signal: AbortSignal;
  nowMs: () => number;
};

/** An answer of success is read to its end while it is short, so that the connection can be used again. */
const maxReadBytes = 16 * 1024;
const readForMs = 1_000;
const maxKeptBytes = 4 * 1024;

/**
 * Sends a delivery once. The status alone decides; what comes after a 2xx changes nothing. Undefined where `signal`
 * broke it off: nobody knows whether it arrived. Throws where it cannot be written or signed, and then nothing was sent.
 */
export async function send(claim: Claim, sending: Sending): Promise<Attempt | undefined> {
  const { fetch, signal, timeoutMs, nowMs, keys } = sending;
  if (signal.aborted) return undefined;
  const written = request(claim, sending);
  const startedMs = performance.now();
  // Not `AbortSignal.any`: what listens there would be kept for as long as `signal`, with all that it holds.
  const ending = new AbortController();
  const end = () => ending.abort();
  signal.addEventListener('abort', end, { once: true });
  let timer = setTimeout(end, timeoutMs);
  const elapsed = () => Math.round(performance.now() - startedMs);
  try {
    const answering = fetch(claim.endpoint.url, {
      ...written,
      method: 'POST',
      redirect: 'manual',
      signal: ending.signal,
    });
    // A call that still looks for its address or connects hears of the signal only then, and is not sent any more.
    const answer = await Promise.race([answering, whenAborted(ending.signal)]);
    clearTimeout(timer);
    timer = setTimeout(end, Math.min(readForMs, timeoutMs));
    const { status } = answer;
    const isDelivered = status >= 200 && status < 300;
    const body = await readSome(answer.body, isDelivered ? maxReadBytes : maxKeptBytes);
    if (isDelivered) return { isDelivered, durationMs: elapsed(), httpStatus: status };
    const asksForPause = status === 429 || status === 503;
    const askedPauseMs = asksForPause
      ? readRetryAfter(answer.headers.get('retry-after'), nowMs())
      : undefined;
    const secrets = keys.map(({ secret }) => secret);
    return {
      isDelivered,
      durationMs: elapsed(),
      httpStatus: status,
      error: status >= 300 && status < 400 ? 'redirect' : 'status',
      answer: keptAnswer(body, secrets),
      ...(askedPauseMs !== undefined && { askedPauseMs }),
    };
  } catch (error) {
    if (signal.aborted) return undefined;
    const durationMs = elapsed();
    if (ending.signal.aborted) return { isDelivered: false, durationMs, error: 'timeout' };
    return { isDelivered: false, durationMs, ...faultOf(error) };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
  }
}

function request(
  { delivery, endpoint, environment }: Claim,
  { brand, keys, nowMs, authModeOf, webhook }: Sending,
): { headers: Record<string, string>; body: string } {
  const { eventId, type, createdAt, data } = delivery;
  const isCompat = endpoint.kind !== 'events' && isCompatType(type);
  const body = isCompat
    ? compatBody(type, { environment, brandWord: brand.word, data, payload: webhook?.payload, authModeOf })
    : JSON.stringify({
        ...{ id: eventId, type, environment, created_at: createdAt.toISOString() },
        data: type === 'webhook.received' ? { ...data, payload: webhook?.payload ?? null } : data,
      });
  const [newest, ...others] = keys;
  return {
    body,
    headers: {
      ...(isCompat && webhook?.headers),
      'content-type': 'application/json',
      'user-agent': `${brand.word}/1`,
      ...signatureHeaders({
        ...{ brand, eventId, body },
        nowMs: nowMs(),
        secrets: [newest.secret, ...others.map(({ secret }) => secret)],
        signedFor: isCompat ? 'compat' : 'envelope',
      }),
    },
  };
}

function isCompatType(type: string): type is CompatType {
  return Object.hasOwn(compatTypes, type);
}

function whenAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
}

async function readSome(body: AsyncIterable<Uint8Array> | null, max: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of body ?? []) {
      chunks.push(chunk);
      size += chunk.length;
      if (size >= max) break;
    }
  } catch {
    // Cut off or too slow: the status was there.
  }
  return Buffer.concat(chunks).subarray(0, max);
}

function faultOf(error: unknown): Pick<Attempt, 'error' | 'code'> {
  if (error instanceof AppError && error.code === 'address_not_allowed') return { error: error.code };
  const code = (error as { code?: unknown } | undefined)?.code;
  return { error: 'no_answer', ...(typeof code === 'string' && /^[A-Z_]{1,40}$/.test(code) && { code }) };
}

/** What is kept of an attempt, and shown. */
export function evidenceOf({
  durationMs,
  httpStatus,
  error,
  code,
  answer,
}: Attempt): Record<string, unknown> {
  return {
    ...(error !== undefined && { error }),
    ...(code !== undefined && { code }),
    ...(httpStatus !== undefined && { http_status: httpStatus }),
    ...(answer !== undefined && answer !== '' && { answer }),
    duration_ms: durationMs,
  };
}

/** How much of an answer is kept, in characters. */
const maxCharacters = 1_000;
const mask = '***';

/** A name as secrets are called, an assignment, and the value up to its closing quote or to where it can end. */
const assigned =
  /((?:authorization|cookie|password|passwd|secret|signature|credential|token|api[_-]?key|access[_-]?key)[\w-]*["']?\s*[:=]\s*)(?:"(?:[^"\\]|\\.)*|'(?:[^'\\]|\\.)*|(?:(?:bearer|basic)\s+)?[^\s"'&,;}<]+)/gis;
const bearer = /\b(bearer|basic)\s+[\w.~+/=-]{8,}/gi;

/**
 * The beginning of a receiver's answer, for the user who looks for the reason of a failure: at most 1000 characters, in
 * one line, without `secrets` (the signing secrets) and without values that are named like secrets.
 */
function keptAnswer(bytes: Buffer, secrets: readonly string[]): string {
  let text = bytes.toString('utf8');
  for (const secret of secrets) text = text.replaceAll(secret, mask).replaceAll(secret.slice(6), mask);
  text = text.replace(assigned, `$1${mask}`).replace(bearer, `$1 ${mask}`);
  // Control characters, and halves of a character that the limit cut through.
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is removed
  text = text.replace(/[\u0000-\u001f\u007f-\u009f\ufffd]+/g, ' ').trim();
  return text.slice(0, maxCharacters).toWellFormed();
}
