/**
 * This node's part of one quota: available tokens, pending writes, and the exchange with the store. The calls that wait for
 * tokens are in `bucket.ts`.
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

/** The number of waiting calls, and of their lanes. */
type Waiting = Readonly<Record<Priority, { readonly size: number; readonly lanes: number }>>;

/**
 * A token that was held for more cells is exchanged for a new one. Together with the cells that may be reserved ahead, and
 * those that a call may take, this is less than a window, so the cell from which a token was taken is still stored when its
 * use is written.
 */
const maxCellsHeld = 5;
/** Changes are written after so many cells at the latest, while no node can take tokens of cells beyond the window. */
const maxCellsUnwritten = 10;
export const priorities = ['interactive', 'background'] as const;

export class QuotaReserve {
  readonly #key: string;
  readonly #rule: Rule;
  readonly #store: WindowStore;
  readonly #held = { interactive: new HeldTokens(), background: new HeldTokens() };
  /** Requests for more tokens fail before this cell. */
  readonly #shortUntil = { interactive: 0, background: 0 };
  readonly #demand = new Demand();
  #known: Known;
  #window: SlidingWindow | undefined;
  #forecast: { window: SlidingWindow; priority: Priority; from: number; sums: number[] } | undefined;
  #moves: Moves = new Map();
  #closedUntil = 0;
  #isClosingUnwritten = false;
  #isPlentiful = false;

  constructor({ key, rule, store }: { key: string; rule: Rule; store: WindowStore }) {
    this.#key = key;
    this.#rule = rule;
    this.#store = store;
  }

