/** Whoever waits for a signal, by signal: a hundred calls at once take one listener, which platforms count and warn of. */
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
