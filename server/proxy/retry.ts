/** The attempts of a call after its first: with renewed credentials, to the target of a redirect, or as a retry. */
import type { IncomingMessage } from 'node:http';
import { readRetryAfter } from '../http/retry-after.ts';
import type { Attempt } from './attempt.ts';
import type { OutgoingBody } from './body.ts';
import { isUnreadable } from './errors.ts';
import type { Exchange } from './exchange.ts';
import { firstValue, type Head } from './headers.ts';

/** Methods that are idempotent (RFC 9110 §9.2.2). */
const idempotent = new Set([
  'GET',
  'HEAD',
  'OPTIONS',
  'PUT',
  'DELETE',
  'PROPFIND',
  'REPORT',
  'SEARCH',
  'QUERY',
]);

/** Statuses that are usually temporary: too many requests, and a gateway or a server that cannot answer at present. */
const temporary: ReadonlySet<number> = new Set([429, 500, 502, 503, 504]);

const firstWaitMs = 500;
const maxWaitMs = 60_000;
const redirects = new Set([301, 302, 303, 307, 308]);
const maxRedirects = 5;
/** How long a body may pause after a 401 before the caller gets that: it may be waiting for a response. */
const bodyGapMs = 1_000;

/** Whether a response of this status is retried; `also` are the caller's statuses. */
export function isRetried(status: number, also: ReadonlySet<number> | undefined): boolean {
  return temporary.has(status) || also?.has(status) === true;
}

/** Whether a second request with this method has no effect beyond the first. */
export function isIdempotent(method: string): boolean {
  return idempotent.has(method);
}

/** Whether the call may be sent twice: by its method, or since the provider gets an idempotency key. */
export function isRepeatable({ method, first }: Pick<Exchange, 'method' | 'first'>): boolean {
  return isIdempotent(method) || (firstValue(first.headers, 'idempotency-key') ?? '').trim() !== '';
}

/**
 * How long to wait before the next attempt, in ms. Undefined if the provider requests more than a minute: the caller gets the
 * response.
 *
 * The provider's `Retry-After` counts, in seconds or as a date (RFC 9110 §10.2.3). Otherwise the wait starts at half a second
 * and doubles each time, but is never below the minimum of the provider's definition. Jitter of a half keeps callers that
 * failed together from retrying together.
 */
export function retryWaitMs(given: {
  /** Undefined: there was no response. */
  status: number | undefined;
  retryAfter: string | undefined;
  /** The number of attempts so far. */
  tried: number;
  minimum: Exchange['minRetryWaitMs'];
  now: number;
  /** From 0 to 1. */
  random: number;
}): number | undefined {
  const asked = readRetryAfter(given.retryAfter, given.now);
  if (asked !== undefined) return asked > maxWaitMs ? undefined : asked;
  const min = (given.status === 429 ? given.minimum?.too_many : given.minimum?.unavailable) ?? 0;
  const grown = Math.min(maxWaitMs, firstWaitMs * 2 ** (given.tried - 1));
  return Math.max(grown * (1 - given.random / 2), min * (1 + given.random / 2));
}

/** A response, with the effective status of its body if that was examined. */
export type Judged = Head & { readonly effectiveStatus?: number };

/** Chooses and counts the further attempts of one call: one with renewed credentials, five redirects, and the retries. */
export class NextAttempt {
  readonly #exchange: Exchange;
  #retried = 0;
  #redirected = 0;
  #isRenewed = false;

  constructor(exchange: Exchange) {
    this.#exchange = exchange;
  }

  /**
   * The attempt after a 401, once: the request with renewed credentials, when its body is whole. Undefined, at once or as the
   * result: the caller gets the 401. If that is because of the body, credentials are renewed nevertheless, for the next call.
   */
  renewal(
    body: OutgoingBody | undefined,
    request: IncomingMessage,
  ): Promise<Attempt | undefined> | undefined {
    if (!this.#exchange.canRenew || this.#isRenewed) return undefined;
    this.#isRenewed = true;
    const renewed = this.#exchange.renew();
    if (body?.mayComplete(request) !== false) return withBody(renewed, body?.complete(bodyGapMs));
    renewed.catch(() => {});
    return undefined;
  }

  /** The target of a redirect that is followed; undefined: the caller gets the response. */
  redirected({ status, rawHeaders }: Head, from: Attempt): Attempt | undefined {
    const { method } = this.#exchange;
    if (!redirects.has(status) || (method !== 'GET' && method !== 'HEAD')) return undefined;
    const location = firstValue(rawHeaders, 'location');
    if (location === undefined || this.#redirected >= maxRedirects) return undefined;
    const next = this.#exchange.follow(location, from);
    if (next !== undefined) this.#redirected += 1;
    return next;
  }

  /** Whether the call may be retried, if its body can be sent again. */
  get mayRetry(): boolean {
    const exchange = this.#exchange;
    return this.#retried < exchange.call.retries && !exchange.waits.isStopping && isRepeatable(exchange);
  }

  /** Counts a retry and returns how long to wait for it (ms); undefined: the caller gets this response or error. */
  retryAfter(result: Judged | Error): number | undefined {
    const { call, minRetryWaitMs: minimum } = this.#exchange;
    const isError = result instanceof Error;
    const status = isError ? undefined : (result.effectiveStatus ?? result.status);
    if (status === undefined ? isUnreadable(result as Error) : !isRetried(status, call.retryOn))
      return undefined;
    const waitMs = retryWaitMs({
      status,
      retryAfter: isError ? undefined : firstValue(result.rawHeaders, 'retry-after'),
      tried: this.#retried + 1,
      minimum,
      now: Date.now(),
      random: Math.random(),
    });
    if (waitMs !== undefined) this.#retried += 1;
    return waitMs;
  }

  /**
   * The attempt as a new call would make it now; to be called after each wait, and rejects with the error of a new call. The
   * target of a redirect is judged again; if it is no longer permitted, the call starts again at its first target.
   */
  async asOfNow(attempt: Attempt): Promise<Attempt> {
    const first = await this.#exchange.current();
    if (this.#redirected === 0) return first;
    return this.#exchange.follow(attempt.path, attempt) ?? first;
  }
}

async function withBody(
  renewed: Promise<Attempt | undefined>,
  isComplete: Promise<boolean> | undefined,
): Promise<Attempt | undefined> {
  // Without this, a rejection would be unhandled until the await below.
  isComplete?.catch(() => {});
  const attempt = await renewed;
  return attempt === undefined || (await isComplete) === false ? undefined : attempt;
}
