/**
 * Traces: spans of the service's work, sent to the operator's collector if one is set.
 *
 * Owns: whether anything is traced, and how a span becomes that of the work within it. Does not own: the export of spans
 * (`export.ts`, which is not even loaded while tracing is off), the contents of a span (`span.ts`). Modules name their
 * own spans. No span holds a query, a value of a path, a header or a body.
 */

import type { TracingConfig } from '../config/monitoring.ts';
import { AppError } from '../errors.ts';
import { currentCause, within } from './cause.ts';
import type { NewSpan, Span, Tracer } from './span.ts';

let tracer: Tracer | undefined;

/**
 * From now on spans are made, and sent where `config` says; nothing where it is undefined. Answers what ends it: what is left is
 * sent first, for a second at most. `onError` is told of the first failure in a row.
 */
export async function startTracing(
  config: TracingConfig | undefined,
  told: { version: string; onError: (error: unknown) => void },
): Promise<() => Promise<void>> {
  if (config === undefined) return async () => {};
  const { createExport } = await import('./export.ts');
  const made = createExport(config, told);
  ({ tracer } = made);
  return async () => {
    tracer = undefined;
    await made.stop();
  };
}

/** Whether spans are made at all: for who is called so often that even saying what one would hold costs something. */
export function isTracing(): boolean {
  return tracer !== undefined;
}

/** Begins a span; undefined while nothing is traced. The caller that begins a span ends it. */
export function startSpan(name: string, span: NewSpan): Span | undefined {
  if (tracer === undefined) return undefined;
  return tracer(name, { ...span, parent: span.parent ?? currentCause()?.span });
}

/** Does work within a span of its own, which ends with it; what it throws is the span's error. */
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

/** What a span says of an error: its code, and `internal` of one that has none. */
export function errorCodeOf(error: unknown): string {
  return error instanceof AppError ? error.code : 'internal';
}
