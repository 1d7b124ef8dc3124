/**
 * Runs customer code in isolation: the only entry point to the isolation of `functions/`.
 *
 * Owns: which process a run gets, its limits, the form of the code's requests, and how a run ended. Does not own: which
 * requests a function may make (the caller passes `serve`), when functions run, where bundles are stored. Neighbours: `pool.ts` (processes
 * by environment), `run.ts` (one run), `child.ts` (the other side), `customer-process.ts` and `confinement.ts` (how a process is
 * started), `check-requires.ts` (what a bundle requires, checked at a deploy).
 *
 * This is for the code of the operator's own developers. docs/functions-isolation.md says what it keeps out, and what not.
 */
import type { Confinement } from './confinement.ts';
import { confinementOf } from './confinement.ts';
import { CustomerProcess } from './customer-process.ts';
import { plainHarness } from './harness.ts';
import type { LogLevel } from './log-budget.ts';
import { Pool } from './pool.ts';
import { type ChildProgram, childProgram } from './program.ts';
import { Run } from './run.ts';

/** What a run may take. The service decides; nothing in a bundle or a message can raise it. */
export type RunLimits = {
  /** Until the run is over, from the moment its process has it. */
  timeoutMs: number;
  /** How long the code may keep its thread without a pause. */
  blockedMs: number;
  /** Between `signal` and the end of a run that goes on in spite of it. */
  cancelGraceMs: number;
  /** Of a result, as JSON. */
  resultBytes: number;
};

export const defaultLimits: RunLimits = {
  timeoutMs: 15 * 60_000,
  blockedMs: 60_000,
  cancelGraceMs: 5_000,
  resultBytes: 10 * 1024 * 1024,
};

/** What the code asked for. `body` is the stream that it sends along, to be read once. */
export type Asked = {
  signal: AbortSignal;
  /** How many brackets and commas its arguments have. */
  values: number;
  body: AsyncIterable<Uint8Array> | undefined;
  /** Resolves when the process has taken what was sent to it. */
  drained: () => Promise<void>;
};

/** What an ask is answered with: any JSON value, or JSON as a Buffer; and a stream of bytes where there is one. */
export type Answer = { value: unknown; body?: AsyncIterable<Uint8Array> };

/**
 * Answers what the code asks for, for the connection that the caller has in mind: no message names one.
 *
 * `args` is any JSON at most 128 levels deep, without a key `__proto__`, or a `LargeJson`, whose bytes may be no JSON;
 * the rest is to be checked here. Of what it throws, an `AppError` reaches the code with its code, message, status and payload; anything else reads `internal` there.
 */
export type Serve = (name: string, args: unknown, asked: Asked) => Promise<Answer>;

/** One line of the code's log, of at most 8 KiB. Called in the order of writing, before the outcome is known. */
export type LogLine = { level: LogLevel; text: string };

export type RunOrder = {
  /** Processes are never shared between environments. */
  environmentId: number;
  /** CommonJS text without imports, as esbuild makes it, and an id that changes with the text. */
  bundle: { id: string; code: string };
  /** Which export of the bundle. */
  exportName: string;
  /** What the harness is to do with it, e.g. `sync`, `action`, `onEvent`, `webhook`. */
  kind: string;
  /** Any JSON: what the code is given. */
  input: unknown;
  /** Any JSON that the harness needs beside it, such as the connection's ID or the variant. */
  about?: unknown;
  limits?: Partial<RunLimits>;
  serve: Serve;
  log: (line: LogLine) => void;
  /** Ends the run: as `cancelled`, at the latest after `cancelGraceMs`. */
  signal?: AbortSignal;
};

export type FailureCause =
  | 'timeout'
  | 'out_of_memory'
  | 'exited'
  | 'protocol'
  | 'log_flood'
  | 'cancelled'
  | 'stalled'
  | 'threw'
  | 'unavailable';

