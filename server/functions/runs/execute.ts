/** Executes the code of one claimed run: the checks of its connection, its input and context, and its outcome. */
import type { LiveConnection } from '../../connections/store/reader.ts';
import { type Db, mayPass } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { metrics } from '../../metrics/metrics.ts';
import { missingScopes } from '../../providers/scopes.ts';
import { currentCause, remoteSpanOf, startSpan, within } from '../../tracing/tracing.ts';
import { createContext } from '../context/context.ts';
import { Secrets } from '../context/secrets.ts';
import { type ContextDeps, requireRow } from '../context/service-call.ts';
import { findCode } from '../deploys/store.ts';
import { LargeJson } from '../isolation/payload.ts';
import type { RunFailure, Serve } from '../isolation/run-order.ts';
import type { Runtime } from '../isolation/runtime.ts';
import type { Claim } from './claims.ts';
import type { RunLogLine } from './run-log.ts';
import { type RunError, type SealingKey, sealingKeyOf } from './sealed-output.ts';
import type { Ending } from './settle.ts';

export type ExecuteDeps = ContextDeps & { db: Db; runtime: Runtime };

type Order = {
  /** The run adds to its `counts`. */
  claim: Claim;
  signal: AbortSignal;
  log: (line: RunLogLine) => void;
};

const minuteMs = 60_000;
/** The time limit for a run of each kind. */
const timeoutsMs = {
  sync: 24 * 60 * minuteMs,
  webhook: 60 * minuteMs,
  action: 15 * minuteMs,
  on_event: 15 * minuteMs,
} as const;
/** The names of the kinds in the harness. */
const harnessKinds = { sync: 'sync', webhook: 'webhook', action: 'action', on_event: 'onEvent' } as const;
/** Contexts in which the key of the connection seals the input and the output of a run. */
export const inputContext = 'run input';
export const outputContext = 'run output';

/** Never throws: an error of the service itself is a temporary failure of the run. */
export async function execute(deps: ExecuteDeps, order: Order): Promise<Ending> {
  const { claim } = order;
  try {
    if (!claim.function.isEnabled) {
      return cancelledBy('function_disabled', 'The function is switched off.');
    }
    const known = requireRow(await deps.reader.get(placeOf(claim)), claim.connection.id);
    const { scopes } = claim.definition;
    // The cached connection may be older than the reconnect that queued this run.
    const connection = hindranceOf(known, scopes)
      ? requireRow(await deps.reader.reread(known), claim.connection.id)
      : known;
    const hindrance = hindranceOf(connection, scopes);
    if (hindrance !== undefined) return { state: 'held', error: errorOf(hindrance) };
    return await call(deps, { ...order, connection });
  } catch (error) {
    if (error instanceof AppError && error.code === 'unknown_connection')
      return cancelledBy('connection_deleted', 'The connection was deleted.');
    if (error instanceof AppError) return { state: 'failed', error: errorOf(error), mayPass: mayPass(error) };
    return {
      state: 'failed',
      error: { code: 'internal', message: 'unexpected error' },
      mayPass: mayPass(error),
    };
  }
}

function placeOf({ environmentId, connection }: Claim) {
  return { environmentId, integrationKey: connection.integrationKey, connectionId: connection.connectionId };
}

/** The reason why a function cannot start for a connection; undefined if it can. */
export function hindranceOf(connection: LiveConnection, scopes: readonly string[]): AppError | undefined {
  const { status, scopesGranted, integration } = connection;
  if (status === 'needs_reauth') return new AppError('connection_needs_reauth');
  if (status === 'blocked') return new AppError('connection_blocked');
  // Credentials without scopes cannot be checked.
  if (scopes.length === 0 || scopesGranted === undefined) return undefined;
  const missing = missingScopes(integration.provider, { wanted: [...scopes], granted: scopesGranted });
  if (missing.length === 0) return undefined;
  return new AppError(
    'missing_scopes',
    `The connection lacks scopes that the function needs: ${missing.join(', ')}.`,
    {
      payload: { missing },
    },
  );
}

async function call(deps: ExecuteDeps, of: Order & { connection: LiveConnection }): Promise<Ending> {
  const { claim, connection, signal, log } = of;
  const { environmentId, versionId, definition, kind } = claim;
  const found = await findCode(deps.db, { environmentId, versionId });
  if (found === undefined) return cancelledBy('function_removed', 'The function was removed.');
  const isOfSync = kind === 'sync' || kind === 'webhook';
  const secrets = new Secrets();
  const by = await sealingKeyOf(deps.db, { connection, vault: deps.vault });
  const outcome = await deps.runtime.run({
    environmentId,
    bundle: { id: String(versionId), code: found.code },
    exportName: 'default',
    kind: harnessKinds[kind],
    input: claim.input === null ? undefined : connection.dataKey.openJson(claim.input, inputContext),
    about: aboutOf(of, found.code),
    limits: { timeoutMs: timeoutsMs[kind] },
    serve: inCause(
      createContext(deps, {
        right: claim,
        environmentId,
        environment: claim.environment,
        functionId: claim.function.id,
        functionName: claim.function.name,
        versionId,
        isSync: kind === 'sync',
        integrationKey: claim.connection.integrationKey,
        connectionId: claim.connection.connectionId,
        connectionRow: claim.connection.id,
        variant: claim.variant,
        models: isOfSync ? definition.models : [],
        priority: isOfSync ? 'background' : 'interactive',
        isReadOnly: definition.read_only,
        secrets,
        counts: claim.counts,
      }),
    ),
    log: (line) => log({ ...line, text: secrets.hide(line.text), by }),
    signal,
  });
  if ('failure' in outcome) return endingOf(secrets.hideIn(outcome.failure) as RunFailure, by);
  const { result } = outcome;
  const large = result instanceof LargeJson ? result : undefined;
  const isKept = kind === 'action';
  const output = isKept
    ? connection.dataKey.seal(large?.bytes ?? JSON.stringify(result), outputContext)
    : null;
  large?.free();
  return { state: 'succeeded', output };
}

