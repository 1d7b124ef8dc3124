/** The callbacks of each signal. They share one listener, because platforms warn about many listeners on a signal. */
const callbacks = new WeakMap<AbortSignal, Set<() => void>>();

/** Calls `run` when the signal aborts, or immediately if it is aborted. Returns a function that removes the callback. */
export function whenAborted(signal: AbortSignal | undefined, run: () => void): () => void {
  if (signal === undefined) return () => {};
  if (signal.aborted) {
    run();
    return () => {};
  }
  const registered = callbacks.get(signal) ?? new Set();
  if (!callbacks.has(signal)) {
    callbacks.set(signal, registered);
    const runAll = () => {
      for (const callback of [...registered]) callback();
    };
    signal.addEventListener('abort', runAll, { once: true });
  }
  registered.add(run);
  return () => registered.delete(run);
}

/** Settles as `value` does, or rejects with the signal's reason once it aborts. */
export function unlessAborted<T>(value: T | PromiseLike<T>, signal: AbortSignal | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = whenAborted(signal, () => reject(signal?.reason));
    Promise.resolve(value).then(resolve, reject).finally(stop);
  });
}
