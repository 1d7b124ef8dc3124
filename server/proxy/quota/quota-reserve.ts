/**
 * This node's part of one quota: available tokens, pending writes, and the traffic with the ledger. The calls that wait
 * for tokens are in `bucket.ts`.
 */

import {
  cellAt,
  cellMsOf,
  cellsAhead,
  type Moves,
  type Priority,
  type Rule,
  type SlidingWindow,
} from './sliding-window.ts';
import type { Known, WindowStore } from './window-store.ts';

/** How many wait, and in how many lanes. */
type Waiting = Readonly<Record<Priority, { readonly size: number; readonly lanes: number }>>;

/**
 * A token that was held for more cells than this is exchanged for another. Together with the cells that may be reserved
 * ahead and those that a call may be under way it stays within a window, so that the cell a token was taken from still
 * counts when it is written down in which one it was used.
 */
const maxCellsHeld = 5;
/** What is not written by then is written for itself: while nobody can be given a token of a cell beyond the window. */
const maxCellsUnwritten = 10;
export const priorities = ['interactive', 'background'] as const;

export class QuotaReserve {
  readonly #key: string;
  readonly #rule: Rule;
  readonly #store: WindowStore;
  readonly #hands = { interactive: new Hand(), background: new Hand() };
  /** Until this cell asking for more is no use. */
  readonly #shortUntil = { interactive: 0, background: 0 };
  readonly #demand = new Demand();
  #known: Known;
  #window: SlidingWindow | undefined;
  #forecast: { window: SlidingWindow; priority: Priority; from: number; sums: number[] } | undefined;
  #moves: Moves = new Map();
  #closedUntil = 0;
  #isClosingNews = false;
  #isPlentiful = false;

  constructor({ key, rule, store }: { key: string; rule: Rule; store: WindowStore }) {
    this.#key = key;
    this.#rule = rule;
    this.#store = store;
  }

