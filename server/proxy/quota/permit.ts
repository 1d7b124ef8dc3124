import { judgeAnswer } from '../../connections/api-faults.ts';
import type { ObservedAnswer } from '../../connections/observe.ts';
import type { LiveConnection } from '../../connections/reader.ts';
import { AppError } from '../../errors.ts';
import { firstValue } from '../../http/raw-headers.ts';
import { readRetryAfter } from '../../http/retry-after.ts';
import type { ProviderQuota } from '../../providers/definition.ts';
import type { Bucket, Token, TokenWaiter } from './bucket.ts';
import type { Priority } from './sliding-window.ts';
import type { WindowStore } from './window-store.ts';

/** What a page against robots asks for: it goes by more than the minute's count. */
const guardMs = 300_000;
/** The longest time for which a provider's Retry-After counts: after it, a call finds out. */
const maxClosedMs = 3_600_000;
/** To fetch a portion is not to wait: also a call that must not wait has so long for it. */
const portionMs = 250;

export type Limit = ProviderQuota['limits'][number];
/** A limit and its tokens. */
export type Metered = { limit: Limit; bucket: Bucket };

/** The head of an answer. */
type Refusal = { readonly status: number; readonly rawHeaders: readonly string[] };

export type QuotaCall = {
  connection: LiveConnection;
  method: string;
  /** Of the request to the provider, with its query. */
  path: string;
  priority: Priority;
  /** How long it may wait. */
  waitMs: number;
};

/** The right to send one request. To be ended, whatever comes of it. */
export class Permit {
  /** Resolves when the request may be sent; undefined: at once. Rejects with `quota_exhausted`. */
  readonly ready: Promise<void> | undefined;
  /** How long it waited, once it is ready. */
  waitedMs = 0;
  readonly #given: { store: WindowStore; call: QuotaCall; metered: Metered[]; all: Metered[] };
  readonly #until: number;
  readonly #tokens = new Map<Bucket, Token>();
  #waiter: { bucket: Bucket; waiter: TokenWaiter; timer: NodeJS.Timeout } | undefined;
  #sentAt: number | undefined;

