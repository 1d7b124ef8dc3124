/** How long a node may go on believing what another node changed. */
const beliefMs = 1_000;

/**
 * What was read lately, for a second from when it was asked for: so a change is in force everywhere within that, and at
 * once where `forget` is called. Nothing stays in memory for longer than two. Whoever asks while it is read waits for
 * the same answer.
 */
export class Beliefs<K, V> {
  readonly #load: (key: K) => Promise<V>;
  readonly #endOf: (value: V) => number;
  readonly #now: () => number;
  readonly #most: number;
  readonly #held = new Map<K, { value: V; until: number }>();
  readonly #reading = new Map<K, Promise<V>>();
  #isSweeping = false;

  /** `endOf` says when a value ends by itself, `Infinity` where it does not. */
  constructor(of: {
    load: (key: K) => Promise<V>;
    endOf: (value: V) => number;
    now: () => number;
    most: number;
  }) {
    this.#load = of.load;
    this.#endOf = of.endOf;
    this.#now = of.now;
    this.#most = of.most;
  }

  /** Without a wait where it is known; rejects with what `load` throws. */
  get(key: K): V | Promise<V> {
    return this.known(key) ?? this.#read(key);
  }

  /** Undefined where it would have to be read. */
  known(key: K): V | undefined {
    const held = this.#held.get(key);
    return held !== undefined && held.until > this.#now() ? held.value : undefined;
  }

  /** Until when `get` gives this value. */
  untilOf(key: K): number {
    return this.#held.get(key)?.until ?? 0;
  }

  /** Whoever asks from now on is told what is stored now. */
  forget(isMeant: (value: V) => boolean): void {
    for (const [key, { value }] of this.#held) if (isMeant(value)) this.#held.delete(key);
    // They may have begun before the change.
    this.#reading.clear();
  }

  #read(key: K): Promise<V> {
    const running = this.#reading.get(key);
    if (running !== undefined) return running;
    const askedAt = this.#now();
    const read = this.#load(key).then(
      (value) => {
        if (this.#reading.get(key) === read) {
          this.#reading.delete(key);
          this.#hold(key, value, Math.min(askedAt + beliefMs, this.#endOf(value)));
        }
        return value;
      },
      (error: unknown) => {
        if (this.#reading.get(key) === read) this.#reading.delete(key);
        this.#held.delete(key);
        throw error;
      },
    );
    this.#reading.set(key, read);
    return read;
  }

  #hold(key: K, value: V, until: number): void {
    if (this.#held.size >= this.#most) this.#held.clear();
    this.#held.set(key, { value, until });
    this.#sweepSoon();
  }

  #sweepSoon(): void {
    if (this.#isSweeping) return;
    this.#isSweeping = true;
    setTimeout(() => {
      this.#isSweeping = false;
      for (const [key, { until }] of this.#held) if (until <= this.#now()) this.#held.delete(key);
      if (this.#held.size > 0) this.#sweepSoon();
    }, beliefMs).unref();
  }
}
