/** Processes by environment: each is taken for one run, kept for the next, and ended when it is idle for too long. */
import type { CustomerProcess } from './customer-process.ts';
import type { RuntimeSettings } from './run-order.ts';

type Settings = Pick<RuntimeSettings, 'maxProcesses' | 'idleMs' | 'runsPerProcess'>;
type Waiter = {
  environmentId: number;
  resolve: (process: CustomerProcess) => void;
  reject: (error: unknown) => void;
};

export class Pool {
  readonly #settings: Settings;
  readonly #start: (environmentId: number) => Promise<CustomerProcess>;
  readonly #idle = new Map<CustomerProcess, NodeJS.Timeout>();
  readonly #running = new Set<CustomerProcess>();
  /** The subset of `#running` whose run is over, and that may be idle soon. */
  readonly #settling = new Set<CustomerProcess>();
  /** The environments of processes that are starting. */
  readonly #starting: number[] = [];
  readonly #waiters: Waiter[] = [];
  /** Processes that were stopped and have not exited yet. */
  readonly #leaving = new Set<CustomerProcess>();
  #started = 0;
  #isClosed = false;

  constructor(settings: Settings, start: (environmentId: number) => Promise<CustomerProcess>) {
    this.#settings = settings;
    this.#start = start;
  }

  /** An idle process of this environment. Rejects if none can be started, or if `signal` aborts. */
  async take(environmentId: number, signal?: AbortSignal): Promise<CustomerProcess> {
    signal?.throwIfAborted();
    if (this.#isClosed) throw new Error('the service is ending');
    const { promise, resolve, reject } = Promise.withResolvers<CustomerProcess>();
    const waiter = { environmentId, resolve, reject };
    this.#waiters.push(waiter);
    const leave = () => {
      const at = this.#waiters.indexOf(waiter);
      if (at >= 0) this.#waiters.splice(at, 1);
      reject(signal?.reason);
    };
    signal?.addEventListener('abort', leave, { once: true });
    this.#serve();
    try {
      return await promise;
    } finally {
      signal?.removeEventListener('abort', leave);
    }
  }

  /** Returns a process after its run. It is used again if it is in order, else ended. */
  giveBack(process: CustomerProcess): void {
    void this.#settle(process);
  }

  counts(): { processes: number; running: number; waiting: number; started: number } {
    const running = this.#running.size;
    return {
      processes: this.#idle.size + running + this.#starting.length + this.#leaving.size,
      running,
      waiting: this.#waiters.length,
      started: this.#started,
    };
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const waiter of this.#waiters.splice(0)) waiter.reject(new Error('the service is ending'));
    for (const process of [...this.#idle.keys(), ...this.#running]) this.#end(process);
    await Promise.all([...this.#leaving].map((process) => process.exited));
  }

  async #settle(process: CustomerProcess): Promise<void> {
    process.runs += 1;
    this.#settling.add(process);
    const isUsable = (await process.settled()) && process.runs < this.#settings.runsPerProcess;
    this.#settling.delete(process);
    this.#running.delete(process);
    if (isUsable && !this.#isClosed) this.#keep(process);
    else this.#end(process);
    this.#serve();
  }

  #keep(process: CustomerProcess): void {
    const timer = setTimeout(() => {
      this.#idle.delete(process);
      this.#end(process);
    }, this.#settings.idleMs);
    this.#idle.set(process, timer.unref());
  }

  #end(process: CustomerProcess): void {
    clearTimeout(this.#idle.get(process));
    this.#idle.delete(process);
    this.#running.delete(process);
    if (process.hasExited) return;
    this.#leaving.add(process);
    process.stop({ cause: 'unavailable', message: 'The service ended the process of the run.' });
    void process.exited.then(() => {
      this.#leaving.delete(process);
      this.#serve();
    });
  }

  /** Assigns each waiter, in turn, an idle process, a process that is coming, or a free slot for a new process. */
  #serve(): void {
    const coming = [...this.#starting, ...[...this.#settling].map(({ environmentId }) => environmentId)];
    let slotsComing = this.#leaving.size;
    for (const waiter of this.#inTurn()) {
      const { environmentId } = waiter;
      const idle = this.#idleOf(environmentId);
      const at = coming.indexOf(environmentId);
      if (idle) this.#hand(idle, waiter);
      else if (at >= 0) coming.splice(at, 1);
      else if (this.counts().processes < this.#settings.maxProcesses) void this.#startFor(environmentId);
      else if (slotsComing > 0) slotsComing -= 1;
      // Not passed on to a later waiter: the end of this process frees a slot for this one.
      else this.#endLongestIdle();
    }
  }

  /** Waiters of the environment with the fewest running processes first, then by their time of waiting. */
  #inTurn(): Waiter[] {
    const busy = new Map<number, number>();
    const count = (id: number) => {
      busy.set(id, (busy.get(id) ?? 0) + 1);
      return busy.get(id)!;
    };
    for (const { environmentId } of this.#running) count(environmentId);
    return this.#waiters
      .map((waiter) => ({ waiter, turn: count(waiter.environmentId) }))
      .sort((a, b) => a.turn - b.turn)
      .map(({ waiter }) => waiter);
  }

  #idleOf(environmentId: number): CustomerProcess | undefined {
    for (const process of this.#idle.keys()) {
      if (process.environmentId !== environmentId) continue;
      clearTimeout(this.#idle.get(process));
      this.#idle.delete(process);
      if (process.isAlive) return process;
      this.#end(process);
    }
    return undefined;
  }

  #hand(process: CustomerProcess, waiter: Waiter): void {
    this.#waiters.splice(this.#waiters.indexOf(waiter), 1);
    this.#running.add(process);
    waiter.resolve(process);
  }

  #endLongestIdle(): void {
    const [longestIdle] = this.#idle.keys();
    if (longestIdle) this.#end(longestIdle);
  }

  async #startFor(environmentId: number): Promise<void> {
    this.#starting.push(environmentId);
    this.#started += 1;
    try {
      const process = await this.#start(environmentId);
      if (this.#isClosed) this.#end(process);
      else this.#keep(process);
    } catch (error) {
      const at = this.#waiters.findIndex((waiter) => waiter.environmentId === environmentId);
      this.#waiters.splice(at, at < 0 ? 0 : 1)[0]?.reject(error);
    } finally {
      this.#starting.splice(this.#starting.indexOf(environmentId), 1);
    }
    this.#serve();
  }
}
