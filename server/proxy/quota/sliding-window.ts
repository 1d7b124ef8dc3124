/**
 * The tokens that were taken of one quota. Pure arithmetic: no clock, no database, no waiting.
 *
 * Time is divided into cells, thirty to a window. A token is taken from a cell and used in it; the sum over the cells of any
 * window, a partial cell included, never exceeds the limit. So no window of the provider has more, wherever it begins, and
 * 30/31 of the limit can be used. A token bucket cannot do that: its burst and its rate together must stay below the limit,
 * or a burst and the following minute exceed it.
 *
 * A window whose tokens are all taken at once has none left for its rest. If many callers share a limit, `burst` limits what
 * can be taken at once; beyond that, a cell gives only as much as all later cells can give, until the window's tokens return.
 */
export type Rule = {
  /** The tokens in any window. */
  readonly count: number;
  /** The tokens that may be taken at once from an unused window. */
  readonly burst: number;
  readonly windowMs: number;
};

/** `background` is for syncs. */
export type Priority = 'interactive' | 'background';

export const cellsPerWindow = 30;
/** How many cells ahead tokens may be reserved: enough for a queue, while the cells that were used are still stored. */
export const cellsAhead = 10;
/** The share of the limit that is reserved for interactive calls. */
const reservedShare = 0.1;

/** The stored form. */
export type Pages = { closedUntil: number; cells: [cell: number, interactive: number, background: number][] };

export type Moves = Map<number, Record<Priority, number>>;

/** The cell that a time (in ms) falls into. */
export function cellAt(rule: Rule, ms: number): number {
  return Math.floor(ms / cellMsOf(rule));
}

export function cellMsOf({ windowMs }: Rule): number {
  return windowMs / cellsPerWindow;
}

export class SlidingWindow {
  readonly #cells: Moves;
  #closedUntil: number;

  constructor(pages: Pages = { closedUntil: 0, cells: [] }) {
    this.#closedUntil = pages.closedUntil;
    this.#cells = new Map(
      pages.cells.map(([cell, interactive, background]) => [cell, { interactive, background }]),
    );
  }

  /** No tokens are given before this time (ms). */
  get closedUntil(): number {
    return this.#closedUntil;
  }

  /** The stored form, without cells that are outside of all windows of `cell` or later. */
  pages(cell: number): Pages {
    const cells = [...this.#cells].filter(
      ([at, taken]) => at >= cell - cellsPerWindow && taken.interactive + taken.background > 0,
    );
    return {
      closedUntil: this.#closedUntil,
      cells: cells.map(([at, { interactive, background }]) => [at, interactive, background]),
    };
  }

  close(until: number): void {
    this.#closedUntil = Math.max(this.#closedUntil, until);
  }

  /** Applies that tokens were returned unused, or used in a later cell than that from which they were taken. */
  move(moves: Moves): void {
    for (const [cell, by] of moves) {
      const taken = this.#at(cell);
      taken.interactive = Math.max(0, taken.interactive + by.interactive);
      taken.background = Math.max(0, taken.background + by.background);
    }
  }

  /**
   * Takes up to `want` tokens from the cells `from` to `to`, the earliest first; returns their number by cell. Tokens of a
   * future cell are reserved: later requests get later tokens.
   */
  take(given: {
    rule: Rule;
    priority: Priority;
    from: number;
    to: number;
    want: number;
  }): Map<number, number> {
    const { rule, priority, to } = given;
    const granted = new Map<number, number>();
    let want = given.want;
    const first = Math.max(given.from, Math.ceil(this.#closedUntil / cellMsOf(rule)));
    for (let cell = first; cell <= to && want > 0; cell += 1) {
      const count = Math.min(want, this.allowance(rule, { priority, cell }));
      if (count <= 0) continue;
      this.#at(cell)[priority] += count;
      granted.set(cell, count);
      want -= count;
    }
    return granted;
  }

  /** The number of tokens that can be taken from the cell now. */
  allowance(rule: Rule, { priority, cell }: { priority: Priority; cell: number }): number {
    if (cell * cellMsOf(rule) < this.#closedUntil) return 0;
    // Background calls have a smaller limit. Interactive calls are paced as if background calls did not exist, so the tokens
    // that these have left are available at once.
    const reserve = priority === 'background' ? Math.floor(rule.count * reservedShare) : 0;
    const limit = rule.count - reserve;
    const free = this.#free(limit, cell);
    if (rule.burst >= rule.count) return Math.max(0, free);
    const burst = Math.max(1, rule.burst - reserve);
    const counted = (at: number) => this.#taken(at, priority === 'interactive' ? 'interactive' : 'all');
    return Math.max(0, Math.min(free, paced({ limit, burst, cell, counted }) - counted(cell)));
  }

  /**
   * The number of tokens that can be taken from the cell `from` on, if each is taken as soon as possible: up to and including
   * `from`, up to and including the next cell, and so on for a whole window. Changes nothing.
   */
  forecast(rule: Rule, { priority, from }: { priority: Priority; from: number }): number[] {
    const taken = new SlidingWindow(this.pages(from));
    const sums: number[] = [];
    let sum = 0;
    for (let cell = from; cell <= from + cellsPerWindow + cellsAhead + 1; cell += 1) {
      const granted = taken.take({ rule, priority, from: cell, to: cell, want: rule.count });
      sum += granted.get(cell) ?? 0;
      sums.push(sum);
    }
    return sums;
  }

  /** Whether at least half of the limit is free in each window that includes the cell. */
  isPlentiful(rule: Rule, cell: number): boolean {
    return cell * cellMsOf(rule) >= this.#closedUntil && this.#free(rule.count, cell) >= rule.count / 2;
  }

  /** The tokens that are free in each window that includes `cell`, windows with reserved tokens included. */
  #free(limit: number, cell: number): number {
    let inWindow = 0;
    for (let at = cell - cellsPerWindow; at < cell; at += 1) inWindow += this.#taken(at, 'all');
    let max = 0;
    for (let last = cell; last <= cell + cellsPerWindow; last += 1) {
      inWindow += this.#taken(last, 'all');
      max = Math.max(max, inWindow);
      inWindow -= this.#taken(last - cellsPerWindow, 'all');
    }
    return limit - max;
  }

  #taken(cell: number, what: 'interactive' | 'all'): number {
    const taken = this.#cells.get(cell);
    if (taken === undefined) return 0;
    return what === 'all' ? taken.interactive + taken.background : taken.interactive;
  }

  #at(cell: number): Record<Priority, number> {
    const known = this.#cells.get(cell);
    if (known !== undefined) return known;
    const fresh = { interactive: 0, background: 0 };
    this.#cells.set(cell, fresh);
    return fresh;
  }
}

/**
 * The tokens that a cell gives in total: a burst if the window is nearly unused, else as much as each later cell can give
 * too. For any number of cells ahead, that is the free tokens and those that return by then, divided by the number of cells.
 */
function paced(given: {
  limit: number;
  burst: number;
  cell: number;
  counted: (cell: number) => number;
}): number {
  const { limit, burst, cell, counted } = given;
  let free = limit;
  for (let at = cell - cellsPerWindow; at < cell; at += 1) free -= counted(at);
  let even = free;
  let ahead = free;
  for (let cells = 2; cells <= cellsPerWindow + 1; cells += 1) {
    ahead += counted(cell - cellsPerWindow + cells - 2);
    even = Math.min(even, ahead / cells);
  }
  return Math.max(free - (limit - burst), Math.ceil(even));
}
