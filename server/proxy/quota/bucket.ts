/**
 * One quota on this node: the distribution of its tokens, and the queue of the calls that wait for one. The available
 * tokens, and the exchange with the other nodes, are in `quota-reserve.ts`.
 *
 * A node reserves one token for each lane (connection) that waits, however many calls wait in it. The reservations of all
 * nodes are served in the order of their requests, so a lane gets as many as any other lane of any node. Beyond that, the
 * node takes as many as its calls have used lately, so that most calls find a token available. If tokens are short, none is
 * held for long: a token that is not used in its cell or the next one is given back. If tokens are plentiful, a portion is
 * for five cells, and pending writes wait for the next portion.
 */
import { serviceStops } from '../../http/drain.ts';
import { priorities, QuotaReserve } from './quota-reserve.ts';
import { cellAt, cellMsOf, type Priority, type Rule } from './sliding-window.ts';
import type { WindowStore } from './window-store.ts';

/** Allows one call. Must be returned by `settle`, `giveBack` or `drop`. */
export type Token = { readonly cell: number; readonly priority: Priority };

/** A call that waits for a token. */
export type TokenWaiter = QueueItem & {
  readonly priority: Priority;
  /** In the store's time (ms): when it stops waiting. */
  readonly until: number;
  serve(token: Token): void;
  /** There is no token in time. */
  refuse(): void;
  fail(error: Error): void;
};

/** Each priority has a queue of its own, so background calls never displace interactive ones. */
const maxInQueue = 2_000;
const maxInLane = 200;
/** No call waits longer, so all calls leave a queue within this time. */
const maxWaitMs = 60_000;
/** The provider counts a call at most so many cells after it was sent; see `maxCellsHeld`. */
const maxCellsUnderWay = 10;

export class Bucket {
  readonly #rule: Rule;
  readonly #store: WindowStore;
  readonly #reserve: QuotaReserve;
  readonly #queues = { interactive: new FairQueue<TokenWaiter>(), background: new FairQueue<TokenWaiter>() };
  #syncing: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isRefusing = false;
  #isStopped = false;

  constructor(given: { key: string; rule: Rule; store: WindowStore }) {
    this.#rule = given.rule;
    this.#store = given.store;
    this.#reserve = new QuotaReserve(given);
  }

  /** Whether the bucket has no state that the next call needs. */
  get isIdle(): boolean {
    return this.#waiting === 0 && this.#syncing === undefined && this.#timer === undefined;
  }

