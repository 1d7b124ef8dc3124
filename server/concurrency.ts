/**
 * Runs at most `max` tasks at a time; others wait in the order of their calls. A burst of requests to a node therefore
 * does not take every connection to the database, or every thread.
 */
export function limitConcurrency(max: number): <T>(work: () => Promise<T>) => Promise<T> {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (work) => {
    // A task that ends passes its slot directly to the next waiter (FIFO).
    if (running < max) running += 1;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next === undefined) running -= 1;
      else next();
    }
  };
}

/**
 * Does `work` for all items, at most `max` at a time. After a failure no other item begins; once the running ones have
 * ended, throws the first error.
 */
export async function forEachLimited<T>(
  items: readonly T[],
  max: number,
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  const rest = items.values();
  const failures: unknown[] = [];
  const worker = async () => {
    for (const item of rest) {
      if (failures.length > 0) return;
      await work(item).catch((error: unknown) => failures.push(error));
    }
  };
  await Promise.all(Array.from({ length: max }, worker));
  if (failures.length > 0) throw failures[0];
}

type Waiting<A, R> = { item: A; resolve: (result: R) => void; reject: (error: unknown) => void };

/**
 * Collects the items that arrive while `work` runs, and passes them to the next call, at most `max` at a time; `work` returns
 * a result for each item, in their order. An item that arrives while nothing runs is passed on immediately. If `work` throws, all
 * items of its batch fail.
 */
export function inBatches<A, R>(
  work: (items: readonly A[]) => Promise<readonly R[]>,
  { max }: { max: number },
): (item: A) => Promise<R> {
  let waiting: Waiting<A, R>[] = [];
  let isBusy = false;

  async function goOn(): Promise<void> {
    isBusy = true;
    while (waiting.length > 0) {
      const batch = waiting.slice(0, max);
      waiting = waiting.slice(max);
      try {
        const results = await work(batch.map(({ item }) => item));
        for (const [index, { resolve }] of batch.entries()) resolve(results[index] as R);
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    isBusy = false;
  }

  return (item) => {
    const { promise, resolve, reject } = Promise.withResolvers<R>();
    waiting.push({ item, resolve, reject });
    if (!isBusy) void goOn();
    return promise;
  };
}

/** Calls `make` at the first call and keeps its result. A failure is not kept: the next call tries again. */
export function keepResult<T>(make: () => Promise<T>): () => Promise<T> {
  let kept: Promise<T> | undefined;
  return () => {
    kept ??= make().catch((error) => {
      kept = undefined;
      throw error;
    });
    return kept;
  };
}

/** Passes on the first of several failures in a row, so that an outage makes one line in the log. */
export function firstFailures(onError: (error: unknown) => void) {
  let isFailing = false;
  return {
    failed(error: unknown): void {
      if (!isFailing) onError(error);
      isFailing = true;
    },
    succeeded(): void {
      isFailing = false;
    },
  };
}

export type Repetition = {
  /** Runs once more, after the current run. */
  runNext(): Promise<void>;
  /** Aborts the signal of the current run and resolves when the run has ended. */
  stop(): Promise<void>;
};

/**
 * Runs `work` every `everyMs`. One run at a time: a tick during a run does nothing, unless the run takes longer than
 * `overtakenAfterMs`. `onError` gets the first failure in a row.
 */
export function repeatEvery(
  everyMs: number,
  work: (signal: AbortSignal) => Promise<unknown>,
  {
    onError,
    overtakenAfterMs = Number.POSITIVE_INFINITY,
  }: { onError: (error: unknown) => void; overtakenAfterMs?: number },
): Repetition {
  const stopping = new AbortController();
  const { failed, succeeded } = firstFailures(onError);
  let startedAtMs = 0;
  let current: Promise<void> | undefined;
  function run(): Promise<void> {
    if (current !== undefined && performance.now() - startedAtMs < overtakenAfterMs) return current;
    startedAtMs = performance.now();
    const running = work(stopping.signal)
      .then(succeeded, failed)
      .finally(() => {
        if (current === running) current = undefined;
      });
    current = running;
    return running;
  }
  const timer = setInterval(run, everyMs);
  return {
    async runNext() {
      await current;
      await run();
    },
    async stop() {
      stopping.abort();
      clearInterval(timer);
      await current;
    },
  };
}

/** Resolves with the promise, or after the time limit. */
export async function atMost(limitMs: number, promise: Promise<unknown>): Promise<void> {
  const over = Promise.withResolvers<void>();
  const timer = setTimeout(over.resolve, limitMs);
  await Promise.race([promise, over.promise]).finally(() => clearTimeout(timer));
}
