/**
 * One quota as this node has it: tokens at hand, and the line of those who wait for one.
 *
 * A node reserves one token for each lane (connection) that waits, however many wait in it, and as the reservations of
 * all nodes are given in the order they were asked for, a lane gets as many as any other lane of any node. Beyond that
 * it takes what its calls have used lately, so that most calls find a token at hand. Nothing is taken for long where
 * tokens are short: what is not used in its cell or the one after is given back. Where they are plentiful a portion is
 * for five cells, and what there is to be written waits for the next portion.
 */
import { serviceStops } from '../waits.ts';
import { type Book, cellAt, cellMsOf, type Moves, type Priority, type Rule } from './book.ts';
import { Demand } from './demand.ts';
import { Hand } from './hand.ts';
import type { Known, Ledger } from './ledger.ts';
import { Line, type Waiter } from './line.ts';
import { takePortion, type Want } from './portion.ts';

/** What allows one call. Ends by `settle`, `giveBack` or `drop`. */
export type Token = { readonly cell: number; readonly priority: Priority };

export type TokenWaiter = Waiter & {
  readonly priority: Priority;
  /** By the ledger's time (ms): no use to wait beyond it. */
  readonly until: number;
  serve(token: Token): void;
  /** No token comes in time. */
  refuse(): void;
  fail(error: Error): void;
};

const mostWaiting = 2_000;
const mostInLane = 200;
/** Nobody waits longer, so in that time a line is through, served or not. */
const longestWaitMs = 60_000;
/**
 * A token that was held for more cells than this is exchanged for another. A call that is answered more cells than that
 * after it was sent was counted before. With the cells that may be reserved ahead both together stay within a window,
 * so that the cell a token was taken from still counts when it is written down in which one it was used.
 */
const mostCellsHeld = 5;
const mostCellsUnderWay = 10;
/** What is not written by then is written for itself: while nobody can be given a token of a cell beyond the window. */
const mostCellsUnwritten = 10;
const priorities = ['interactive', 'background'] as const;

export class Bucket {
  readonly #key: string;
  readonly #rule: Rule;
  readonly #ledger: Ledger;
  readonly #hands = { interactive: new Hand(), background: new Hand() };
  readonly #lines = { interactive: new Line<TokenWaiter>(), background: new Line<TokenWaiter>() };
  /** Until this cell asking for more is no use. */
  readonly #shortUntil = { interactive: 0, background: 0 };
  #known: Known;
  #book: Book | undefined;
  #forecast: { book: Book; priority: Priority; from: number; sums: number[] } | undefined;
  #moves: Moves = new Map();
  #closedUntil = 0;
  #isClosingNews = false;
  #isPlentiful = false;
  readonly #demand = new Demand();
  #syncing: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isRefusing = false;
  #isStopped = false;

  constructor({ key, rule, ledger }: { key: string; rule: Rule; ledger: Ledger }) {
    this.#key = key;
    this.#rule = rule;
    this.#ledger = ledger;
  }

  /** Whether nothing is kept here that the next use would miss. */
  get isIdle(): boolean {
    return this.#waiting === 0 && this.#syncing === undefined && this.#timer === undefined;
  }

