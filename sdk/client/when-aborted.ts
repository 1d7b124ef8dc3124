/** The waiting calls of each signal: a hundred concurrent calls share one listener, since platforms warn of many listeners. */
const waiting = new WeakMap<AbortSignal, Set<() => void>>();

/** Calls back when a signal is aborted, at once where it is; returns how to stop waiting. */
export function whenAborted(signal: AbortSignal | undefined, run: () => void): () => void {
  if (signal === undefined) return () => {};
  if (signal.aborted) {
    run();
    return () => {};
  }
  let all = waiting.get(signal);
  if (all === undefined) {
    const made = new Set<() => void>();
    all = made;
    waiting.set(signal, made);
    const tell = () => {
      for (const one of [...made]) one();
    };
    signal.addEventListener('abort', tell, { once: true });
  }
  all.add(run);
  return () => waiting.get(signal)?.delete(run);
}

/** As `given`, but rejects with the signal's reason as soon as it is aborted. */
export function unlessAborted<T>(given: T | PromiseLike<T>, signal: AbortSignal | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    const stopWaiting = whenAborted(signal, () => reject(signal?.reason));
    Promise.resolve(given).then(resolve, reject).finally(stopWaiting);
  });
}
