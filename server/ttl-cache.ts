/** The longest time for which a node may use a value that another node has changed. */
const ttlMs = 1_000;

/** The key of a cached value. */
type Key = string | number;

/**
 * Caches values for a second from their request: so a change takes effect on all nodes within a second, and at once where the
 * value is forgotten. No value stays in memory for longer than two seconds. A caller during a read gets the result of that
 * read, unless it began more than a second ago.
 */
export class TtlCache<A, V> {
  readonly #load: (args: A) => Promise<V>;
  readonly #keyOf: (args: A) => Key;
  readonly #endOf: (value: V) => number;
  readonly #clock: () => number;
  readonly #now: () => number;
  readonly #max: number;
  readonly #held = new Map<Key, { value: V; until: number; endsAt: number }>();
  readonly #reading = new Map<Key, { read: Promise<V>; until: number }>();
  #isSweeping = false;

  /**
   * `endOf` returns the time at which a value expires, by `now`; if absent, values do not expire. `clock` measures the second:
   * in ms and monotonic, since a time of day that is set back would keep revoked values.
   */
  constructor(of: {
    load: (args: A) => Promise<V>;
    keyOf: (args: A) => Key;
    endOf?: (value: V) => number;
    now?: () => number;
    clock?: () => number;
    max: number;
  }) {
    this.#load = of.load;
    this.#keyOf = of.keyOf;
    this.#endOf = of.endOf ?? (() => Number.POSITIVE_INFINITY);
    this.#now = of.now ?? Date.now;
    this.#clock = of.clock ?? (() => performance.now());
    this.#max = of.max;
  }

  /** Returns a cached value without a wait; rejects with the error of `load`. */
  get(args: A): V | Promise<V> {
    return this.known(args) ?? this.#running(args) ?? this.reread(args);
  }

  /** The cached value; undefined if it must be read. */
  known(args: A): V | undefined {
    const held = this.#held.get(this.#keyOf(args));
    return held !== undefined && this.#isGood(held) ? held.value : undefined;
  }

  /** Reads the value that is stored now; rejects with the error of `load`. */
  reread(args: A): Promise<V> {
    const key = this.#keyOf(args);
    const until = this.#clock() + ttlMs;
    this.#held.delete(key);
    const isLatest = () => this.#reading.get(key) === reading;
    const read = this.#load(args).then(
      (value) => {
        if (isLatest()) {
          this.#reading.delete(key);
          this.#hold(key, { value, until, endsAt: this.#endOf(value) });
        }
        return value;
      },
      (error: unknown) => {
        if (isLatest()) this.#reading.delete(key);
        throw error;
      },
    );
    const reading = { read, until };
    this.#reading.set(key, reading);
    return read;
  }

  /** Later calls read the value again. */
  forget(args: A): void {
    const key = this.#keyOf(args);
    this.#held.delete(key);
    // The read may have begun before the change.
    this.#reading.delete(key);
  }

  /** As `forget`, for all matching values. */
  forgetWhere(isMeant: (value: V) => boolean): void {
    for (const [key, { value }] of this.#held) if (isMeant(value)) this.#held.delete(key);
    this.#reading.clear();
  }

  #running(args: A): Promise<V> | undefined {
    const running = this.#reading.get(this.#keyOf(args));
    return running !== undefined && running.until > this.#clock() ? running.read : undefined;
  }

  #isGood({ until, endsAt }: { until: number; endsAt: number }): boolean {
    return until > this.#clock() && (endsAt === Number.POSITIVE_INFINITY || endsAt > this.#now());
  }

  #hold(key: Key, held: { value: V; until: number; endsAt: number }): void {
    // A map lists its keys in the order of insertion, and `reread` removes a key before it is set again.
    if (this.#held.size >= this.#max) {
      const [oldest] = this.#held.keys();
      if (oldest !== undefined) this.#held.delete(oldest);
    }
    this.#held.set(key, held);
    this.#sweepSoon();
  }

  #sweepSoon(): void {
    if (this.#isSweeping) return;
    this.#isSweeping = true;
    setTimeout(() => {
      this.#isSweeping = false;
      for (const [key, held] of this.#held) if (!this.#isGood(held)) this.#held.delete(key);
      if (this.#held.size > 0) this.#sweepSoon();
    }, ttlMs).unref();
  }
}
