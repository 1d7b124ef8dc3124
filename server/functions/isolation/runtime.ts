/**
 * Runs customer code in isolation: the entry point of this folder.
 *
 * Owns: the process of a run, its limits, the form of the code's calls, and the outcome. Does not own: the calls that a function
 * may make (the caller passes `serve`), the schedule, the storage of bundles. Neighbours: `pool.ts` (processes by environment),
 * `run.ts` (one run), `child.ts` (the other side), `customer-process.ts` and `confinement.ts` (the start of a process),
 * `check-requires.ts` (the requires of a bundle, checked at a deploy).
 *
 * It is meant for code of the operator's own developers: docs/reference/functions-isolation.md describes what it prevents.
 */
import { keepResult } from '../../concurrency.ts';
import { type Confinement, confinementOf } from './confinement.ts';
import { CustomerProcess } from './customer-process.ts';
import { Pool } from './pool.ts';
import { childProgram } from './program.ts';
import { Run } from './run.ts';
import type {
  RunFailure,
  RunLimits,
  RunOrder,
  RunOutcome,
  RuntimeParts,
  RuntimeSettings,
} from './run-order.ts';

export const defaultLimits: RunLimits = {
  timeoutMs: 15 * 60_000,
  blockedMs: 60_000,
  cancelGraceMs: 5_000,
  resultBytes: 10 * 1024 * 1024,
};

const defaultSettings: RuntimeSettings = {
  maxProcesses: 8,
  idleMs: 60_000,
  runsPerProcess: 100,
  memoryMb: 256,
  confinement: 'auto',
};

export type Runtime = {
  /**
   * Runs one export once. Never throws: every error is a failure with its cause. The process is used again only after an
   * orderly end.
   */
  run(order: RunOrder): Promise<RunOutcome>;
  /** How the processes are confined on this machine, determined by the first call. */
  confinement(): Promise<Confinement>;
  /** The present numbers of processes, and the number of all starts. */
  counts(): { processes: number; running: number; waiting: number; started: number };
  /** Ends all processes. Runs under way end as `unavailable`. */
  close(): Promise<void>;
};

/** The first run starts the first process, and calls `parts`. */
export function createRuntime(
  parts: () => Promise<RuntimeParts>,
  settings: Partial<RuntimeSettings> = {},
): Runtime {
  const all = { ...defaultSettings, ...settings };
  const prepare = keepResult(() => Promise.all([childProgram(), parts(), confinementOf(all.confinement)]));
  const pool = new Pool(all, async (environmentId) => {
    const [program, { modules, harness }, confinement] = await prepare();
    return CustomerProcess.start({
      environmentId,
      memoryMb: all.memoryMb,
      confinement,
      script: program.script,
      boot: { modules: { ...program.modules, ...modules }, harness },
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
    confinement: async () => (await prepare())[2],
    counts: () => pool.counts(),
    close: () => pool.close(),
  };
}

function notStarted(error: unknown, signal: AbortSignal | undefined): RunFailure {
  if (signal?.aborted) return { cause: 'cancelled', message: 'The run was cancelled before it began.' };
  const why = error instanceof Error ? error.message : String(error);
  return { cause: 'unavailable', message: `No process for functions is available: ${why}` };
}