  /** The cell that it is now. */
  get cell(): number {
    return cellAt(this.#rule, this.#store.now());
  }

  /** Nothing is given before this time (ms). */
  get closedUntil(): number {
    return this.#closedUntil;
  }

  get isClosed(): boolean {
    return this.#store.now() < this.#closedUntil;
  }

  /** Whether there is something to be written: tokens to be given back, or uses that came late. */
  get hasNews(): boolean {
    return this.#isClosingNews || this.#moves.size > 0 || priorities.some((one) => this.#hands[one].size > 0);
  }

  /** The number of available tokens. */
  count(priority: Priority): number {
    return this.#hands[priority].size;
  }

  /** The cell of an available token that may be used now; tokens that are too old are given back. */
  take(priority: Priority): number | undefined {
    const now = this.cell;
    for (;;) {
      const cell = this.#hands[priority].take(now);
      if (cell === undefined || now - cell <= maxCellsHeld) return cell;
      this.note(cell, priority, -1);
    }
  }

  /** A call is to use a token. */
  noteDemand(): void {
    this.#demand.add(this.cell);
  }

  /** Whether a token of this cell is too old to be used. */
  isStale(cell: number): boolean {
    return cell < this.cell - maxCellsHeld;
  }

  giveBack(cell: number, priority: Priority): void {
    this.#hands[priority].add(cell);
  }

  /** So many more were used in a cell than was written, or fewer. */
  note(cell: number, priority: Priority, by: number): void {
    const noted = this.#moves.get(cell) ?? { interactive: 0, background: 0 };
    noted[priority] += by;
    this.#moves.set(cell, noted);
  }

  /** Nothing is given before this time (ms), on any node once that is written. */
  close(until: number): void {
    this.#closedUntil = until;
    this.#isClosingNews = true;
  }

  /** Whether asking the ledger for more is no use before the next cell. */
  isShort(priority: Priority): boolean {
    return this.#shortUntil[priority] > this.cell;
  }

  /** When (ms) the first token can be had, as far as is known here. */
  opensAt(priority: Priority): number {
    return Math.max(this.#closedUntil, this.#shortUntil[priority] * cellMsOf(this.#rule));
  }

  /** The first cell of which a token can be had that is not yet available. */
  opensIn(priority: Priority): number {
    return Math.max(this.#shortUntil[priority], Math.ceil(this.#closedUntil / cellMsOf(this.#rule)));
  }

  /** As `Book.forecast`; undefined before the first look at the book. */
  forecast(from: number, priority: Priority): number[] | undefined {
    const window = this.#window;
    if (window === undefined) return undefined;
    const known = this.#forecast;
    if (known?.window === window && known.from === from && known.priority === priority) return known.sums;
    const sums = window.forecast(this.#rule, { priority, from });
    this.#forecast = { window, priority, from, sums };
    return sums;
  }

  /** Whether what there is to be written is to be written now. */
  isNewsDue(): boolean {
    const { cell } = this;
    const before = this.#isPlentiful ? cell - maxCellsUnwritten : cell - 1;
    if (this.#isClosingNews || priorities.some((one) => (this.#hands[one].first() ?? before) < before)) {
      return true;
    }
    if (!this.#isPlentiful) return this.#moves.size > 0;
    for (const moved of this.#moves.keys()) if (moved < before) return true;
    return false;
  }

  /** Writes what is new and takes what is wanted, in one statement. Rejects where the ledger cannot be reached. */
  exchange(waiting: Waiting): Promise<void> {
    return this.#write(waiting, this.cell - (this.#isPlentiful ? maxCellsHeld : 1));
  }

  /** Writes pending changes, and gives back all available tokens. */
  giveAllBack(): Promise<void> {
    const nobody = { size: 0, lanes: 0 };
    return this.#write({ interactive: nobody, background: nobody }, Number.POSITIVE_INFINITY);
  }

  /** Tokens for cells before `from` are given back. */
  async #write(waiting: Waiting, from: number): Promise<void> {
    const now = this.cell;
    for (const priority of priorities) {
      const wanted = waiting[priority].lanes;
      for (const [cell, count] of this.#hands[priority].surplus({ from, now, wanted })) {
        this.note(cell, priority, -count);
      }
    }
    const moves = this.#moves;
    const isClosingNews = this.#isClosingNews;
    const closedUntil = this.#closedUntil;
    const wants = {
      interactive: this.#want('interactive', waiting),
      background: this.#want('background', waiting),
    };
    this.#moves = new Map();
    this.#isClosingNews = false;
    try {
      const { result, known, window } = await this.#store.change({
        bucket: this.#key,
        rule: this.#rule,
        known: this.#known,
        change: (window, now) => {
          window.move(moves);
          window.close(closedUntil);
          const cell = cellAt(this.#rule, now);
          return priorities.map((priority) => {
            const want = wants[priority];
            return { cell, ...takePortion(window, { rule: this.#rule, priority, cell, want }) };
          });
        },
      });
      this.#known = known;
      this.#window = window;
      this.#isPlentiful = window.isPlentiful(this.#rule, this.cell);
      for (const { priority, tokens, isShort, cell } of result) {
        for (const [at, count] of tokens) this.#hands[priority].add(at, count);
        this.#shortUntil[priority] = isShort ? cell + 1 : 0;
      }
      this.#closedUntil = Math.max(this.#closedUntil, window.closedUntil);
    } catch (error) {
      this.#isClosingNews ||= isClosingNews;
      // It may have been written before the answer was lost: twice too much is safe, twice too little is not.
      for (const [cell, by] of moves) {
        for (const priority of priorities) if (by[priority] > 0) this.note(cell, priority, by[priority]);
      }
      throw error;
    }
  }

  #want(priority: Priority, waiting: Waiting): Want {
    const { size, lanes } = waiting[priority];
    const cells = this.#isPlentiful ? maxCellsHeld : 1;
    const lately = priority === 'background' ? 0 : this.#demand.of(cells, this.cell);
    return { lanes: Math.max(0, lanes - this.#hands[priority].size), spare: lately + size - lanes };
  }
}

const kept = 10;

/** How many tokens were used in each of the last ten cells. */
class Demand {
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

/** Tokens that this node has taken and not used yet, by the cell they are for. */
class Hand {
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

/** What a node wants of a book. */
type Want = {
  /** For each lane that waits and has no token yet. */
  readonly lanes: number;
  /** Beyond that: for who waits behind the first of a lane, and for calls as they came lately. */
  readonly spare: number;
};

type Portion = {
  readonly priority: Priority;
  /** How many for which cell. */
  readonly tokens: ReadonlyMap<number, number>;
  /** Whether some lanes got none: asking again is no use before the next cell. */
  readonly isShort: boolean;
};

/**
 * Takes a node's portion. Interactive lanes get tokens of cells that are still to come where this one has none left;
 * a background lane only what is free now, so that it never stands before an interactive call that comes later. Where
 * all lanes have theirs at once, a quarter of what is left at most goes along, so that other nodes find some.
 */
function takePortion(
  window: SlidingWindow,
  given: { rule: Rule; priority: Priority; cell: number; want: Want },
): Portion {
  const { rule, priority, cell, want } = given;
  const to = priority === 'interactive' ? cell + cellsAhead : cell;
  const tokens = window.take({ rule, priority, from: cell, to, want: want.lanes });
  let taken = 0;
  for (const count of tokens.values()) taken += count;
  const now = tokens.get(cell) ?? 0;
  if (want.lanes > 0 && now === want.lanes) {
    const left = Math.floor(window.allowance(rule, { priority, cell }) / 4);
    const spare = window.take({ rule, priority, from: cell, to: cell, want: Math.min(want.spare, left) });
    tokens.set(cell, now + (spare.get(cell) ?? 0));
  }
  return { priority, tokens, isShort: taken < want.lanes };
}
