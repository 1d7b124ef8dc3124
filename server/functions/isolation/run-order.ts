/** The order of a run, its outcome, and the settings of the runtime. */
import type { LogLevel } from './log-budget.ts';

/** The limits of a run. The service sets them; nothing in a bundle or a message can raise them. */
export type RunLimits = {
  /** From the moment the process has the run until its end. */
  timeoutMs: number;
  /** How long the code may block its thread. */
  blockedMs: number;
  /** From `signal` to the forced end of the run. */
  cancelGraceMs: number;
  /** The maximum size of a result, as JSON. */
  resultBytes: number;
};

/** A call of the code. `body` is its stream, which can be read once. */
export type CallContext = {
  signal: AbortSignal;
  /** The number of brackets and commas in its arguments. */
  values: number;
  body: AsyncIterable<Uint8Array> | undefined;
  /** Resolves when the process has taken all bytes sent to it. */
  drained: () => Promise<void>;
};

/** The answer to a call: any JSON value, or JSON as a Buffer; and a stream of bytes if there is one. */
export type Answer = { value: unknown; body?: AsyncIterable<Uint8Array> };

/**
 * Answers the calls of the code, for the connection of the run: no message names a connection.
 *
 * `args` is any JSON of at most 128 levels, without a key `__proto__`, or a `LargeJson`, whose bytes may be invalid JSON and
 * are freed when the returned promise settles. The function must check everything else. The code gets a thrown `AppError`
 * with its code, message, status and payload, and any other error as `internal`.
 */
export type Serve = (name: string, args: unknown, call: CallContext) => Promise<Answer>;

/** One line of the code's log, of at most 8 KiB. Lines come in their order, before the outcome. */
export type LogLine = { level: LogLevel; text: string };

export type RunOrder = {
  /** Processes are never shared between environments. */
  environmentId: number;
  /** CommonJS text without imports, and an ID that changes with the text. */
  bundle: { id: string; code: string };
  exportName: string;
  /** What the harness does with the export, such as `sync`, `action`, `onEvent`, `webhook`. */
  kind: string;
  /** Any JSON: the input of the function. */
  input: unknown;
  /** Any other JSON that the harness needs, such as the connection's ID or the variant. */
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

/** The readable fields of a thrown error. The stack names the authored files if the bundle has a source map. */
export type ThrownError = {
  name: string;
  message: string;
  stack?: string | undefined;
  code?: string | undefined;
  /** Any JSON. */
  payload?: unknown;
};

export type RunFailure = {
  cause: FailureCause;
  /** What happened and what to do, in a sentence for the function's author. */
  message: string;
  /** Only for `threw`. */
  error?: ThrownError;
};

/** A result is any JSON, or a `LargeJson`, which the caller frees. */
export type RunOutcome = { result: unknown } | { failure: RunFailure };

export type RuntimeSettings = {
  /** For all environments together. More runs wait, fairly between environments. */
  maxProcesses: number;
  /** How long an idle process is kept. */
  idleMs: number;
  /** After this number of runs a process is replaced. */
  runsPerProcess: number;
  /** The limit of the heap. Buffers may take the same amount again. */
  memoryMb: number;
  /** `auto`: the strictest that this machine allows. `off`: without a separate user and namespaces. */
  confinement: 'auto' | 'off';
};

export type RuntimeParts = {
  /** CommonJS texts that a bundle may require in addition to the allow-list, by name: the authoring SDK. */
  modules: Record<string, string>;
  /**
   * CommonJS text that runs in the realm of the customer's code, with the same rights. It exports
   * `start({ exported, kind, input, about, service })`, whose result is the result of the run.
   */
  harness: string;
};
