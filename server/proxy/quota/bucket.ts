/**
 * One quota on this node: the distribution of its tokens, and the line of the calls that wait for one. The available
 * tokens, and the traffic with the other nodes, are in `quota-reserve.ts`.
 *
 * A node reserves one token for each lane (connection) that waits, however many calls wait in it. The reservations of all
 * nodes are served in the order of their requests, so a lane gets as many as any other lane of any node. Beyond that, the
 * node takes as many as its calls have used lately, so that most calls find a token available. If tokens are short, none is
 * held for long: a token that is not used in its cell or the next one is given back. If tokens are plentiful, a portion is
 * for five cells, and pending writes wait for the next portion.
 */
import { serviceStops } from '../../http/drain.ts';
import { FairQueue, type Waiter } from './fair-queue.ts';
import { priorities, QuotaReserve } from './quota-reserve.ts';
import { cellAt, cellMsOf, type Priority, type Rule } from './sliding-window.ts';
import type { WindowStore } from './window-store.ts';

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

/** Of each priority: those that nobody waits for never stand in the way of those that somebody does. */
const maxInLine = 2_000;
const maxInLane = 200;
/** Nobody waits longer, so in that time a line is through, served or not. */
const longestWaitMs = 60_000;
/** A call that is answered more cells than that after it was sent was counted before; see `maxCellsHeld`. */
const maxCellsUnderWay = 10;

export class Bucket {
  readonly #rule: Rule;
  readonly #store: WindowStore;
  readonly #reserve: QuotaReserve;
  readonly #lines = { interactive: new FairQueue<TokenWaiter>(), background: new FairQueue<TokenWaiter>() };
  #syncing: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isRefusing = false;
  #isStopped = false;

  constructor(given: { key: string; rule: Rule; store: WindowStore }) {
    this.#rule = given.rule;
    this.#store = given.store;
    this.#reserve = new QuotaReserve(given);
  }

  /** Whether nothing is kept here that the next use would miss. */
  get isIdle(): boolean {
    return this.#waiting === 0 && this.#syncing === undefined && this.#timer === undefined;
  }