/** Calls of the code belong to the trace of its run. Its process may have been started for another run. */
function inCause(serve: Serve): Serve {
  const cause = currentCause();
  return (name, args, call) => within(cause, () => serve(name, args, call));
}

function aboutOf({ claim, connection }: Order & { connection: LiveConnection }, code: string) {
  const { paginate } = connection.integration.provider.api;
  return {
    connectionId: claim.connection.connectionId,
    providerConfigKey: claim.connection.integrationKey,
    provider: connection.providerName,
    environmentName: claim.environment,
    variant: claim.variant,
    ...(paginate && { paginate }),
    ...(claim.lastSucceededAt && { lastSyncDate: claim.lastSucceededAt.toISOString() }),
    ...(claim.kind === 'sync' && deletesByRun(code) && { deletesByRun: true }),
  };
}

/** Whether a bundle uses only the deprecated function that ends delete tracking: then the harness begins the tracking. */
function deletesByRun(code: string): boolean {
  return code.includes('deleteRecordsFromPreviousExecutions') && !code.includes('trackDeletesStart');
}

/** A thrown code of this form is stored as plain text in the run, the activity log and events. Other codes are sealed. */
const plainCode = /^[A-Za-z][A-Za-z0-9_.-]{0,63}$/;

function endingOf({ cause, message, error }: RunFailure, by: SealingKey): Ending {
  if (cause === 'cancelled') return cancelledBy('cancelled', message);
  if (cause !== 'threw') {
    return {
      state: 'failed',
      error: { code: `function_${cause}`, message },
      mayPass: cause === 'unavailable',
    };
  }
  const { name = 'Error', stack, code, payload } = error ?? {};
  if (code === 'unknown_connection') return cancelledBy('connection_deleted', 'The connection was deleted.');
  const isPlain = code !== undefined && plainCode.test(code);
  const shown = {
    name: storableText(name),
    ...(code !== undefined && !isPlain && { thrown_code: storableText(code) }),
    ...(stack !== undefined && { stack: storableText(stack) }),
    ...(payload !== undefined && { payload: storable(payload) }),
  };
  return {
    state: 'failed',
    error: {
      code: isPlain ? code : 'function_threw',
      message: storableText(message.slice(0, 4_096)),
      payload: shown,
    },
    mayPass: code !== undefined && temporary.has(code),
    by,
  };
}

/** Codes of temporary failures, of the provider or of this service. All other errors of the code are permanent. */
const temporary: ReadonlySet<string> = new Set([
  'unavailable',
  'connection_refresh_failed',
  'quota_exhausted',
  'upstream_unreachable',
  'upstream_timeout',
  'ERR_BAD_RESPONSE',
]);

function cancelledBy(code: string, message: string): Ending {
  return { state: 'cancelled', error: { code, message } };
}

function errorOf({ code, message, payload }: AppError): RunError {
  return { code, message, ...(payload !== undefined && { payload }) };
}

/** The maximum size of an error's payload, as JSON. */
const maxBytes = 256 * 1024;

/** PostgreSQL stores neither NUL nor lone surrogates in JSON. */
function storableText(text: string): string {
  return text.replaceAll('\0', '').toWellFormed();
}

/** A JSON value that PostgreSQL can store. A value that is too large is replaced by a note. */
function storable(value: unknown): unknown {
  const cleaned = clean(value);
  if (Buffer.byteLength(JSON.stringify(cleaned) ?? '') <= maxBytes) return cleaned;
  return { left_out: `It was larger than ${maxBytes} bytes.` };
}

function clean(value: unknown): unknown {
  if (typeof value === 'string') return storableText(value);
  if (Array.isArray(value)) return value.map(clean);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [storableText(key), clean(inner)]));
}

/** The parts of a run in traces: not the ID of its connection, which a customer chose. */
type MeasuredRun = Pick<Claim, 'id' | 'kind' | 'trigger' | 'attempt' | 'function' | 'traceparent'>;

/**
 * Traces and counts one attempt of a run: in a child span of a waiting caller, or in a span with a link to the one that
 * queued the run. Log lines during the attempt name the run, and the spans of its calls are children. The metrics count
 * `outcomeOf` the result, or `lost` if `work` throws.
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
