/** One claimed run: whether its connection lets it start, what its code is given, and what it came to. */

import type { LiveConnection } from '../../connections/reader.ts';
import { type Db, mayPass } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { missingScopes } from '../../providers/scopes.ts';
import { currentCause, within } from '../../tracing/cause.ts';
import { type ContextDeps, createContext, requireRow } from '../context/context.ts';
import type { RunCounts } from '../context/run-counts.ts';
import { Secrets } from '../context/secrets.ts';
import { findCode } from '../deploys/store.ts';
import { LargeJson } from '../isolation/payload.ts';
import type { RunFailure, Runtime, Serve } from '../isolation/runtime.ts';
import type { Claim } from './claims.ts';
import type { RunLogLine } from './run-log.ts';
import { type RunError, type SealingKey, sealingKeyOf } from './sealed-output.ts';
import type { Ending } from './settle.ts';

export type ExecuteDeps = ContextDeps & { db: Db; runtime: Runtime };

type Order = {
  claim: Claim;
  counts: RunCounts;
  signal: AbortSignal;
  log: (line: RunLogLine) => void;
};

const minuteMs = 60_000;
/** How long a run of each kind may take. */
const timeoutsMs = {
  sync: 24 * 60 * minuteMs,
  webhook: 60 * minuteMs,
  action: 15 * minuteMs,
  on_event: 15 * minuteMs,
} as const;
/** What the harness calls the kinds. */
const harnessKinds = { sync: 'sync', webhook: 'webhook', action: 'action', on_event: 'onEvent' } as const;
/** Seals what a run is given, and what it answers, with its connection's key. */
export const inputContext = 'run input';
export const outputContext = 'run output';

/** Never throws: what is wrong with the service itself is a failure that passes. */
export async function execute(deps: ExecuteDeps, order: Order): Promise<Ending> {
  const { claim } = order;
  try {
    if (!claim.function.isEnabled) {
      return cancelledBy('function_disabled', 'The function is switched off.');
    }
    const known = requireRow(await deps.reader.get(placeOf(claim)), claim.connection.id);
    const { scopes } = claim.definition;
    // A run that is queued by a reconnect finds the connection as it is by then.
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

/** What keeps a function from starting on a connection; undefined where nothing does. */
export function hindranceOf(connection: LiveConnection, scopes: readonly string[]): AppError | undefined {
  const { status, scopesGranted, integration } = connection;
  if (status === 'needs_reauth') return new AppError('connection_needs_reauth');
  if (status === 'blocked') return new AppError('connection_blocked');
  // Of credentials without scopes nothing can be told.
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
  const { claim, connection, counts, signal, log } = of;
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
        counts,
      }),
    ),
    log: (line) => log({ ...line, text: secrets.hide(line.text), by }),
    signal,
  });
  if ('failure' in outcome) return endingOf(secrets.hideIn(outcome.failure) as RunFailure, by);
  if (kind !== 'action') return { state: 'succeeded', output: null };
  const { result } = outcome;
  const json = result instanceof LargeJson ? result.bytes : JSON.stringify(result);
  return { state: 'succeeded', output: connection.dataKey.seal(json, outputContext) };
}

/** What the code asks for is asked for its run: the process that passes it on was started for another, maybe. */
function inCause(serve: Serve): Serve {
  const cause = currentCause();
  return (name, args, asked) => within(cause, () => serve(name, args, asked));
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

/** Whether a bundle ends delete tracking in the deprecated way alone: it is for the harness to begin it. */
function deletesByRun(code: string): boolean {
  return code.includes('deleteRecordsFromPreviousExecutions') && !code.includes('trackDeletesStart');
}

/** A thrown code that stands in plain text in the run, in the activity log and in events. Any other one is sealed with the message. */
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
    mayPass: code !== undefined && passing.has(code),
    by,
  };
}

/** What another attempt may not meet: an outage of the provider's, or of ours. Whatever else the code threw it meant. */
const passing: ReadonlySet<string> = new Set([
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

/** What customer code threw, as the database takes it: JSON there knows neither NUL nor half a character. */

/** Of what a run keeps of its error, as JSON. */
const maxBytes = 256 * 1024;

function storableText(text: string): string {
  return text.replaceAll('\0', '').toWellFormed();
}

/** A value of JSON in which all texts are storable. What is too large is left out, and says so. */
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