  /** Takes an available token; undefined: the call must wait. */
  take(priority: Priority): Token | undefined {
    if (this.#queues[priority].size > 0 || this.#reserve.isClosed) return undefined;
    const cell = this.#reserve.take(priority);
    return cell === undefined ? undefined : this.#tokenOf(cell, priority);
  }

  /** Queues for a token; false if the queue is full, or no token can be there in time. Throws `unavailable` (503). */
  wait(waiter: TokenWaiter): boolean {
    if (this.#isRefusing) throw serviceStops();
    const queue = this.#queues[waiter.priority];
    if (queue.in(waiter.lane) >= maxInLane) return false;
    const opensAt = this.#reserve.opensAt(waiter.priority);
    if (opensAt > this.#store.now() && opensAt >= waiter.until) return false;
    if (queue.size >= maxInQueue && !this.#evict(queue, waiter.lane)) return false;
    queue.add(waiter);
    this.#pump();
    return true;
  }

  /** Has no effect on a waiter that was served. */
  leave(waiter: TokenWaiter): void {
    this.#queues[waiter.priority].remove(waiter);
    if (this.#waiting === 0) this.#pump();
  }

  /** The call, sent at this time (ms), was answered or given up: the provider has counted it by now. */
  settle({ cell, priority }: Token, sentAt: number): void {
    const counted = Math.min(this.#reserve.cell, cellAt(this.#rule, sentAt) + maxCellsUnderWay);
    if (counted <= cell) return;
    this.#reserve.note(cell, priority, -1);
    this.#reserve.note(counted, priority, 1);
    this.#scheduleNext();
  }

  /** Whether the token is too old to be used. */
  isStale({ cell }: Token): boolean {
    return this.#reserve.isStale(cell);
  }

  /** Returns a token that is too old. */
  drop({ cell, priority }: Token): void {
    this.#reserve.note(cell, priority, -1);
    this.#scheduleNext();
  }

  /** Returns the token of a call that was not sent. */
  giveBack({ cell, priority }: Token): void {
    this.#reserve.giveBack(cell, priority);
    this.#pump();
  }

  /** No node gives tokens before this time (ms). */
  close(until: number): void {
    if (until <= this.#reserve.closedUntil) return;
    this.#reserve.close(until);
    this.#refuseEndingBefore(until);
    this.#sync();
  }

  /** When (ms) a new call of this lane can expect a token, after the calls that wait on this node. */
  expectedAt(priority: Priority, lane: number): number {
    const now = this.#store.now();
    const cellMs = cellMsOf(this.#rule);
    const { closedUntil } = this.#reserve;
    const from = Math.max(cellAt(this.#rule, now), this.#reserve.opensIn(priority));
    const sums = this.#reserve.forecast(from, priority);
    // The window was not read yet.
    if (sums === undefined) return Math.max(closedUntil, now + cellMs);
    const isBehindAll = priority === 'background';
    const before = this.#queues[priority].before(lane) + (isBehindAll ? this.#queues.interactive.size : 0);
    const opensAt = (tokens: number) => {
      const cells = sums.findIndex((sum) => sum >= tokens);
      return (from + (cells === -1 ? sums.length : cells)) * cellMs;
    };
    const servedAt = opensAt(Math.max(1, before + 1 - this.#reserve.count(priority)));
    return Math.max(closedUntil, opensAt(1), Math.min(servedAt, now + maxWaitMs));
  }

  /** Refuses all waiting calls, and all later calls that would wait. */
  refuse(): void {
    this.#isRefusing = true;
    this.#failAll(serviceStops());
  }

  /** Refuses all waiting calls; resolves when all changes are written. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.refuse();
    await this.#syncing;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#reserve.hasPendingWrites) await this.#reserve.giveAllBack();
  }

  get #waiting(): number {
    return this.#queues.interactive.size + this.#queues.background.size;
  }

  #tokenOf(cell: number, priority: Priority): Token {
    this.#reserve.noteDemand();
    this.#scheduleNext();
    return { cell, priority };
  }

  /** Refuses the last call of the longest lane in favour of this lane; false if no lane is longer. */
  #evict(queue: FairQueue<TokenWaiter>, lane: number): boolean {
    const last = queue.lastOfLongest();
    if (last === undefined || queue.in(last.lane) <= queue.in(lane) + 1) return false;
    queue.remove(last);
    last.refuse();
    return true;
  }

  #refuseEndingBefore(until: number): void {
    for (const priority of priorities) {
      const queue = this.#queues[priority];
      const staying: TokenWaiter[] = [];
      for (const waiter of queue.drain()) {
        if (waiter.until <= until) waiter.refuse();
        else staying.push(waiter);
      }
      for (const waiter of staying) queue.add(waiter);
    }
  }

  #failAll(error: Error): void {
    for (const queue of Object.values(this.#queues)) for (const waiter of queue.drain()) waiter.fail(error);
  }

  /** Serves calls with the available tokens, and requests more if needed. */
  #pump(): void {
    const isOpen = !this.#reserve.isClosed;
    if (isOpen) for (const priority of priorities) this.#serve(priority);
    const needsMore = priorities.some(
      (priority) =>
        this.#queues[priority].lanes > this.#reserve.count(priority) && !this.#reserve.isShort(priority),
    );
    if (needsMore && isOpen) this.#sync();
    else this.#scheduleNext();
  }

  #serve(priority: Priority): void {
    const queue = this.#queues[priority];
    while (queue.size > 0) {
      const taken = this.#reserve.take(priority);
      if (taken === undefined) return;
      queue.next()?.serve(this.#tokenOf(taken, priority));
    }
  }

  /** Continues automatically with the next cell, while a call waits or a token is available. */
  #scheduleNext(): void {
    if (this.#isStopped || this.#timer !== undefined || this.#syncing !== undefined) return;
    if (this.#waiting === 0 && !this.#reserve.hasPendingWrites) return;
    const now = this.#store.now();
    const next = (cellAt(this.#rule, now) + 1) * cellMsOf(this.#rule);
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        // While calls wait, each cell reads what other nodes have closed or returned.
        if (this.#waiting > 0 || this.#reserve.isWriteDue()) this.#sync();
        else this.#scheduleNext();
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
      .exchange(this.#queues)
      .then(
        () => {
          if (this.#reserve.closedUntil > closedUntil) this.#refuseEndingBefore(this.#reserve.closedUntil);
        },
        (error: Error) => this.#failAll(error),
      )
      .then(() => {
        this.#syncing = undefined;
        this.#pump();
      });
  }
}

type QueueItem = {
  /** The connection. */
  readonly lane: number;
};

/**
 * A queue that serves its lanes round-robin, and each lane in order of arrival: a lane with a thousand items is served as
 * often as one with a single item.
 */
export class FairQueue<Item extends QueueItem> {
  /** In the order of their turns. */
  readonly #lanes = new Map<number, Set<Item>>();
  #size = 0;

  /** The number of items. */
  get size(): number {
    return this.#size;
  }

  /** The number of lanes with items. */
  get lanes(): number {
    return this.#lanes.size;
  }

  /** The number of items in this lane. */
  in(lane: number): number {
    return this.#lanes.get(lane)?.size ?? 0;
  }

  /** The maximum number of items that are served before a new item of this lane. */
  before(lane: number): number {
    const own = this.in(lane);
    let before = own;
    for (const [other, items] of this.#lanes) {
      if (other !== lane) before += Math.min(items.size, own + 1);
    }
    return before;
  }

  /** The last item of the longest lane; undefined: the queue is empty. */
  lastOfLongest(): Item | undefined {
    let longest: ReadonlySet<Item> | undefined;
    for (const lane of this.#lanes.values()) if (lane.size >= (longest?.size ?? 0)) longest = lane;
    return longest && [...longest].at(-1);
  }

  add(item: Item): void {
    const lane = this.#lanes.get(item.lane) ?? new Set();
    this.#lanes.set(item.lane, lane.add(item));
    this.#size += 1;
  }

  /** Has no effect if the item is not in the queue. */
  remove(item: Item): void {
    const lane = this.#lanes.get(item.lane);
    if (lane?.delete(item) !== true) return;
    this.#size -= 1;
    if (lane.size === 0) this.#lanes.delete(item.lane);
  }

  /** Removes and returns the next item; its lane's next turn comes after those of all other lanes. */
  next(): Item | undefined {
    for (const [lane, items] of this.#lanes) {
      for (const item of items) {
        this.remove(item);
        if (items.size > 0) {
          this.#lanes.delete(lane);
          this.#lanes.set(lane, items);
        }
        return item;
      }
    }
    return undefined;
  }

  /** Removes and returns all items. */
  *drain(): Generator<Item> {
    for (let item = this.next(); item !== undefined; item = this.next()) yield item;
  }
}
