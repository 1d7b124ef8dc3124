/** Somebody who waits for a token. */
export type Waiter = {
  /** Whose turn it takes: the connection. */
  readonly lane: number;
};

/**
 * A line that serves its lanes in turn, and in each lane who came first: a lane with a thousand waiting is served as
 * often as one with a single waiter.
 */
export class FairQueue<W extends Waiter> {
  /** In the order of their turns. */
  readonly #lanes = new Map<number, Set<W>>();
  #size = 0;

  /** All who wait. */
  get size(): number {
    return this.#size;
  }

  /** Lanes in which somebody waits. */
  get lanes(): number {
    return this.#lanes.size;
  }

  /** How many wait in this lane. */
  in(lane: number): number {
    return this.#lanes.get(lane)?.size ?? 0;
  }

  /** How many at most are served before who comes to this lane now. */
  before(lane: number): number {
    const own = this.in(lane);
    let before = own;
    for (const [other, waiters] of this.#lanes) {
      if (other !== lane) before += Math.min(waiters.size, own + 1);
    }
    return before;
  }

  /** Who waits behind most others of the own lane; undefined: nobody waits. */
  lastOfLongest(): W | undefined {
    let longest: ReadonlySet<W> | undefined;
    for (const lane of this.#lanes.values()) if (lane.size >= (longest?.size ?? 0)) longest = lane;
    return longest && [...longest].at(-1);
  }

  add(waiter: W): void {
    const lane = this.#lanes.get(waiter.lane) ?? new Set();
    this.#lanes.set(waiter.lane, lane.add(waiter));
    this.#size += 1;
  }

  /** Does nothing where the waiter is not in the line. */
  remove(waiter: W): void {
    const lane = this.#lanes.get(waiter.lane);
    if (lane?.delete(waiter) !== true) return;
    this.#size -= 1;
    if (lane.size === 0) this.#lanes.delete(waiter.lane);
  }

  /** Takes whose turn it is out of the line; the lane's next turn comes after those of all others. */
  next(): W | undefined {
    for (const [lane, waiters] of this.#lanes) {
      for (const waiter of waiters) {
        this.remove(waiter);
        if (waiters.size > 0) {
          this.#lanes.delete(lane);
          this.#lanes.set(lane, waiters);
        }
        return waiter;
      }
    }
    return undefined;
  }

  /** Empties the line. */
  *drain(): Generator<W> {
    for (let waiter = this.next(); waiter !== undefined; waiter = this.next()) yield waiter;
  }
}
