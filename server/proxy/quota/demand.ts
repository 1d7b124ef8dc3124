const kept = 10;

/** How many tokens were used in each of the last ten cells. */
export class Demand {
  readonly #counts = new Array<number>(kept).fill(0);
  #cell = 0;

  add(cell: number): void {
    this.#forget(cell);
    this.#counts[cell % kept] = (this.#counts[cell % kept] as number) + 1;
  }

  /** The most that so many cells together used, of the last two times so many; five at most. */
  of(cells: number, cell: number): number {
    this.#forget(cell);
    let now = 0;
    let before = 0;
    for (let ago = 0; ago < cells; ago += 1) {
      now += this.#counts[(cell - ago) % kept] as number;
      before += this.#counts[(cell - ago - cells) % kept] as number;
    }
    return Math.max(now, before);
  }

  /** What is longer ago than it is kept. */
  #forget(cell: number): void {
    for (let next = Math.max(this.#cell + 1, cell - kept + 1); next <= cell; next += 1) {
      this.#counts[next % kept] = 0;
    }
    this.#cell = Math.max(this.#cell, cell);
  }
}
