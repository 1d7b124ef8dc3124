/** What is left of a limit of calls a minute. */
export type Allowance = {
  /** Calls a minute. */
  limit: number;
  /** How many more may be made at once. */
  left: number;
  /** Until when all of them may be made at once again, where none is made meanwhile. */
  fullInMs: number;
  /** Above 0: this one may not be made, and one may be made then. */
  waitMs: number;
};

const minuteMs = 60_000;

/**
 * A bucket of calls, as many as the limit has, that fills up evenly within a minute (the generic cell rate algorithm of
 * ITU-T I.371). Times are of one clock that is never set back. Pure.
 */
export class Bucket {
  readonly limit: number;
  readonly #callMs: number;
  #fullAtMs = Number.NEGATIVE_INFINITY;

  constructor(limit: number) {
    this.limit = limit;
    this.#callMs = minuteMs / limit;
  }

  /** Takes a call out where there is one. */
  take(nowMs: number): Allowance {
    const fullInMs = Math.max(0, this.#fullAtMs - nowMs);
    const waitMs = fullInMs + this.#callMs - minuteMs;
    // A part of a millisecond is a matter of rounding.
    if (waitMs > 0.001) return { limit: this.limit, left: 0, fullInMs, waitMs };
    this.#fullAtMs = nowMs + fullInMs + this.#callMs;
    const left = Math.floor((minuteMs - fullInMs - this.#callMs) / this.#callMs + 0.001);
    return { limit: this.limit, left, fullInMs: fullInMs + this.#callMs, waitMs: 0 };
  }

  isFull(nowMs: number): boolean {
    return this.#fullAtMs <= nowMs;
  }

  /** What a call weighs: for so long a bucket that was full is not. */
  get callMs(): number {
    return this.#callMs;
  }

  /** One with another limit, of which the same part is taken as of this. */
  withLimit(limit: number): Bucket {
    const other = new Bucket(limit);
    other.#fullAtMs = this.#fullAtMs;
    return other;
  }

  /** To be told what others know of it. */
  fillAt(fullAtMs: number): void {
    this.#fullAtMs = fullAtMs;
  }
}

/** A bucket for each name; those that are full again are forgotten. */
export class Buckets {
  readonly #limit: number;
  readonly #max: number;
  readonly #byName = new Map<string, Bucket>();

  /** `max`: beyond so many names the oldest name is forgotten, and starts with a new bucket. */
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

  /** A few at a time, so that a flood of names costs each of them little. */
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
