/**
 * Executes claimed rows: deliveries, runs of functions, and remote calls.
 *
 * A claim is a row with an owner and a lease. A worker looks for due rows, executes the claims, renews their leases, and
 * drains: on a stop it claims nothing more, and gives back what does not end in time.
 *
 * Does not own: the statements, which each kind of work has for its own table, and the fence that ties each write to the
 * owner in the row. A lease alone proves nothing: a process may notice late that it lost the lease.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { atMost, firstFailures, repeatEvery } from './concurrency.ts';
import { mayPass } from './db/pool.ts';

/** Why a task is to end. `lost`: the row belongs to another node, or is given back. The task writes nothing more. */
export type Interruption = 'cancelled' | 'stopping' | 'lost';

/** A claim that this node executes. */
export class Task<C extends { readonly leasedAtMs: number }> {
  readonly claim: C;
  /** By the clock of `performance.now()`: the start of the last statement that took or renewed the lease. */
  leasedAtMs: number;
  readonly #interrupted = new AbortController();
  #interruption: Interruption | undefined;

  constructor(claim: C) {
    this.claim = claim;
    this.leasedAtMs = claim.leasedAtMs;
  }

  get signal(): AbortSignal {
    return this.#interrupted.signal;
  }

  get interruption(): Interruption | undefined {
    return this.#interruption;
  }