  /** A token that is at hand; undefined: wait for one. */
  take(priority: Priority): Token | undefined {
    const now = this.#ledger.now();
    if (this.#lines[priority].size > 0 || now < this.#closedUntil) return undefined;
    const cell = this.#pick(priority, cellAt(this.#rule, now));
    return cell === undefined ? undefined : this.#tokenOf(cell, priority);
  }

  /** Queues for a token; false where the line is full, or no token can come in time. Throws `unavailable` (503). */
  wait(waiter: TokenWaiter): boolean {
    if (this.#isRefusing) throw serviceStops();
    const line = this.#lines[waiter.priority];
    if (this.#waiting >= mostWaiting || line.in(waiter.lane) >= mostInLane) return false;
    const opensAt = Math.max(this.#closedUntil, this.#shortUntil[waiter.priority] * cellMsOf(this.#rule));
    if (opensAt > this.#ledger.now() && opensAt >= waiter.until) return false;
    line.add(waiter);
    this.#pump();
    return true;
  }

  /** Does nothing where the waiter is served already. */
  leave(waiter: TokenWaiter): void {
    this.#lines[waiter.priority].remove(waiter);
    if (this.#waiting === 0) this.#pump();
  }

  /** The call that the token allowed, sent at that time (ms), was answered or given up: by now it is counted. */
  settle({ cell, priority }: Token, sentAt: number): void {
    const counted = Math.min(this.#cell(), cellAt(this.#rule, sentAt) + mostCellsUnderWay);
    if (counted <= cell) return;
    this.#note(cell, priority, -1);
    this.#note(counted, priority, 1);
    this.#rest();
  }

  /** Whether the token is too old to be used. */
  isStale({ cell }: Token): boolean {
    return cell < this.#cell() - mostCellsHeld;
  }

  /** Returns a token that is too old. */
  drop({ cell, priority }: Token): void {
    this.#note(cell, priority, -1);
    this.#rest();
  }

  /** The call that the token allowed was not sent. */
  giveBack({ cell, priority }: Token): void {
    this.#hands[priority].add(cell);
    this.#pump();
  }

  /** Nobody is given a token before this time (ms), on any node. */
  close(until: number): void {
    if (until <= this.#closedUntil) return;
    this.#closeHere(until);
    this.#isClosingNews = true;
    this.#sync();
  }

  /** When (ms) who comes to this lane can expect a token: after those who wait here already. */
  expectedAt(priority: Priority, lane: number): number {
    const now = this.#ledger.now();
    const cellMs = cellMsOf(this.#rule);
    const from = Math.max(
      cellAt(this.#rule, now),
      this.#shortUntil[priority],
      Math.ceil(this.#closedUntil / cellMs),
    );
    const sums = this.#forecastFrom(from, priority);
    // Before the first look at the book nothing is known.
    if (sums === undefined) return Math.max(this.#closedUntil, now + cellMs);
    const isBehindAll = priority === 'background';
    const before = this.#lines[priority].before(lane) + (isBehindAll ? this.#lines.interactive.size : 0);
    const opensAt = (tokens: number) => {
      const cells = sums.findIndex((sum) => sum >= tokens);
      return (from + (cells === -1 ? sums.length : cells)) * cellMs;
    };
    const servedAt = opensAt(Math.max(1, before + 1 - this.#hands[priority].size));
    return Math.max(this.#closedUntil, opensAt(1), Math.min(servedAt, now + longestWaitMs));
  }

  /** Nobody waits any more: who does is refused, and who comes. */
  refuse(): void {
    this.#isRefusing = true;
    for (const line of Object.values(this.#lines)) {
      for (const waiter of line.drain()) waiter.fail(serviceStops());
    }
  }

  /** Resolves once nothing is left to be written; who waits is refused. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.refuse();
    await this.#syncing;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#hasNews) await this.#write(Number.POSITIVE_INFINITY);
  }

  get #waiting(): number {
    return this.#lines.interactive.size + this.#lines.background.size;
  }

  #cell(): number {
    return cellAt(this.#rule, this.#ledger.now());
  }

  #forecastFrom(from: number, priority: Priority): number[] | undefined {
    const book = this.#book;
    if (book === undefined) return undefined;
    const known = this.#forecast;
    if (known?.book === book && known.from === from && known.priority === priority) return known.sums;
    const sums = book.forecast(this.#rule, { priority, from });
    this.#forecast = { book, priority, from, sums };
    return sums;
  }

  /** Of the tokens at hand one that may be used in this cell; those that are too old go back. */
  #pick(priority: Priority, now: number): number | undefined {
    for (;;) {
      const cell = this.#hands[priority].take(now);
      if (cell === undefined || now - cell <= mostCellsHeld) return cell;
      this.#note(cell, priority, -1);
    }
  }

  #tokenOf(cell: number, priority: Priority): Token {
    this.#demand.add(this.#cell());
    this.#rest();
    return { cell, priority };
  }

  #note(cell: number, priority: Priority, by: number): void {
    const noted = this.#moves.get(cell) ?? { interactive: 0, background: 0 };
    noted[priority] += by;
    this.#moves.set(cell, noted);
  }

  #closeHere(until: number): void {
    this.#closedUntil = until;
    for (const priority of priorities) {
      const line = this.#lines[priority];
      const staying: TokenWaiter[] = [];
      for (const waiter of line.drain()) {
        if (waiter.until <= until) waiter.refuse();
        else staying.push(waiter);
      }
      for (const waiter of staying) line.add(waiter);
    }
  }

  /** Serves who can be served, and sees to it that the others will be. */
  #pump(): void {
    const cell = this.#cell();
    if (this.#ledger.now() >= this.#closedUntil) {
      for (const priority of priorities) this.#serve(priority, cell);
    }
    const asks = priorities.some(
      (priority) => this.#wanted(priority) > 0 && this.#shortUntil[priority] <= cell,
    );
    if (asks && this.#ledger.now() >= this.#closedUntil) this.#sync();
    else this.#rest();
  }

  #serve(priority: Priority, cell: number): void {
    const line = this.#lines[priority];
    while (line.size > 0) {
      const taken = this.#pick(priority, cell);
      if (taken === undefined) return;
      line.next()?.serve(this.#tokenOf(taken, priority));
    }
  }

  /** Tokens to reserve: one for each lane that has none yet. */
  #wanted(priority: Priority): number {
    return this.#lines[priority].lanes - this.#hands[priority].size;
  }

  /** Whether there is something to be written: tokens to be given back, or uses that came late. */
  get #hasNews(): boolean {
    return this.#isClosingNews || this.#moves.size > 0 || priorities.some((one) => this.#hands[one].size > 0);
  }

  /** Whether it is to be written now. */
  #isNewsDue(): boolean {
    const cell = this.#cell();
    const before = this.#isPlentiful ? cell - mostCellsUnwritten : cell - 1;
    if (this.#isClosingNews || priorities.some((one) => (this.#hands[one].first() ?? before) < before)) {
      return true;
    }
    if (!this.#isPlentiful) return this.#moves.size > 0;
    for (const moved of this.#moves.keys()) if (moved < before) return true;
    return false;
  }

  /** Goes on by itself with the next cell, while somebody waits or something is at hand. */
  #rest(): void {
    if (this.#isStopped || this.#timer !== undefined || this.#syncing !== undefined) return;
    if (this.#waiting === 0 && !this.#hasNews) return;
    const now = this.#ledger.now();
    const next = (cellAt(this.#rule, now) + 1) * cellMsOf(this.#rule);
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        // While somebody waits, each cell brings news of what other nodes have closed or given back.
        if (this.#waiting > 0 || this.#isNewsDue()) this.#sync();
        else this.#rest();
      },
      Math.max(1, Math.ceil(next - now)),
    );
    if (this.#waiting === 0) this.#timer.unref();
  }

  #sync(): void {
    if (this.#isStopped || this.#syncing !== undefined) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#syncing = this.#write(this.#cell() - (this.#isPlentiful ? mostCellsHeld : 1))
      .catch((error: unknown) => {
        for (const line of Object.values(this.#lines)) {
          for (const waiter of line.drain()) waiter.fail(error as Error);
        }
      })
      .then(() => {
        this.#syncing = undefined;
        this.#pump();
      });
  }

  /** Writes what is new and takes what is wanted, in one statement. Tokens for cells before `from` are given back. */
  async #write(from: number): Promise<void> {
    const now = this.#cell();
    for (const priority of priorities) {
      const wanted = this.#lines[priority].lanes;
      for (const [cell, count] of this.#hands[priority].surplus({ from, now, wanted })) {
        this.#note(cell, priority, -count);
      }
    }
    const moves = this.#moves;
    const isClosingNews = this.#isClosingNews;
    const closedUntil = this.#closedUntil;
    const wants = { interactive: this.#want('interactive'), background: this.#want('background') };
    this.#moves = new Map();
    this.#isClosingNews = false;
    try {
      const { result, known, book } = await this.#ledger.change({
        bucket: this.#key,
        rule: this.#rule,
        known: this.#known,
        change: (book, now) => {
          book.move(moves);
          book.close(closedUntil);
          const cell = cellAt(this.#rule, now);
          return priorities.map((priority) => {
            const want = wants[priority];
            return { cell, ...takePortion(book, { rule: this.#rule, priority, cell, want }) };
          });
        },
      });
      this.#known = known;
      this.#book = book;
      this.#isPlentiful = book.isPlentiful(this.#rule, this.#cell());
      for (const { priority, tokens, isShort, cell } of result) {
        for (const [at, count] of tokens) this.#hands[priority].add(at, count);
        this.#shortUntil[priority] = isShort ? cell + 1 : 0;
      }
      if (book.closedUntil > this.#closedUntil) this.#closeHere(book.closedUntil);
    } catch (error) {
      this.#isClosingNews ||= isClosingNews;
      // It may have been written before the answer was lost: twice too much is safe, twice too little is not.
      for (const [cell, by] of moves) {
        for (const priority of priorities) if (by[priority] > 0) this.#note(cell, priority, by[priority]);
      }
      throw error;
    }
  }

  #want(priority: Priority): Want {
    const { size, lanes } = this.#lines[priority];
    const cells = this.#isPlentiful ? mostCellsHeld : 1;
    const lately = priority === 'background' ? 0 : this.#demand.of(cells, this.#cell());
    return { lanes: Math.max(0, this.#wanted(priority)), spare: lately + size - lanes };
  }
}