  /** The present cell. */
  get cell(): number {
    return cellAt(this.#rule, this.#store.now());
  }

  /** No tokens are given before this time (ms). */
  get closedUntil(): number {
    return this.#closedUntil;
  }

  get isClosed(): boolean {
    return this.#store.now() < this.#closedUntil;
  }

  /** Whether there are pending writes: a closing, tokens to be returned, or late uses. */
  get hasPendingWrites(): boolean {
    return (
      this.#isClosingUnwritten || this.#moves.size > 0 || priorities.some((one) => this.#held[one].size > 0)
    );
  }

  /** The number of available tokens. */
  count(priority: Priority): number {
    return this.#held[priority].size;
  }

  /** Takes an available token that may be used now, and returns its cell. Tokens that are too old are returned. */
  take(priority: Priority): number | undefined {
    const now = this.cell;
    for (;;) {
      const cell = this.#held[priority].take(now);
      if (cell === undefined || now - cell <= maxCellsHeld) return cell;
      this.note(cell, priority, -1);
    }
  }

  /** Counts the use of a token. */
  noteDemand(): void {
    this.#demand.add(this.cell);
  }

  /** Whether a token of this cell is too old to be used. */
  isStale(cell: number): boolean {
    return cell < this.cell - maxCellsHeld;
  }

  giveBack(cell: number, priority: Priority): void {
    this.#held[priority].add(cell);
  }

  /** Adds to the difference between the used tokens of a cell and the stored ones. */
  note(cell: number, priority: Priority, by: number): void {
    const noted = this.#moves.get(cell) ?? { interactive: 0, background: 0 };
    noted[priority] += by;
    this.#moves.set(cell, noted);
  }

  /** No tokens are given before this time (ms); on other nodes once this is written. */
  close(until: number): void {
    this.#closedUntil = until;
    this.#isClosingUnwritten = true;
  }

  /** Whether requests for more tokens fail before the next cell. */
  isShort(priority: Priority): boolean {
    return this.#shortUntil[priority] > this.cell;
  }

  /** The earliest time (ms) for a token, as far as this node can say. */
  opensAt(priority: Priority): number {
    return Math.max(this.#closedUntil, this.#shortUntil[priority] * cellMsOf(this.#rule));
  }

  /** The first cell that may give tokens which are not available yet. */
  opensIn(priority: Priority): number {
    return Math.max(this.#shortUntil[priority], Math.ceil(this.#closedUntil / cellMsOf(this.#rule)));
  }

  /** As `SlidingWindow.forecast`; undefined before the window was read. */
  forecast(from: number, priority: Priority): number[] | undefined {
    const window = this.#window;
    if (window === undefined) return undefined;
    const known = this.#forecast;
    if (known?.window === window && known.from === from && known.priority === priority) return known.sums;
    const sums = window.forecast(this.#rule, { priority, from });
    this.#forecast = { window, priority, from, sums };
    return sums;
  }

  /** Whether pending writes are due. */
  isWriteDue(): boolean {
    const { cell } = this;
    const before = this.#isPlentiful ? cell - maxCellsUnwritten : cell - 1;
    if (this.#isClosingUnwritten || priorities.some((one) => (this.#held[one].first() ?? before) < before)) {
      return true;
    }
    if (!this.#isPlentiful) return this.#moves.size > 0;
    for (const moved of this.#moves.keys()) if (moved < before) return true;
    return false;
  }

  /** Writes pending changes and takes the wanted tokens, in one statement. Rejects if the database cannot be reached. */
  exchange(waiting: Waiting): Promise<void> {
    return this.#write(waiting, this.cell - (this.#isPlentiful ? maxCellsHeld : 1));
  }

  /** Writes pending changes, and returns all available tokens. */
  giveAllBack(): Promise<void> {
    const none = { size: 0, lanes: 0 };
    return this.#write({ interactive: none, background: none }, Number.POSITIVE_INFINITY);
  }

  /** Returns tokens of cells before `from`. */
  async #write(waiting: Waiting, from: number): Promise<void> {
    const now = this.cell;
    for (const priority of priorities) {
      const wanted = waiting[priority].lanes;
      for (const [cell, count] of this.#held[priority].surplus({ from, now, wanted })) {
        this.note(cell, priority, -count);
      }
    }
    const moves = this.#moves;
    const isClosingUnwritten = this.#isClosingUnwritten;
    const closedUntil = this.#closedUntil;
    const wants = {
      interactive: this.#want('interactive', waiting),
      background: this.#want('background', waiting),
    };
    this.#moves = new Map();
    this.#isClosingUnwritten = false;
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
        for (const [at, count] of tokens) this.#held[priority].add(at, count);
        this.#shortUntil[priority] = isShort ? cell + 1 : 0;
      }
      this.#closedUntil = Math.max(this.#closedUntil, window.closedUntil);
    } catch (error) {
      this.#isClosingUnwritten ||= isClosingUnwritten;
      // The write may have succeeded before its response was lost. To count tokens twice is safe; to return them twice is not.
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
    return { lanes: Math.max(0, lanes - this.#held[priority].size), spare: lately + size - lanes };
  }
}

const kept = 10;

/** The number of used tokens in each of the last ten cells. */
class Demand {
  readonly #counts = new Array<number>(kept).fill(0);
  #cell = 0;

  add(cell: number): void {
    this.#forget(cell);
    this.#counts[cell % kept] = (this.#counts[cell % kept] as number) + 1;
  }

  /** The use of the last `cells` cells, or of those before if it was higher; five cells at most. */
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

  /** Clears the counts of cells that are not kept any more. */
  #forget(cell: number): void {
    for (let next = Math.max(this.#cell + 1, cell - kept + 1); next <= cell; next += 1) {
      this.#counts[next % kept] = 0;
    }
    this.#cell = Math.max(this.#cell, cell);
  }
}

/** The unused tokens of this node, by their cell. */
class HeldTokens {
  readonly #cells = new Map<number, number>();

  get size(): number {
    let size = 0;
    for (const count of this.#cells.values()) size += count;
    return size;
  }

  add(cell: number, count = 1): void {
    this.#cells.set(cell, (this.#cells.get(cell) ?? 0) + count);
  }

  /** Takes the oldest token that may be used now, and returns its cell. */
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

  /** The first cell that has a token. */
  first(): number | undefined {
    return this.#cells.size === 0 ? undefined : Math.min(...this.#cells.keys());
  }

  /**
   * Removes and returns unneeded tokens, by cell: those of cells before `from`, and those of cells after `now` beyond the
   * `wanted` number, which the tokens that may be used now count for too.
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

/** The number of tokens that a node requests. */
type Want = {
  /** One for each waiting lane without a token. */
  readonly lanes: number;
  /** In addition: for the other waiting calls of the lanes, and for the expected calls. */
  readonly spare: number;
};

type Portion = {
  readonly priority: Priority;
  /** Their number by cell. */
  readonly tokens: ReadonlyMap<number, number>;
  /** Whether some lanes got none: a further request fails before the next cell. */
  readonly isShort: boolean;
};

/**
 * Takes a node's portion. Interactive lanes get tokens of future cells if the present one has none left; background lanes get
 * only free tokens of the present cell, so they never delay later interactive calls. If all lanes get tokens of the present
 * cell, up to a quarter of the rest is taken too, which leaves tokens for other nodes.
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
