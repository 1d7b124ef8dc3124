/**
 * A client of the peer's public interface. It only reads.
 *
 * Owns: timeouts, retries, and responses that are not the peer's own. Does not own: which resources are read
 * (`integrations.ts`, `connections.ts`, `records.ts`).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { AppError } from '../../../server/errors.ts';
import type { Fetch } from '../../../server/outbound/outbound.ts';
import { readBody } from '../../../server/outbound/read-body.ts';

export type Peer = {
  /** The base URL, without a slash at its end. */
  readonly url: string;
  /**
   * The parsed body of a 2xx. Throws PeerError for an error response after all attempts, and for a response that is not the
   * peer's own (`not_json`) if earlier ones were; PeerLostError if there is no response.
   */
  get(path: string, query?: Query, headers?: Record<string, string>): Promise<unknown>;
  /** The number of requests, and of 429 responses. */
  readonly counts: { requests: number; limited: number };
};
type Query = Record<string, string | number | undefined>;

/** An error response of the peer, after all attempts. */
export class PeerError extends Error {
  readonly status: number;
  readonly code: string;
  readonly payload: unknown;
  constructor(path: string, given: { status: number; code: string; message: string; payload: unknown }) {
    const { status, code, message } = given;
    super(
      `The source responded with ${status} ${code} to GET ${path}${message === '' ? '' : `: ${message}`}`,
    );
    this.name = 'PeerError';
    this.status = status;
    this.code = code;
    this.payload = given.payload;
  }
}

/** The peer does not respond, or something else responds: the run must end. */
export class PeerLostError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'PeerLostError';
  }
}

export type PeerSettings = {
  url: string;
  key: string;
  fetch: Fetch;
  /** Of one response, from the request to its last byte. */
  timeoutMs?: number;
  /** The first pause between two attempts; it doubles each time. */
  pauseMs?: number;
  random?: () => number;
};

const maxAttempts = 6;
/** A rate limit does not count as an attempt; this is the longest time with nothing but 429 responses. */
const maxLimitedMs = 15 * 60_000;
const minLimitedMs = 100;
const longestPauseMs = 60_000;
const maxBytes = 256 * 1024 * 1024;
/** The peer is lost after this number of consecutive requests that failed in all attempts. */
const maxLost = 8;
/**
 * The same for responses that are not the peer's own. Their attempts take long, so many failing requests are in flight
 * while others succeed: the number is larger than the number of parallel requests.
 */
const maxMisread = 200;

export function openPeer({
  url,
  key,
  fetch,
  timeoutMs = 60_000,
  pauseMs = 500,
  random = Math.random,
}: PeerSettings): Peer {
  const counts = { requests: 0, limited: 0 };
  /** No request is sent before then: a rate limit is for the key, not for a request. */
  let openAt = 0;
  let limitedSince: number | undefined;
  let lost = 0;
  let misread = 0;
  /** The peer has responded before, so a foreign response concerns one request only. */
  let isProven = false;
  const headers = { authorization: `Bearer ${key}`, accept: 'application/json' };

  async function waitForLimit(): Promise<void> {
    for (let left = openAt - Date.now(); left > 0; left = openAt - Date.now()) await sleep(left);
  }

  function noteLimit(answer: Answer): void {
    counts.limited += 1;
    limitedSince ??= Date.now();
    if (Date.now() - limitedSince > maxLimitedMs)
      throw new PeerLostError('The source has responded only with 429 for 15 minutes.');
    openAt = Math.max(openAt, Date.now() + limitMs(answer) + random() * 100);
  }

  async function attempt(address: string, more: Record<string, string>): Promise<Answer> {
    counts.requests += 1;
    const signal = AbortSignal.timeout(timeoutMs);
    const answer = await fetch(address, {
      method: 'GET',
      headers: { ...headers, ...more },
      redirect: 'manual',
      signal,
    });
    return { status: answer.status, headers: answer.headers, text: await readText(answer.body) };
  }

  async function get(path: string, query: Query, more: Record<string, string>): Promise<unknown> {
    const address = `${url}${path}${searchOf(query)}`;
    let failure: unknown;
    for (let tried = 0; tried < maxAttempts; ) {
      if (tried > 0)
        await sleep(Math.min(longestPauseMs, pauseMs * 2 ** (tried - 1)) * (0.75 + random() / 2));
      await waitForLimit();
      let answer: Answer;
      try {
        answer = await attempt(address, more);
      } catch (error) {
        if (isFinal(error)) throw error;
        failure = error;
        tried += 1;
        continue;
      }
      if (answer.status === 429) {
        noteLimit(answer);
        continue;
      }
      limitedSince = undefined;
      if (answer.status < 500 && !(isProven && isMisread(answer))) {
        [lost, misread] = [0, 0];
        const body = judge(path, answer);
        isProven = true;
        return body;
      }
      failure = answer;
      tried += 1;
    }
    if (failure !== undefined && isAnswer(failure)) {
      lost = 0;
      return failure.status < 500 ? refuseMisread(path, failure) : judge(path, failure);
    }
    lost += 1;
    const message = `The source does not respond to GET ${path}.`;
    if (lost >= maxLost) throw new PeerLostError(message, { cause: failure });
    throw new PeerError(path, { status: 0, code: 'unreachable', message, payload: undefined });
  }

  function refuseMisread(path: string, { status }: Answer): never {
    misread += 1;
    const message = 'the response is not from the API of the source';
    const error = new PeerError(path, { status, code: 'not_json', message, payload: undefined });
    if (misread < maxMisread) throw error;
    throw new PeerLostError('The responses are no longer from the API of the source.', { cause: error });
  }

  return { url, counts, get: (path, query = {}, more = {}) => get(path, query, more) };
}

