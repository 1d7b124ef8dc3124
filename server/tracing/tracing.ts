/**
 * Traces: spans of the service's work, sent to the operator's collector if it is set, and the cause of the current work.
 * `export.ts` exports the spans, and is loaded only if tracing is on. No span holds a query, a value of a path, a header or
 * a body.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { TracingConfig } from '../config/monitoring.ts';
import { AppError } from '../errors.ts';

export type Attributes = Readonly<Record<string, string | number | boolean>>;

/** One operation of a trace. Attributes follow the semantic conventions of OpenTelemetry if these name them. */
export type Span = {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  /** Identifies the span for other processes and for later work (W3C Trace Context §3.2). */
  readonly traceparent: string;
  set(attributes: Attributes): void;
  /** Ends the span, once. `error` is the code of a failure, never a message. */
  end(error?: string): void;
};

type SpanKind = 'server' | 'client' | 'internal' | 'producer' | 'consumer';

export type NewSpan = {
  readonly kind: SpanKind;
  readonly attributes?: Attributes;
  /** Absent: the span of the present cause; without one, the span begins a trace. */
  readonly parent?: Span | RemoteSpan | undefined;
  /** The span that queued this work without waiting for it: queued work is a separate trace, linked to that span. */
  readonly link?: RemoteSpan | undefined;
};

/** A span of another process, as `traceparent` and `tracestate` name it (W3C Trace Context). */
export type RemoteSpan = {
  readonly traceId: string;
  readonly spanId: string;
  readonly flags: number;
  readonly state: string | undefined;
};

/** Begins spans while tracing is on. */
export type Tracer = (name: string, span: NewSpan) => Span;

/** Undefined if `traceparent` is absent or invalid: then the work begins a trace (W3C Trace Context §3.2.2). */
export function remoteSpanOf({
  traceparent,
  tracestate,
}: NodeJS.Dict<string | string[]>): RemoteSpan | undefined {
  if (typeof traceparent !== 'string') return undefined;
  const found = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/.exec(traceparent);
  if (found === null) return undefined;
  const [, version, traceId = '', spanId = '', flags = '', more] = found;
  const isForbidden = version === 'ff' || /^0+$/.test(traceId) || /^0+$/.test(spanId);
  if (isForbidden || (version === '00' && more !== undefined)) return undefined;
  const state = typeof tracestate === 'string' && tracestate.length <= 512 ? tracestate : undefined;
  return { traceId, spanId, flags: Number.parseInt(flags, 16), state };
}

/**
 * The cause of work: the request, run or job that started it, and its span.
 *
 * The cause follows the work through every `await`, so each log line names it. It does not follow callbacks of a shared socket
 * or a kept process: their listener sets the cause with `within`.
 */
export type Cause = {
  readonly reqId?: string;
  readonly runId?: string;
  readonly job?: string;
  /** Absent if tracing is off. */
  readonly span?: Span | undefined;
};

const store = new AsyncLocalStorage<Cause | undefined>();

/** Undefined for work that the service started automatically. */
export function currentCause(): Cause | undefined {
  return store.getStore();
}

/** The span of the present cause, for work in another process or later; null: none. */
export function currentTraceparent(): string | null {
  return store.getStore()?.span?.traceparent ?? null;
}

/** Runs work with this cause instead of the present one. */
export function within<T>(cause: Cause | undefined, work: () => T): T {
  return store.run(cause, work);
}

/** Runs work that many callers share, such as a batch, without a cause. */
export function outside<T>(work: () => T): T {
  return store.run(undefined, work);
}

/** The fields of the present cause for a log line. */
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

let tracer: Tracer | undefined;

/**
 * Starts tracing if `config` is set. The returned function stops it; it sends the remaining spans, for a second at most.
 * `onError` receives the first failure in a row.
 */
export async function startTracing(
  config: TracingConfig | undefined,
  settings: { version: string; onError: (error: unknown) => void },
): Promise<() => Promise<void>> {
  if (config === undefined) return async () => {};
  const { createExport } = await import('./export.ts');
  const made = createExport(config, settings);
  ({ tracer } = made);
  return async () => {
    tracer = undefined;
    await made.stop();
  };
}

/** Whether spans are made, for frequent code that skips building their attributes. */
export function isTracing(): boolean {
  return tracer !== undefined;
}

/** Begins a span; undefined if tracing is off. The caller that begins a span ends it. */
export function startSpan(name: string, span: NewSpan): Span | undefined {
  if (tracer === undefined) return undefined;
  return tracer(name, { ...span, parent: span.parent ?? currentCause()?.span });
}

/** Runs work within a new span. An error of the work is that of the span. */
export async function spanned<T>(
  name: string,
  span: NewSpan,
  work: (span: Span | undefined) => Promise<T>,
): Promise<T> {
  const begun = startSpan(name, span);
  if (begun === undefined) return work(undefined);
  try {
    const result = await within({ ...currentCause(), span: begun }, () => work(begun));
    begun.end();
    return result;
  } catch (error) {
    begun.end(errorCodeOf(error));
    throw error;
  }
}

/** The error of a span: the code of an AppError, else `internal`. */
export function errorCodeOf(error: unknown): string {
  return error instanceof AppError ? error.code : 'internal';
}
