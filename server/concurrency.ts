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

type Waiting<A, R> = { item: A; resolve: (result: R) => void; reject: (error: unknown) => void };

/**
 * Lets `work` do together what came while it was busy, up to `max` items at a time and one such batch after the other; it
 * answers for each item, in their order. One that comes while nothing is under way is a batch by itself, so that nobody
 * waits for others to come. Where `work` throws, all of its batch have failed.
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