type Answer = { status: number; headers: { get(name: string): string | null }; text: string };

function isAnswer(failure: unknown): failure is Answer {
  return typeof failure === 'object' && failure !== null && 'status' in failure && 'text' in failure;
}

/** A blocked address stays blocked. */
function isFinal(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if (cause instanceof AppError || cause instanceof PeerLostError) return true;
  return false;
}

/** Whether a proxy in front of the peer or a page of its dashboard has responded. */
function isMisread({ status, text }: Answer): boolean {
  if (status >= 200 && status < 300) return parse(text) === undefined;
  return (status >= 300 && status < 400) || (status === 404 && errorOf(parse(text)).code === undefined);
}

function judge(path: string, { status, text }: Answer): unknown {
  const body = parse(text);
  if (status >= 200 && status < 300) {
    if (body !== undefined) return body;
    throw new PeerLostError(
      `The response to GET ${path} is not JSON. Set --from to the address of the source's API, not of its dashboard.`,
    );
  }
  if (status >= 300 && status < 400)
    throw new PeerLostError(
      `The source redirects GET ${path} (${status}). Set --from to the target of the redirect.`,
    );
  const { code, message, payload } = errorOf(body);
  const error = { status, code: code ?? 'unknown', message: message ?? '', payload };
  if (status === 401)
    throw new PeerLostError('The source rejects the key.', { cause: new PeerError(path, error) });
  throw new PeerError(path, error);
}

function parse(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

function errorOf(body: unknown): { code?: string; message?: string; payload?: unknown } {
  const { error } = (body ?? {}) as { error?: unknown };
  if (typeof error === 'string') return { message: error };
  if (typeof error !== 'object' || error === null) return {};
  const { code, message, payload } = error as Record<string, unknown>;
  return {
    ...(typeof code === 'string' && { code }),
    ...(typeof message === 'string' && { message }),
    payload,
  };
}

/** `Retry-After` in seconds or as a date (RFC 9110 §10.2.3), otherwise `X-RateLimit-Reset`, otherwise 5 s. */
function limitMs({ headers }: Answer): number {
  const after = headers.get('retry-after') ?? '';
  const reset = headers.get('x-ratelimit-reset') ?? '';
  const ms = /^\d+$/.test(after)
    ? Number(after) * 1000
    : Number.isNaN(Date.parse(after))
      ? /^\d+$/.test(reset)
        ? Number(reset) * 1000 - Date.now()
        : 5_000
      : Date.parse(after) - Date.now();
  return Math.min(Math.max(ms, minLimitedMs), maxLimitedMs);
}

function searchOf(query: Query): string {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)] as [string, string]],
  );
  return given.length === 0 ? '' : `?${new URLSearchParams(given)}`;
}

async function readText(body: AsyncIterable<Uint8Array> | null): Promise<string> {
  const { bytes, isTooLarge } = await readBody(body, maxBytes);
  if (isTooLarge) throw new PeerLostError('A response of the source is larger than 256 MB.');
  return bytes.toString('utf8');
}
