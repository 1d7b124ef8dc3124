/**
 * The cause of the current work: the request, run or job that started it, and the span that stands for it.
 *
 * The cause follows the work through every `await`, so that a line of the log names the cause wherever it is written. It
 * does not follow callbacks of a shared socket or a kept process: their listener sets the cause, by `within`.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Span } from './span.ts';

export type Cause = {
  readonly reqId?: string;
  readonly runId?: string;
  readonly job?: string;
  /** Absent while nothing is traced. */
  readonly span?: Span | undefined;
};

const store = new AsyncLocalStorage<Cause | undefined>();

/** Undefined where nobody asked for the work: the service does it by itself. */
export function currentCause(): Cause | undefined {
  return store.getStore();
}

/** The span of the present cause, for what is left to another process or to later; null where there is none. */
export function currentTraceparent(): string | null {
  return store.getStore()?.span?.traceparent ?? null;
}

/** Does the work as that of a cause, in the place of the present one. */
export function within<T>(cause: Cause | undefined, work: () => T): T {
  return store.run(cause, work);
}

/** Does work that many share, such as a batch, as nobody's. */
export function outside<T>(work: () => T): T {
  return store.run(undefined, work);
}

/** As lines of the log name it; none where there is no cause. */
export function causeFields(): Record<string, string> {
  const cause = store.getStore();
  if (cause === undefined) return {};
  const { reqId, runId, job, span } = cause;
  return {
    ...(reqId !== undefined && { reqId }),
    ...(runId !== undefined && { runId }),
    ...(job !== undefined && { job }),
    ...(span !== undefined && { traceId: span.traceId }),
  };
}