  /** An available token; undefined: wait for one. */
  take(priority: Priority): Token | undefined {
    if (this.#lines[priority].size > 0 || this.#reserve.isClosed) return undefined;
    const cell = this.#reserve.take(priority);
    return cell === undefined ? undefined : this.#tokenOf(cell, priority);
  }

  /** Queues for a token; false where the line is full, or no token can come in time. Throws `unavailable` (503). */
  wait(waiter: TokenWaiter): boolean {
    if (this.#isRefusing) throw serviceStops();
    const line = this.#lines[waiter.priority];
    if (line.in(waiter.lane) >= maxInLane) return false;
    const opensAt = this.#reserve.opensAt(waiter.priority);
    if (opensAt > this.#store.now() && opensAt >= waiter.until) return false;
    if (line.size >= maxInLine && !this.#evict(line, waiter.lane)) return false;
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
    const counted = Math.min(this.#reserve.cell, cellAt(this.#rule, sentAt) + maxCellsUnderWay);
    if (counted <= cell) return;
    this.#reserve.note(cell, priority, -1);
    this.#reserve.note(counted, priority, 1);
    this.#rest();
  }

  /** Whether the token is too old to be used. */
  isStale({ cell }: Token): boolean {
    return this.#reserve.isStale(cell);
  }

  /** Returns a token that is too old. */
  drop({ cell, priority }: Token): void {
    this.#reserve.note(cell, priority, -1);
    this.#rest();
  }

  /** The call that the token allowed was not sent. */
  giveBack({ cell, priority }: Token): void {
    this.#reserve.giveBack(cell, priority);
    this.#pump();
  }

  /** Nobody is given a token before this time (ms), on any node. */
  close(until: number): void {
    if (until <= this.#reserve.closedUntil) return;
    this.#reserve.close(until);
    this.#refuseWhoEndsBefore(until);
    this.#sync();
  }

  /** When (ms) who comes to this lane can expect a token: after those who wait here already. */
  expectedAt(priority: Priority, lane: number): number {
    const now = this.#store.now();
    const cellMs = cellMsOf(this.#rule);
    const { closedUntil } = this.#reserve;
    const from = Math.max(cellAt(this.#rule, now), this.#reserve.opensIn(priority));
    const sums = this.#reserve.forecast(from, priority);
    // Before the first look at the book nothing is known.
    if (sums === undefined) return Math.max(closedUntil, now + cellMs);
    const isBehindAll = priority === 'background';
    const before = this.#lines[priority].before(lane) + (isBehindAll ? this.#lines.interactive.size : 0);
    const opensAt = (tokens: number) => {
      const cells = sums.findIndex((sum) => sum >= tokens);
      return (from + (cells === -1 ? sums.length : cells)) * cellMs;
    };
    const servedAt = opensAt(Math.max(1, before + 1 - this.#reserve.count(priority)));
    return Math.max(closedUntil, opensAt(1), Math.min(servedAt, now + longestWaitMs));
  }

  /** Nobody waits any more: who does is refused, and who comes. */
  refuse(): void {
    this.#isRefusing = true;
    this.#failAll(serviceStops());
  }

  /** Resolves once nothing is left to be written; who waits is refused. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.refuse();
    await this.#syncing;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#reserve.hasNews) await this.#reserve.giveAllBack();
  }

  get #waiting(): number {
    return this.#lines.interactive.size + this.#lines.background.size;
  }

  #tokenOf(cell: number, priority: Priority): Token {
    this.#reserve.noteDemand();
    this.#rest();
    return { cell, priority };
  }

  /** Refuses the last of the longest lane in favour of a shorter one; false where none is longer. */
  #evict(line: FairQueue<TokenWaiter>, lane: number): boolean {
    const last = line.lastOfLongest();
    if (last === undefined || line.in(last.lane) <= line.in(lane) + 1) return false;
    line.remove(last);
    last.refuse();
    return true;
  }

  #refuseWhoEndsBefore(until: number): void {
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

  #failAll(error: Error): void {
    for (const line of Object.values(this.#lines)) for (const waiter of line.drain()) waiter.fail(error);
  }

  /** Serves who can be served, and sees to it that the others will be. */
  #pump(): void {
    const isOpen = !this.#reserve.isClosed;
    if (isOpen) for (const priority of priorities) this.#serve(priority);
    const asks = priorities.some(
      (priority) =>
        this.#lines[priority].lanes > this.#reserve.count(priority) && !this.#reserve.isShort(priority),
    );
    if (asks && isOpen) this.#sync();
    else this.#rest();
  }

  #serve(priority: Priority): void {
    const line = this.#lines[priority];
    while (line.size > 0) {
      const taken = this.#reserve.take(priority);
      if (taken === undefined) return;
      line.next()?.serve(this.#tokenOf(taken, priority));
    }
  }

  /** Continues automatically with the next cell, while a call waits or a token is available. */
  #rest(): void {
    if (this.#isStopped || this.#timer !== undefined || this.#syncing !== undefined) return;
    if (this.#waiting === 0 && !this.#reserve.hasNews) return;
    const now = this.#store.now();
    const next = (cellAt(this.#rule, now) + 1) * cellMsOf(this.#rule);
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        // While somebody waits, each cell brings news of what other nodes have closed or given back.
        if (this.#waiting > 0 || this.#reserve.isNewsDue()) this.#sync();
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
    const { closedUntil } = this.#reserve;
    this.#syncing = this.#reserve
      .exchange(this.#lines)
      .then(
        () => {
          if (this.#reserve.closedUntil > closedUntil) this.#refuseWhoEndsBefore(this.#reserve.closedUntil);
        },
        (error: Error) => this.#failAll(error),
      )
      .then(() => {
        this.#syncing = undefined;
        this.#pump();
      });
  }
}
