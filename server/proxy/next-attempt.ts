import type { IncomingMessage } from 'node:http';
import { firstValue } from '../http/raw-headers.ts';
import type { Attempt } from './attempt.ts';
import type { ProxyExchange } from './exchange.ts';
import { isUnreadable } from './failure.ts';
import type { OutgoingBody } from './outgoing-body.ts';
import type { Head } from './relay.ts';
import { isRetried, retryWaitMs } from './retry.ts';

const redirects = new Set([301, 302, 303, 307, 308]);
const maxRedirects = 5;
/** How long a body may pause behind a 401 before that is the answer: its caller may be waiting for one. */
const bodyGapMs = 1_000;

/** A head, and what its body makes of its status where that was looked at. */
export type Judged = Head & { readonly amountsTo?: number };

type Exchange = Pick<
  ProxyExchange,
  'method' | 'isRepeatable' | 'retry' | 'canRenew' | 'current' | 'renew' | 'follow' | 'waits'
>;

/** Which attempt follows another, and how many have: one for other credentials, five redirects, and the retries. */
export class NextAttempt {
  readonly #exchange: Exchange;
  #retried = 0;
  #redirected = 0;
  #isRenewed = false;

  constructor(exchange: Exchange) {
    this.#exchange = exchange;
  }

  /**
   * What to send after a 401, once: the request with other credentials, when its body is whole. Undefined, at once or
   * in the end: the 401 is the answer. Where it is so for the body's sake, other credentials are fetched all the same,
   * for the next call.
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

  /** Where a redirect leads that is to be followed; undefined: it is the caller's. */
  redirected({ status, rawHeaders }: Head, from: Attempt): Attempt | undefined {
    const { method } = this.#exchange;
    if (!redirects.has(status) || (method !== 'GET' && method !== 'HEAD')) return undefined;
    const location = firstValue(rawHeaders, 'location');
    if (location === undefined || this.#redirected >= maxRedirects) return undefined;
    const next = this.#exchange.follow(location, from);
    if (next !== undefined) this.#redirected += 1;
    return next;
  }

  /** Whether the call may be tried again, if its body can be sent once more. */
  get mayRetry(): boolean {
    const { retry, isRepeatable } = this.#exchange;
    return this.#retried < retry.times && isRepeatable && !this.#exchange.waits.isStopping;
  }

  /** How long to wait before the call is tried again (ms), and counts that; undefined: what came is the caller's. */
  retryAfter(came: Judged | Error): number | undefined {
    const { retry } = this.#exchange;
    const isAnswer = !(came instanceof Error);
    const status = isAnswer ? (came.amountsTo ?? came.status) : undefined;
    if (isAnswer ? !isRetried(status as number, retry) : isUnreadable(came)) return undefined;
    const waitMs = retryWaitMs({
      status,
      retryAfter: isAnswer ? firstValue(came.rawHeaders, 'retry-after') : undefined,
      tried: this.#retried + 1,
      rules: retry,
      now: Date.now(),
      random: Math.random(),
    });
    if (waitMs !== undefined) this.#retried += 1;
    return waitMs;
  }

  /**
   * An attempt as it would be made now, to be asked for behind every wait; throws what a new call would get. The place
   * that a redirect led to is judged again, and where it is no longer allowed the call begins where it began.
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
  // Told where it is waited for, and only there.
  isComplete?.catch(() => {});
  const attempt = await renewed;
  return attempt === undefined || (await isComplete) === false ? undefined : attempt;
}
