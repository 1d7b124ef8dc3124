import { setTimeout as sleep } from 'node:timers/promises';
import type { Fetch } from '../../auth-modes/token-response.ts';
import { AppError } from '../../errors.ts';

/**
 * Calls of the peer's public interface: reads, and nothing else.
 *
 * Owns: how long is waited, what is tried again, what an answer that is none means. Does not own: what is asked for
 * (`integrations.ts`, `connections.ts`, `records.ts`).
 */
export type Peer = {
  /** The address, without a slash at its end. */
  readonly url: string;
  /**
   * The parsed body of a 2xx. Throws PeerError for an answer that stays a refusal, or is not the peer's own (`not_json`) though
   * others were; PeerLostError where none comes.
   */
  get(path: string, query?: Query, headers?: Record<string, string>): Promise<unknown>;
  /** How many requests were sent, and how often the peer said that it were too many. */
  readonly counts: { requests: number; limited: number };
};
type Query = Record<string, string | number | undefined>;

/** What the peer refuses, also when it is asked again. */
export class PeerError extends Error {
  readonly status: number;
  readonly code: string;
  readonly payload: unknown;
  constructor(path: string, given: { status: number; code: string; message: string; payload: unknown }) {
    const { status, code, message } = given;
    super(`The peer answered ${status} ${code} to GET ${path}${message === '' ? '' : `: ${message}`}`);
    this.name = 'PeerError';
    this.status = status;
    this.code = code;
    this.payload = given.payload;
  }
}

/** The peer does not answer, or not as one: nothing more is to be had from it now. */
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
  /** Of one answer, from the request to its last byte. */
  timeoutMs?: number;
  /** Between one attempt and the next it doubles from here. */
  pauseMs?: number;
  random?: () => number;
};

const maxAttempts = 6;
/** A limit is waited out however often it is met, but not for longer than this without any answer. */
const maxLimitedMs = 15 * 60_000;
const minLimitedMs = 100;
const longestPauseMs = 60_000;
const maxBytes = 256 * 1024 * 1024;
/** Requests in turn that failed in all their attempts: then the peer is lost. */
const maxLost = 8;
/**
 * The same for answers that are not the peer's own. They take long, so that requests that go wrong gather among those
 * under way while others pass by: more than may be under way at once.
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
  /** Nobody asks before then: a limit is the key's, not the request's. */
  let openAt = 0;
  let limitedSince: number | undefined;
  let lost = 0;
  let misread = 0;
  /** It has answered as the peer does, so what does not is of this request alone. */
  let isProven = false;
  const headers = { authorization: `Bearer ${key}`, accept: 'application/json' };

  async function waitForTurn(): Promise<void> {
    for (let left = openAt - Date.now(); left > 0; left = openAt - Date.now()) await sleep(left);
  }

  function noteLimit(answer: Answer): void {
    counts.limited += 1;
    limitedSince ??= Date.now();
    if (Date.now() - limitedSince > maxLimitedMs)
      throw new PeerLostError('The peer answers nothing but 429 for a quarter of an hour.');
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
      await waitForTurn();
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
    const message = `The peer does not answer GET ${path}.`;
    if (lost >= maxLost) throw new PeerLostError(message, { cause: failure });
    throw new PeerError(path, { status: 0, code: 'unreachable', message, payload: undefined });
  }

  function refuseMisread(path: string, { status }: Answer): never {
    misread += 1;
    const message = 'what answers is not the interface of the peer';
    const error = new PeerError(path, { status, code: 'not_json', message, payload: undefined });
    if (misread < maxMisread) throw error;
    throw new PeerLostError('The peer does not answer as such any more.', { cause: error });
  }

  return { url, counts, get: (path, query = {}, more = {}) => get(path, query, more) };
}

type Answer = { status: number; headers: { get(name: string): string | null }; text: string };

function isAnswer(failure: unknown): failure is Answer {
  return typeof failure === 'object' && failure !== null && 'status' in failure && 'text' in failure;
}

/** An address that is not to be reached stays so. */
function isFinal(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if (cause instanceof AppError || cause instanceof PeerLostError) return true;
  return false;
}

/** Whether it comes from something else than the peer: a proxy before it, or a page of its dashboard. */
function isMisread({ status, text }: Answer): boolean {
  if (status >= 200 && status < 300) return parse(text) === undefined;
  return (status >= 300 && status < 400) || (status === 404 && errorOf(parse(text)).code === undefined);
}

function judge(path: string, { status, text }: Answer): unknown {
  const body = parse(text);
  if (status >= 200 && status < 300) {
    if (body !== undefined) return body;
    throw new PeerLostError(
      `What answers GET ${path} is no JSON. --from takes the address of the peer's interface, not that of a dashboard.`,
    );
  }
  if (status >= 300 && status < 400)
    throw new PeerLostError(
      `The peer sends elsewhere (${status}) for GET ${path}. Give the address it leads to.`,
    );
  const { code, message, payload } = errorOf(body);
  const error = { status, code: code ?? 'unknown', message: message ?? '', payload };
  if (status === 401)
    throw new PeerLostError('The peer does not take the key.', { cause: new PeerError(path, error) });
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

/** `Retry-After` in seconds or as a date (RFC 9110 §10.2.3), else `X-RateLimit-Reset`, else some seconds. */
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
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body ?? []) {
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes > maxBytes) throw new PeerLostError('An answer of the peer is larger than 256 MB.');
  }
  return Buffer.concat(chunks).toString('utf8');
}
