/** Tokens that this node has taken and not used yet, by the cell they are for. */
export class Hand {
  readonly #cells = new Map<number, number>();

  get size(): number {
    let size = 0;
    for (const count of this.#cells.values()) size += count;
    return size;
  }

  add(cell: number, count = 1): void {
    this.#cells.set(cell, (this.#cells.get(cell) ?? 0) + count);
  }

  /** The cell of a token that may be used by now, the oldest first. */
  take(now: number): number | undefined {
    let oldest: number | undefined;
    for (const cell of this.#cells.keys()) {
      if (cell <= now && (oldest === undefined || cell < oldest)) oldest = cell;
    }
    if (oldest === undefined) return undefined;
    const left = (this.#cells.get(oldest) as number) - 1;
    if (left > 0) this.#cells.set(oldest, left);
    else this.#cells.delete(oldest);
    return oldest;
  }

  /** The first cell that a token is for. */
  first(): number | undefined {
    return this.#cells.size === 0 ? undefined : Math.min(...this.#cells.keys());
  }

  /**
   * Takes out what is no use here: tokens for cells before `from`, and of those for cells after `now` all that exceed
   * `wanted` together with what may be used by now.
   */
  *surplus({
    from,
    now,
    wanted,
  }: {
    from: number;
    now: number;
    wanted: number;
  }): Generator<[number, number]> {
    let left = wanted;
    for (const cell of [...this.#cells.keys()].toSorted((one, other) => one - other)) {
      const count = this.#cells.get(cell) as number;
      const kept = cell < from ? 0 : cell <= now ? count : Math.min(count, Math.max(0, left));
      left -= kept;
      if (kept === count) continue;
      if (kept > 0) this.#cells.set(cell, kept);
      else this.#cells.delete(cell);
      yield [cell, count - kept];
    }
  }
}
