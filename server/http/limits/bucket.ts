/** The rest of a limit of calls a minute. */
export type Allowance = {
  /** Calls a minute. */
  limit: number;
  /** The number of further calls that may be made at once. */
  left: number;
  /** The time until all calls may be made at once again, if none is made meanwhile. */
  fullInMs: number;
  /** Above 0: this call is refused, and one is permitted after this time. */
  waitMs: number;
};

const minuteMs = 60_000;

/**
 * A bucket with as many calls as the limit, which refills evenly within a minute (the generic cell rate algorithm of ITU-T
 * I.371). Times are of a monotonic clock. Pure.
 */
export class Bucket {
  readonly limit: number;
  readonly #callMs: number;
  #fullAtMs = Number.NEGATIVE_INFINITY;

  constructor(limit: number) {
    this.limit = limit;
    this.#callMs = minuteMs / limit;
  }

  /** Takes a call if there is one. */
  take(nowMs: number): Allowance {
    const fullInMs = Math.max(0, this.#fullAtMs - nowMs);
    const waitMs = fullInMs + this.#callMs - minuteMs;
    // Less than a microsecond is a rounding error.
    if (waitMs > 0.001) return { limit: this.limit, left: 0, fullInMs, waitMs };
    this.#fullAtMs = nowMs + fullInMs + this.#callMs;
    const left = Math.floor((minuteMs - fullInMs - this.#callMs) / this.#callMs + 0.001);
    return { limit: this.limit, left, fullInMs: fullInMs + this.#callMs, waitMs: 0 };
  }

  isFull(nowMs: number): boolean {
    return this.#fullAtMs <= nowMs;
  }

  /** The time in which the bucket refills by one call. */
  get callMs(): number {
    return this.#callMs;
  }

  /** A bucket with another limit, of which the same share is taken. */
  withLimit(limit: number): Bucket {
    const other = new Bucket(limit);
    other.#fullAtMs = this.#fullAtMs;
    return other;
  }

  /** Applies the calls on other nodes. */
  fillAt(fullAtMs: number): void {
    this.#fullAtMs = fullAtMs;
  }
}

/** A bucket for each name. Full buckets are removed. */
export class Buckets {
  readonly #limit: number;
  readonly #max: number;
  readonly #byName = new Map<string, Bucket>();

  /** `max`: the number of names from which on the oldest is removed; it starts with a new bucket. */
  constructor(limit: number, { max = 20_000 }: { max?: number } = {}) {
    this.#limit = limit;
    this.#max = max;
  }

  get size(): number {
    return this.#byName.size;
  }

  take(name: string, nowMs: number): Allowance {
    let bucket = this.#byName.get(name);
    if (bucket === undefined) {
      if (this.#byName.size >= this.#max) this.#evict(nowMs);
      bucket = new Bucket(this.#limit);
      this.#byName.set(name, bucket);
    }
    return bucket.take(nowMs);
  }

  /** Looks at a few buckets at a time, so that a flood of names costs each little. */
  #evict(nowMs: number): void {
    let looked = 0;
    for (const [name, bucket] of this.#byName) {
      if (bucket.isFull(nowMs)) this.#byName.delete(name);
      looked += 1;
      if (looked === 8) break;
    }
    if (this.#byName.size < this.#max) return;
    for (const name of this.#byName.keys()) {
      this.#byName.delete(name);
      return;
    }
  }
}