/** What the code threw, as far as it could be read. The stack names the authored files where the bundle has a map. */
export type ThrownError = {
  name: string;
  message: string;
  stack?: string | undefined;
  code?: string | undefined;
  /** Any JSON, of errors that carry one. */
  payload?: unknown;
};

export type RunFailure = {
  cause: FailureCause;
  /** What happened and what to do, in a sentence for the function's author. */
  message: string;
  /** With `threw` alone. */
  error?: ThrownError;
};

/** A result is any JSON, or a `LargeJson`. */
export type RunOutcome = { result: unknown } | { failure: RunFailure };

export type RuntimeSettings = {
  /** Of all environments together. Runs wait for each other beyond it, fairly between environments. */
  maxProcesses: number;
  /** How long a process without a run is kept. */
  idleMs: number;
  /** After so many runs a process is replaced. */
  runsPerProcess: number;
  /** Of the code's heap. Buffers may take as much again. */
  memoryMb: number;
  /** `auto`: the strictest that this machine allows. `off` leaves out user and namespaces. */
  confinement: 'auto' | 'off';
};

const defaultSettings: RuntimeSettings = {
  maxProcesses: 8,
  idleMs: 60_000,
  runsPerProcess: 100,
  memoryMb: 256,
  confinement: 'auto',
};

export type RuntimeParts = {
  /** CommonJS texts that a bundle may require beside the allow-list, by name: the authoring SDK. */
  modules?: Record<string, string>;
  /**
   * CommonJS text that is given the export and calls it: see `harness.ts`. It runs among the customer's code, with no
   * right that this does not have.
   */
  harness?: string;
};

export type Runtime = {
  /**
   * Runs one export once, and never throws: what goes wrong is a failure with its cause. The process it ran in is used
   * again only after an orderly end.
   */
  run(order: RunOrder): Promise<RunOutcome>;
  /** What keeps the processes apart from this machine, and why no more. Settles it on the first call. */
  confinement(): Promise<Confinement>;
  /** Processes at the moment, and how many were started since the beginning. */
  counts(): { processes: number; running: number; waiting: number; started: number };
  /** Ends all processes; runs under way end as `unavailable`. */
  close(): Promise<void>;
};

/** No process is started before the first run, and `parts` are not asked for. */
export function createRuntime(
  parts: RuntimeParts | (() => Promise<RuntimeParts>) = {},
  settings: Partial<RuntimeSettings> = {},
): Runtime {
  const all = { ...defaultSettings, ...settings };
  let ready: Promise<{ program: ChildProgram; given: RuntimeParts; confinement: Confinement }> | undefined;
  const prepare = () => {
    ready ??= Promise.all([
      childProgram(),
      typeof parts === 'function' ? parts() : parts,
      confinementOf(all.confinement),
    ]).then(
      ([program, given, confinement]) => ({ program, given, confinement }),
      (error) => {
        ready = undefined;
        throw error;
      },
    );
    return ready;
  };
  const pool = new Pool(all, async (environmentId) => {
    const { program, given, confinement } = await prepare();
    return CustomerProcess.start({
      environmentId,
      memoryMb: all.memoryMb,
      confinement,
      script: program.script,
      boot: { modules: { ...program.modules, ...given.modules }, harness: given.harness ?? plainHarness },
    });
  });
  return {
    async run(order) {
      let process: CustomerProcess;
      try {
        process = await pool.take(order.environmentId, order.signal);
      } catch (error) {
        return { failure: notStarted(error, order.signal) };
      }
      try {
        return await new Run(process, { ...order, limits: { ...defaultLimits, ...order.limits } }).outcome();
      } finally {
        pool.giveBack(process);
      }
    },
    confinement: async () => (await prepare()).confinement,
    counts: () => pool.counts(),
    close: () => pool.close(),
  };
}

function notStarted(error: unknown, signal: AbortSignal | undefined): RunFailure {
  if (signal?.aborted) return { cause: 'cancelled', message: 'The run was cancelled before it began.' };
  const why = error instanceof Error ? error.message : String(error);
  return { cause: 'unavailable', message: `No process for functions could be had: ${why}` };
}
