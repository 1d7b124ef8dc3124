/**
 * Runs a function in this process with the harness of the service. Its changes stay in memory.
 *
 * Owns the sequence of a run. See `load.ts` for its code, `effects.ts` for its changes, `reads.ts` for its reads.
 */
import type { Definition, SyncDefinition } from '../functions/definitions.ts';
import { type About, bytesOf, type Service } from '../functions/harness/service.ts';
import { start } from '../functions/harness/start.ts';
import { Effects } from './effects.ts';
import { formatValue, type Log, loadFunction, locationsOf } from './load.ts';
import type { Mismatch, Stored } from './model-writes.ts';
import { asJson, type Json, type JsonObject, type Outcome, serviceError } from './outcome.ts';
import { type CallName, type FactName, factNames, type OutgoingCall, type Reads } from './reads.ts';

export type LocalRun = {
  code: string;
  kind: 'sync' | 'action' | 'on_event';
  about: About;
  input: Json | undefined;
  metadata: JsonObject;
  checkpoint: Json;
  stored: Stored;
  reads: Reads;
  log: Log;
  /** Replacements of globals. */
  globals?: Readonly<Record<string, unknown>>;
};

export type LocalEnd = {
  outcome: Outcome;
  /** The locations of the error in the author's files. */
  locations: string[];
  mismatches: [model: string, Mismatch[]][];
  notes: readonly string[];
};

const harnessKinds = { sync: 'sync', action: 'action', on_event: 'onEvent' } as const;

/** Returns the outcome of a run. An error that the function throws is part of the outcome. */
export async function runLocally(run: LocalRun): Promise<LocalEnd> {
  let effects = new Effects({ ...run, models: {} });
  const ended = new AbortController();
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 50;
  try {
    const { globals: overrides = {} } = run;
    const definition = loadFunction(run.code, { log: run.log, overrides, ended: ended.signal });
    effects = new Effects({ ...run, models: modelsOf(definition) });
    const service = serviceOf(run, { effects, ended: ended.signal });
    const { input } = run;
    const about = { ...run.about, deletesByRun: deletesByRun(run.code) };
    const call = { exported: definition, kind: harnessKinds[run.kind], input, about, service };
    const result = await settled(start(call));
    const outcome = { ...effects.outcome(), ...(run.kind === 'action' && { result: asJson(result) }) };
    return { outcome, locations: [], mismatches: effects.mismatches, notes: effects.notes };
  } catch (thrown) {
    const error = thrown instanceof Error ? thrown : new Error(formatValue(thrown));
    return {
      outcome: { ...effects.outcome(), error: errorOf(error) },
      locations: locationsOf(error.stack, run.code),
      mismatches: effects.mismatches,
      notes: effects.notes,
    };
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
    ended.abort();
  }
}

/** Determines `deletesByRun` from the code as the service does. */
function deletesByRun(code: string): boolean {
  return code.includes('deleteRecordsFromPreviousExecutions') && !code.includes('trackDeletesStart');
}

function modelsOf(definition: Definition): SyncDefinition['models'] {
  return (definition as Partial<SyncDefinition> | undefined)?.models ?? {};
}

function serviceOf(
  { reads, log }: LocalRun,
  { effects, ended }: { effects: Effects; ended: AbortSignal },
): Service {
  const calls: readonly string[] = ['proxy', 'uncontrolledFetch'] satisfies CallName[];
  const facts: readonly string[] = factNames;
  const respond: Service['call'] = async (name, args, body) => {
    if (calls.includes(name)) {
      const bytes = body === undefined ? undefined : await bytesOf(asBytes(body));
      const call = { name: name as CallName, args: asJson(args) as OutgoingCall['args'], body: bytes };
      const { value, body: received } = await reads.call(call, ended);
      return { value, body: parts(received) };
    }
    if (name === 'saveState') {
      effects.saveState((await bytesOf(asBytes(body ?? []))).toString('utf8'));
      return { value: null };
    }
    if (name === 'getState') {
      const { state } = effects;
      if ((args as { of?: unknown }).of !== undefined)
        throw serviceError('not_available', 'The state of another function can only be read in the service.');
      return { value: state !== undefined, body: parts(Buffer.from(state ?? '')) };
    }
    if (name === 'getConnection') {
      if ((args as { forceRefresh?: boolean } | undefined)?.forceRefresh)
        effects.notes.push('The credentials would be refreshed');
      const connection = (await reads.fact(name)) as JsonObject;
      return { value: { ...connection, metadata: effects.metadata } };
    }
    const value = facts.includes(name)
      ? await reads.fact(name as FactName)
      : await effects.handle(name, args);
    return { value: asJson(value) };
  };
  return {
    log,
    signal: new AbortController().signal,
    async call(name, args, body) {
      // Errors of `respond` have no lines of the author in their stack, so the stack of the call is appended.
      const callSite = new Error();
      try {
        return await respond(name, args, body);
      } catch (thrown) {
        // After the end of the run, no code of the function would catch the error.
        if (ended.aborted) return new Promise(() => {});
        if (thrown instanceof Error) thrown.stack = `${thrown.stack}\n${callSite.stack}`;
        throw thrown;
      }
    },
  };
}

async function* asBytes(body: Iterable<unknown> | AsyncIterable<unknown>): AsyncIterable<Uint8Array> {
  for await (const part of body) yield typeof part === 'string' ? Buffer.from(part) : (part as Uint8Array);
}

async function* parts(body: Buffer): AsyncIterable<Uint8Array> {
  if (body.length > 0) yield body;
}

/** Also rejects on an unhandled error of the code, or if it awaits a promise that can no longer settle, as in the service. */
async function settled<T>(running: Promise<T>): Promise<T> {
  let fail: (thrown: unknown) => void = () => {};
  const failed = new Promise<never>((_, reject) => {
    fail = reject;
  });
  const stall = () =>
    fail(new Error('The function waits for a promise that no call and no timer can settle.'));
  process.on('unhandledRejection', fail).on('uncaughtException', fail).on('beforeExit', stall);
  try {
    return await Promise.race([running, failed]);
  } finally {
    process.off('unhandledRejection', fail).off('uncaughtException', fail).off('beforeExit', stall);
  }
}

function errorOf(error: Error & { code?: unknown; payload?: unknown }): NonNullable<Outcome['error']> {
  const { message, code, payload } = error;
  return {
    ...(typeof code === 'string' && { code }),
    message,
    ...(payload !== undefined && { payload: asJson(payload) }),
  };
}
