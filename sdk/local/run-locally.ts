/**
 * Runs a function in this process by the harness that the service uses. Whatever it changes stays in memory.
 *
 * Owns the course of a run. Neighbours: `load.ts` (its code), `effects.ts` (what it changes), `reads.ts` (what it reads).
 */
import type { Definition, SyncDefinition } from '../functions/definitions.ts';
import { type About, bytesOf, type Service } from '../functions/harness/service.ts';
import { start } from '../functions/harness/start.ts';
import { Effects } from './effects.ts';
import { type Log, loadFunction, shownThrown } from './load.ts';
import type { Misfit, Stored } from './model-writes.ts';
import { asJson, type Json, type JsonObject, type Outcome, refusal } from './outcome.ts';
import { type CallName, type FactName, factNames, type OutgoingCall, type Reads } from './reads.ts';
import { placesOf } from './stack.ts';

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
  /** Globals in place of the usual. */
  globals?: Readonly<Record<string, unknown>>;
};

export type LocalEnd = {
  outcome: Outcome;
  /** Where the error came from, in the author's files. */
  places: string[];
  misfits: [model: string, Misfit[]][];
  notes: readonly string[];
};

const harnessKinds = { sync: 'sync', action: 'action', on_event: 'onEvent' } as const;

/** Throws nothing of the function's: what it throws is its outcome. */
export async function runLocally(run: LocalRun): Promise<LocalEnd> {
  let effects = new Effects({ ...run, models: {} });
  const ended = new AbortController();
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 50;
  try {
    const { globals: instead = {} } = run;
    const definition = loadFunction(run.code, { log: run.log, instead, ended: ended.signal });
    effects = new Effects({ ...run, models: modelsOf(definition) });
    const service = serviceOf(run, { effects, ended: ended.signal });
    const { input } = run;
    const about = { ...run.about, deletesByRun: deletesByRun(run.code) };
    const call = { exported: definition, kind: harnessKinds[run.kind], input, about, service };
    const result = await settled(start(call));
    const outcome = { ...effects.outcome(), ...(run.kind === 'action' && { result: asJson(result) }) };
    return { outcome, places: [], misfits: effects.misfits, notes: effects.notes };
  } catch (thrown) {
    const error = thrown instanceof Error ? thrown : new Error(shownThrown(thrown));
    return {
      outcome: { ...effects.outcome(), error: errorOf(error) },
      places: placesOf(error.stack, run.code),
      ...{ misfits: effects.misfits, notes: effects.notes },
    };
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
    ended.abort();
  }
}

/** As the service tells it of a bundle. */
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
  const answer: Service['ask'] = async (name, args, body) => {
    if (calls.includes(name)) {
      const given = body === undefined ? undefined : await bytesOf(asBytes(body));
      const call = { name: name as CallName, args: asJson(args) as OutgoingCall['args'], body: given };
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
        throw refusal('not_available', 'The state of another function can be read in the service alone.');
      return { value: state !== undefined, body: parts(Buffer.from(state ?? '')) };
    }
    if (name === 'getConnection') {
      if ((args as { forceRefresh?: boolean } | undefined)?.forceRefresh)
        effects.notes.push('The credentials would be renewed');
      const connection = (await reads.fact(name)) as JsonObject;
      return { value: { ...connection, metadata: effects.metadata } };
    }
    const value = facts.includes(name) ? await reads.fact(name as FactName) : await effects.ask(name, args);
    return { value: asJson(value) };
  };
  return {
    log,
    signal: new AbortController().signal,
    async ask(name, args, body) {
      // What throws in the service's place has passed through none of the author's lines.
      const asking = new Error();
      try {
        return await answer(name, args, body);
      } catch (thrown) {
        // Nobody is left to be told, and nobody would catch it.
        if (ended.aborted) return new Promise(() => {});
        if (thrown instanceof Error) thrown.stack = `${thrown.stack}\n${asking.stack}`;
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

/** Fails where the code throws past its own handlers, or waits for what nothing is left to settle, as in the service. */
async function settled<T>(running: Promise<T>): Promise<T> {
  let fail: (thrown: unknown) => void = () => {};
  const lost = new Promise<never>((_, reject) => {
    fail = reject;
  });
  const stall = () => fail(new Error('The function waits for a promise that nothing is left to settle.'));
  process.on('unhandledRejection', fail).on('uncaughtException', fail).on('beforeExit', stall);
  try {
    return await Promise.race([running, lost]);
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