  constructor(given: { store: WindowStore; call: QuotaCall; metered: Metered[]; all: Metered[] }) {
    this.#given = given;
    this.#until = given.store.now() + given.call.waitMs;
    const lacking = this.#takeAvailable();
    if (lacking !== undefined) {
      this.ready = new Promise((resolve, reject) => this.#wait(lacking, { resolve, reject }));
    }
  }

  /** The request goes out now. */
  sent(): void {
    this.#sentAt = this.#given.store.now();
  }

  /** The request was answered, failed, or will not be made. May be called more than once. */
  end(): void {
    if (this.#waiter !== undefined) {
      clearTimeout(this.#waiter.timer);
      this.#waiter.bucket.leave(this.#waiter.waiter);
      this.#waiter = undefined;
    }
    for (const [bucket, token] of this.#tokens) {
      this.#tokens.delete(bucket);
      if (this.#sentAt === undefined) bucket.giveBack(token);
      else bucket.settle(token, this.#sentAt);
    }
  }

  /** What the provider left out of a 429: the seconds until the bucket that it closes opens again. */
  retryAfterS({ status, rawHeaders }: Refusal): number | undefined {
    if (status !== 429 || firstValue(rawHeaders, 'retry-after') !== undefined) return undefined;
    const isGuard = /^text\/html\b/i.test(firstValue(rawHeaders, 'content-type') ?? '');
    const until = this.#reopensAt({ isGuard });
    return Math.max(1, Math.ceil((until - this.#given.store.now()) / 1000));
  }

  /** Learns from an answer of 403 or 429 that the provider counts otherwise, and closes what it says is used up. */
  refused({ status, headers, body }: Pick<ObservedAnswer, 'status' | 'headers' | 'body'>): void {
    const { call, metered, all } = this.#given;
    const fault = judgeAnswer(call.connection.integration.provider, {
      status,
      headers,
      body: body.toString(),
    });
    const retryAfter = headers['retry-after'];
    if (fault.kind === 'abuse_guard') {
      const until = this.#reopensAt({ retryAfter, isGuard: true });
      for (const { limit, bucket } of all) if (limit.per === 'owner') bucket.close(until);
    } else if (fault.kind === 'rate_limited') {
      const until = this.#reopensAt({ retryAfter, isGuard: false });
      const named = metered.filter(({ limit }) => limit.name === fault.evidence.quota_limit);
      const per = fault.of === 'connection' ? 'account' : 'owner';
      const ofThose = named.length > 0 ? named : metered.filter(({ limit }) => limit.per === per);
      // Where accounts have no limit of their own, a refusal that names none can only mean what there is.
      const isNamed = fault.evidence.quota_limit !== undefined || fault.evidence.reason !== undefined;
      for (const { bucket } of ofThose.length > 0 || isNamed ? ofThose : metered) bucket.close(until);
    }
  }

  /** By the ledger's time (ms): what the provider asks for, else the beginning of the next window of the clock. */
  #reopensAt({ retryAfter, isGuard }: { retryAfter?: string | undefined; isGuard: boolean }): number {
    const now = this.#given.store.now();
    const askedMs = readRetryAfter(retryAfter, now);
    if (askedMs !== undefined) return now + Math.min(askedMs, maxClosedMs);
    if (isGuard) return now + guardMs;
    const windowMs = Math.max(...this.#given.metered.map(({ limit }) => limit.window_s)) * 1000;
    return (Math.floor(now / windowMs) + 1) * windowMs;
  }

  /** Takes the tokens that are still missing; returns the first bucket without an available token, undefined if none. */
  #takeAvailable(): Bucket | undefined {
    const { metered, call } = this.#given;
    for (const { bucket } of metered) {
      const held = this.#tokens.get(bucket);
      if (held !== undefined && !bucket.isStale(held)) continue;
      if (held !== undefined) {
        this.#tokens.delete(bucket);
        bucket.drop(held);
      }
      const token = bucket.take(call.priority);
      if (token === undefined) return bucket;
      this.#tokens.set(bucket, token);
    }
    return undefined;
  }

  /** What a caller is told for whom no token comes in time: when all that it needs can be expected. */
  #exhausted(): AppError {
    const { store, call, metered } = this.#given;
    const lane = call.connection.id;
    const expectedAt = Math.max(...metered.map(({ bucket }) => bucket.expectedAt(call.priority, lane)));
    const retryAfterS = Math.max(1, Math.ceil((expectedAt - store.now()) / 1000));
    return new AppError('quota_exhausted', undefined, {
      retryAfterS,
      payload: { retry_after_s: retryAfterS },
    });
  }

  #wait(bucket: Bucket, settle: { resolve: () => void; reject: (error: Error) => void }): void {
    const { call, store } = this.#given;
    const fail = (error: Error) => {
      this.end();
      settle.reject(error);
    };
    const refuse = () => {
      this.end();
      settle.reject(this.#exhausted());
    };
    const waiter: TokenWaiter = {
      lane: call.connection.id,
      priority: call.priority,
      until: this.#until,
      serve: (token) => {
        clearTimeout(this.#waiter?.timer);
        this.#waiter = undefined;
        this.#tokens.set(bucket, token);
        const lacking = this.#takeAvailable();
        if (lacking !== undefined) return this.#wait(lacking, settle);
        this.waitedMs = Math.max(0, store.now() - (this.#until - call.waitMs));
        settle.resolve();
      },
      refuse,
      fail,
    };
    const leftMs = Math.max(portionMs, this.#until - store.now());
    this.#waiter = { bucket, waiter, timer: setTimeout(refuse, leftMs) };
    try {
      if (!bucket.wait(waiter)) refuse();
    } catch (error) {
      fail(error as Error);
    }
  }
}