  /** A lost task stays lost. */
  interrupt(interruption: Interruption): void {
    if (this.#interruption !== 'lost') this.#interruption = interruption;
    this.#interrupted.abort();
  }
}

/**
 * What a look found. `more`: it claimed something, and another look at once may find more. `later`: there may be more
 * behind what it examined, and the next look continues there. `nothing`: nothing else is due.
 */
export type Look = 'more' | 'later' | 'nothing';

type WorkerOptions<C extends { readonly leasedAtMs: number }, R> = {
  /** Claims what is due and passes each claim to `begin`. Not called any more once the worker stops. */
  look: () => Promise<Look>;
  execute: (task: Task<C>) => Promise<R>;
  /** The pause between two looks. `wake` and the end of each task shorten it. */
  pollMs: number;
  /** Undefined: a lease lasts as long as its task. */
  lease?: {
    leaseMs: number;
    renewMs: number;
    /** A task that is not renewed is lost this long before its lease ends. Undefined: it continues without its lease. */
    marginMs?: number;
    /** Returns the tasks whose leases it renewed. */
    renew: (tasks: readonly Task<C>[]) => Promise<readonly Task<C>[]>;
  };
  /** Called with the first failure in a row. */
  onError: (error: unknown) => void;
  /** Called when a stop begins and the last look has ended. */
  onStop?: () => Promise<unknown>;
  /** Called with the tasks, all of them lost now, that did not end within the grace period of a stop. */
  giveBack: (tasks: readonly Task<C>[]) => Promise<unknown>;
};

export type Worker<C extends { readonly leasedAtMs: number }, R> = {
  /** Looks for work and renews leases until `stop`. */
  start(): void;
  /** Looks at once. */
  wake(): void;
  /** Executes a claim. Resolves with the result; undefined if the task failed, which is reported. */
  begin(claim: C): Promise<R | undefined>;
  /** Works until nothing is due and no task is under way. Throws what a look throws. */
  runDue(): Promise<void>;
  tasks(): readonly Task<C>[];
  /** Resolves when all tasks have ended that are under way now. */
  settled(): Promise<void>;
  isStopping(): boolean;
  report(error: unknown): void;
  /** Begins nothing more. Tasks under way may end within `graceMs`; then they are given back. */
  stop(graceMs: number): Promise<void>;
};

export function createWorker<C extends { readonly leasedAtMs: number }, R>(
  options: WorkerOptions<C, R>,
): Worker<C, R> {
  const { look, execute, pollMs, lease, onError, onStop, giveBack } = options;
  const underWay = new Map<Task<C>, Promise<unknown>>();
  const { failed: report, succeeded } = firstFailures(onError);
  let isStopping = false;
  let ended = 0;
  let loop: Promise<void> | undefined;
  let renewals: ReturnType<typeof repeatEvery> | undefined;
  let wake = () => {};

  /** Resolves at the next `wake`. */
  function waking(): Promise<void> {
    const woken = Promise.withResolvers<void>();
    wake = woken.resolve;
    return woken.promise;
  }

  async function lookOnce(): Promise<Look> {
    if (isStopping) return 'nothing';
    const found = await look();
    succeeded();
    return found;
  }

  async function keepLooking(): Promise<void> {
    while (!isStopping) {
      const woken = waking();
      const found = await lookOnce().catch(report);
      if (found === 'more' || isStopping) continue;
      const timer = setTimeout(wake, pollMs);
      await woken;
      clearTimeout(timer);
    }
  }

  function begin(claim: C): Promise<R | undefined> {
    const task = new Task(claim);
    const done = execute(task)
      // The lease ends, and another node takes the row over.
      .catch((error: unknown) => void report(error) as undefined)
      .finally(() => {
        underWay.delete(task);
        ended += 1;
        wake();
      });
    underWay.set(task, done);
    return done;
  }

  /** Overlaps with a renewal that the database does not answer: the lease must not depend on one connection. */
  function keepRenewing({ leaseMs, renewMs, marginMs, renew }: NonNullable<typeof lease>) {
    function loseLapsed(): void {
      if (marginMs === undefined) return;
      for (const task of underWay.keys()) {
        if (performance.now() - task.leasedAtMs > leaseMs - marginMs) task.interrupt('lost');
      }
    }
    async function renewAll(): Promise<void> {
      loseLapsed();
      const held = [...underWay.keys()].filter(({ interruption }) => interruption !== 'lost');
      if (held.length === 0) return;
      const atMs = performance.now();
      try {
        // A renewal that was overtaken may answer after a newer one.
        for (const task of await renew(held)) task.leasedAtMs = Math.max(task.leasedAtMs, atMs);
      } finally {
        loseLapsed();
      }
    }
    return repeatEvery(renewMs, renewAll, { onError: report, overtakenAfterMs: leaseMs / 5 });
  }

  async function settled(): Promise<void> {
    await Promise.allSettled(underWay.values());
  }

  return {
    start() {
      loop ??= keepLooking();
      if (lease !== undefined) renewals ??= keepRenewing(lease);
    },
    wake: () => wake(),
    begin,
    async runDue() {
      for (;;) {
        const woken = waking();
        const endedBefore = ended;
        const found = await lookOnce();
        const isMore = found !== 'nothing' || ended !== endedBefore;
        if (isMore && !isStopping) continue;
        if (underWay.size === 0) return;
        await woken;
      }
    },
    tasks: () => [...underWay.keys()],
    settled,
    isStopping: () => isStopping,
    report,
    async stop(graceMs) {
      isStopping = true;
      wake();
      await loop;
      await onStop?.();
      await atMost(graceMs, settled());
      // Not awaited: the database may not answer, and a renewal of a released row changes nothing.
      void renewals?.stop();
      const left = [...underWay.keys()];
      for (const task of left) task.interrupt('lost');
      await giveBack(left);
    },
  };
}

const againMs = 250;

/**
 * Repeats a write through outages of the database while `isHeld`: the result that it writes exists only here. `isInDoubt`:
 * an earlier attempt may be committed although its answer was lost. Throws when the task is not held any more, or for a
 * failure that does not pass.
 */
export async function writeWhileHeld<T>(
  write: (isInDoubt: boolean) => Promise<T>,
  { isHeld, onFailure }: { isHeld: () => boolean; onFailure: (error: unknown) => void },
): Promise<T> {
  for (let isInDoubt = false; ; isInDoubt = true) {
    try {
      return await write(isInDoubt);
    } catch (error) {
      if (!isHeld() || !mayPass(error)) throw error;
      onFailure(error);
    }
    await pause(againMs);
  }
}
