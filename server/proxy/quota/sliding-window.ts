/**
 * What was taken of one quota, as arithmetic: no clock, no database, no waiting.
 *
 * Time is cut into cells, thirty to a window. A token is taken out of a cell and used in it; the sum over any window's
 * cells, the one that has only begun included, never passes the limit. So no window of the provider's holds more,
 * wherever it begins, and all of the limit can be used (30/31 of it), which a token bucket cannot offer: its burst and
 * its rate together must stay below the limit, or a burst and the minute after it count double.
 *
 * A window that was emptied at once would leave nobody anything for the rest of it. Where many share a limit, `burst`
 * says how much may go at once; beyond that a cell gives no more than can be given on and on until the window's
 * tokens come back.
 */
export type Rule = {
  /** Tokens in any window. */
  readonly count: number;
  /** Tokens that may be taken at once from a window that nobody used. */
  readonly burst: number;
  readonly windowMs: number;
};

/** A person waits for one; the other is a sync's. */
export type Priority = 'interactive' | 'background';

export const cellsPerWindow = 30;
/** How many cells ahead tokens may be reserved: far enough for a line, near enough that what was used is still known. */
export const cellsAhead = 10;
/** Of the limit, what background calls leave to interactive ones. */
const reservedShare = 0.1;

/** As it is stored. */
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

  /** Nothing is given before this time (ms). */
  get closedUntil(): number {
    return this.#closedUntil;
  }

  /** Without the cells that no window of `cell` or later reaches. */
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

  /** Writes down that tokens came back unused, or were used later than in the cell they were taken from. */
  move(moves: Moves): void {
    for (const [cell, by] of moves) {
      const taken = this.#at(cell);
      taken.interactive = Math.max(0, taken.interactive + by.interactive);
      taken.background = Math.max(0, taken.background + by.background);
    }
  }

  /**
   * Takes up to `want` tokens out of the cells from `from` to `to`, the earliest first; says how many of each. Tokens
   * of a cell that is still to come are reserved: who asks later gets later ones.
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

  /** How many tokens the cell gives at the moment. */
  allowance(rule: Rule, { priority, cell }: { priority: Priority; cell: number }): number {
    if (cell * cellMsOf(rule) < this.#closedUntil) return 0;
    // Background calls keep to a smaller limit, and interactive ones are paced as if the background calls did not exist:
    // tokens that background calls have left are available at once.
    const reserve = priority === 'background' ? Math.floor(rule.count * reservedShare) : 0;
    const limit = rule.count - reserve;
    const free = this.#free(limit, cell);
    if (rule.burst >= rule.count) return Math.max(0, free);
    const burst = Math.max(1, rule.burst - reserve);
    const counted = (at: number) => this.#taken(at, priority === 'interactive' ? 'interactive' : 'all');
    return Math.max(0, Math.min(free, paced({ limit, burst, cell, counted }) - counted(cell)));
  }

  /**
   * How many tokens could be had from the cell `from` on if all were taken as soon as they can be: up to and including
   * it, up to and including the next, ... Looks as far as a window reaches. Changes nothing.
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

  /** Whether half of the limit at least is not taken in any window that reaches the cell. */
  isPlentiful(rule: Rule, cell: number): boolean {
    return cell * cellMsOf(rule) >= this.#closedUntil && this.#free(rule.count, cell) >= rule.count / 2;
  }

  /** What no window that reaches `cell` has taken yet, windows that hold reserved tokens included. */
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
 * What a cell gives in all: a burst where the window is nearly empty, else as much as each cell after it can give too.
 * For any number of cells ahead, that is what is free now and what comes back until then, divided by their number.
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
