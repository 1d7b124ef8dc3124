import { metrics } from '../../metrics/metrics.ts';
import { currentCause, within } from '../../tracing/cause.ts';
import { remoteSpanOf } from '../../tracing/span.ts';
import { startSpan } from '../../tracing/tracing.ts';
import type { Claim } from './claims.ts';

/** What is told of a run: no ID of its connection, which a customer chose. */
type MeasuredRun = Pick<Claim, 'id' | 'kind' | 'trigger' | 'attempt' | 'function' | 'traceparent'>;

/**
 * Executes one turn of a run as a cause of its own: a child span of the caller that waits for it, or linked to the span that
 * queued it. Log lines during the turn name the run, and its calls stand below its span. The metrics count the turn by
 * `outcomeOf` of its result, and a turn that throws as `lost`.
 */
export async function measuredRun<T>(
  { id, kind, trigger, attempt, function: of, traceparent }: MeasuredRun,
  { work, outcomeOf }: { work: () => Promise<T>; outcomeOf: (result: T) => string },
): Promise<T> {
  const isWaitedFor = currentCause()?.span !== undefined;
  const span = startSpan(`run ${kind}`, {
    kind: 'internal',
    link: isWaitedFor || traceparent === null ? undefined : remoteSpanOf({ traceparent }),
    attributes: {
      'trellis.run_id': id,
      'trellis.function': of.name,
      'trellis.trigger': trigger,
      'trellis.attempt': attempt,
    },
  });
  const startedAt = performance.now();
  let outcome = 'lost';
  try {
    const result = await within({ ...currentCause(), runId: id, span }, work);
    outcome = outcomeOf(result);
    return result;
  } finally {
    metrics.runs.add([kind, outcome]);
    metrics.runDuration.observe([kind], (performance.now() - startedAt) / 1000);
    span?.set({ 'trellis.outcome': outcome });
    span?.end(outcome === 'succeeded' ? undefined : outcome);
  }
}
