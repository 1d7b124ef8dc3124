/**
 * Executes due runs. Each node has one runner; together they execute each run on one node at a time. A run whose node is lost
 * is taken over when its lease (20 s) has ended, within two looks.
 *
 * Owns: how many runs a node takes, and when it interrupts them. Neighbours: `schedule.ts` and `queue.ts` queue runs,
 * `claims.ts` claims them, `execute.ts` executes one, `settle.ts` stores the outcome, `work.ts` runs the loop.
 */
import type { Activity } from '../../activity/writer.ts';
import type { Logger } from '../../log.ts';
import { metrics } from '../../metrics/metrics.ts';
import { createWorker, type Interruption, type Look, type Task } from '../../work.ts';
import {
  type Claim,
  claimLost,
  claimWaiting,
  findDue,
  findStopped,
  integrationOf,
  leaseMs as ordinaryLeaseMs,
  release,
  renewLeases,
} from './claims.ts';
import { type ExecuteDeps, execute, measuredRun } from './execute.ts';
import { queueFollowing } from './queue.ts';
import { createRunLog } from './run-log.ts';
import { queueDue } from './schedule.ts';
import { cancelled, detailsOf, type Ending, settle, settleWhileHeld } from './settle.ts';

export type Runner = {
  /** Executes due runs until `stop`. */
  start(): void;
  /** Looks for due runs at once: this node has just queued one. */
  poke(): void;
  /** Executes runs until none is due and none is under way. */
  runDue(): Promise<void>;
  /**
   * Executes a run that was claimed as it was created, because a caller waits for it: at once, in addition to the runs from
   * the queue. `signal` cancels it. Undefined if the run was lost, or if the node stopped meanwhile: its outcome is not known
   * here. A node that is stopping does not begin the run, and returns a failure.
   */
  runNow(claim: Claim, signal?: AbortSignal): Promise<Ending | undefined>;
  /** The number of runs under way here. */
  running(): number;
  /** The number of those that came from the queue. */
  fromQueue(): number;
  isStopping(): boolean;
  /**
   * Begins nothing more, and interrupts the runs under way. Runs that do not end within `graceMs` are given back, and another
   * node continues them from their last checkpoint.
   */
  stop(graceMs?: number): Promise<void>;
};

type RunnerDeps = ExecuteDeps & {
  log: Pick<Logger, 'warn'>;
  activity: Activity;
  nowMs: () => number;
  random?: () => number;
  limits?: Partial<RunnerLimits>;
};

export type RunnerLimits = {
  /** The maximum number of runs from the queue that are under way on this node. */
  max: number;
  /** The maximum number for one integration: runs that wait for its quota must not take all of `max`. */
  maxOfIntegration: number;
  pollMs: number;
  leaseMs: number;
  renewMs: number;
};

const ordinary: RunnerLimits = {
  max: 12,
  maxOfIntegration: 8,
  pollMs: 500,
  leaseMs: ordinaryLeaseMs,
  renewMs: 5_000,
};
/** A node that could not renew the lease interrupts the run this long before its end, so that two nodes never overlap. */
const marginMs = 3_000;
const graceOrdinaryMs = 3_000;
/** The maximum number of attempts of a run that continues after a lost node: the run may be the reason for the loss. */
const maxTurns = 25;

/** A claim that is under way here. Its `counts` change as the run saves. */
type Turn = Claim & {
  /** A caller waits for it: it is not from the queue. */
  readonly isWaitedFor: boolean;
};

export function createRunner(deps: RunnerDeps): Runner {
  const { db, log, activity, nowMs, random = Math.random } = deps;
  const { max, maxOfIntegration, pollMs, leaseMs, renewMs } = { ...ordinary, ...deps.limits };
  const now = () => new Date(nowMs());
  let lookAfter = 0;
  const worker = createWorker<Turn, Ending | undefined>({
    look,
    execute: runMeasured,
    pollMs,
    giveBack,
    lease: { leaseMs, renewMs, marginMs, renew },
    onError: (error) => log.warn({ err: error }, 'runs of functions are interrupted and continue later'),
    async onStop() {
      for (const task of worker.tasks()) task.interrupt('stopping');
    },
  });
  const { report } = worker;
  const queued = () => worker.tasks().filter(({ claim }) => !claim.isWaitedFor);
  const free = () => (worker.isStopping() ? 0 : max - queued().length);

  async function look(): Promise<Look> {
    await interruptStopped();
    let begun = 0;
    const { isLost, isFollowing, isScheduled, isWaiting } = await findDue(db, now());
    if (isLost && free() > 0) begun += beginAll(await claimLost(db, { now: now(), max: free(), leaseMs }));
    if (isFollowing) await queueFollowing(db, now());
    if (isScheduled) await queueDue(db, now());
    if (!isWaiting) lookAfter = 0;
    if ((isFollowing || isScheduled || isWaiting) && free() > 0) {
      const held = Map.groupBy(queued(), ({ claim }) => integrationOf({ ...claim, ...claim.connection }));
      const share = {
        max: maxOfIntegration,
        held: new Map([...held].map(([of, { length }]) => [of, length])),
      };
      const claiming = { now: now(), max: free(), after: lookAfter, leaseMs, share };
      const { claims, lookOnAfter } = await claimWaiting(db, claiming);
      begun += beginAll(claims);
      // The look did not reach the end: the next connections are worth another look at once.
      if (lookOnAfter !== 0 && claims.length === 0) begun += 1;
      lookAfter = lookOnAfter;
    }
    return begun > 0 && free() > 0 ? 'more' : 'nothing';
  }

  function beginAll(claims: readonly Claim[]): number {
    for (const claim of claims) void begin(claim, { isWaitedFor: false });
    return claims.length;
  }

  function begin(claim: Claim, { isWaitedFor }: { isWaitedFor: boolean }): Promise<Ending | undefined> {
    // An earlier turn of this run, whose lease lapsed, may still be under way here.
    interruptRun(claim.id, 'lost');
    return worker.begin({ ...claim, isWaitedFor, counts: structuredClone(claim.counts) });
  }

  function interruptRun(id: string, interruption: Interruption): void {
    for (const task of worker.tasks()) {
      if (task.claim.id === id && task.interruption !== 'lost') task.interrupt(interruption);
    }
  }

  function runMeasured(task: Task<Turn>): Promise<Ending | undefined> {
    const { claim } = task;
    if (!claim.isWaitedFor && !claim.isResumed)
      metrics.runDelay.observe([claim.kind], Math.max(0, nowMs() - claim.notBefore.getTime()) / 1000);
    return measuredRun(claim, {
      work: () => run(task),
      outcomeOf: (ending) => ending?.state ?? (task.interruption === 'stopping' ? 'released' : 'lost'),
    });
  }

  /** The ending that the row has now; undefined if this node wrote none. */
  async function run(task: Task<Turn>): Promise<Ending | undefined> {
    const { claim } = task;
    const startedAt = performance.now();
    const lines = createRunLog({ db, runId: claim.id, attempt: claim.attempt, now, onFailure: report });
    if (claim.isResumed && isRepeatable(claim) && !claim.isCancelled)
      lines.write({ level: 'warn', text: 'Its node was lost; the run goes on from its last checkpoint.' });
    let ending =
      endingBefore(claim) ?? (await execute(deps, { claim, signal: task.signal, log: lines.write }));
    const isOfStop = task.interruption === 'stopping' && ending.state !== 'succeeded';
    if (isOfStop && !isRepeatable(claim)) ending = cutShort;
    if (ending.state === 'failed')
      lines.write({ level: 'error', text: `${ending.error.code}: ${ending.error.message}`, by: ending.by });
    await lines.end();
    if (task.interruption === 'lost') return undefined;
    if (isOfStop && isRepeatable(claim)) {
      await release(db, claim);
      return undefined;
    }
    const settled = await settleWhileHeld(
      db,
      { claim, ending, now: now(), random: random() },
      { vault: deps.vault, isHeld: () => task.interruption !== 'lost', onFailure: report },
    );
    // A run that is held is reported once, by its sync.
    if (settled === ending && ending.state !== 'held')
      activity.log({
        environmentId: claim.environmentId,
        type: 'run',
        status: ending.state === 'succeeded' ? 'success' : 'failed',
        integration: claim.connection.integrationKey,
        connection: claim.connection.connectionId,
        requestId: claim.id,
        durationMs: Math.round(performance.now() - startedAt),
        path: claim.function.name,
        errorCode: 'error' in ending ? ending.error.code.slice(0, 255) : undefined,
        details: detailsOf(claim),
        messages: lines.recent(),
      });
    return settled;
  }

  /** Ends the tasks whose runs are cancelled, or have another owner by now. */
  async function interruptStopped(): Promise<void> {
    const held = worker.tasks().filter(({ interruption }) => interruption !== 'lost');
    if (held.length === 0) return;
    const { lost, cancelled } = await findStopped(
      db,
      held.map(({ claim }) => claim),
    );
    for (const task of held) {
      if (cancelled.includes(task.claim.id)) task.interrupt('cancelled');
      if (lost.includes(task.claim.id)) task.interrupt('lost');
    }
  }

  async function renew(tasks: readonly Task<Turn>[]): Promise<readonly Task<Turn>[]> {
    const renewed = new Set(
      await renewLeases(
        db,
        tasks.map(({ claim }) => claim),
        leaseMs,
      ),
    );
    return tasks.filter(({ claim }) => renewed.has(claim.id));
  }

  /** The runtime ends the processes of these runs. Another node may have the runs from now on. */
  async function giveBack(tasks: readonly Task<Turn>[]): Promise<void> {
    for (const { claim } of tasks) {
      const done = isRepeatable(claim)
        ? release(db, claim)
        : settle(db, { claim, ending: cutShort, now: now(), random: random() });
      await done.catch(report);
    }
  }

  return {
    start: worker.start,
    poke: worker.wake,
    runDue: worker.runDue,
    async runNow(claim, signal) {
      if (worker.isStopping()) {
        await settle(db, { claim, ending: notBegun, now: now(), random: 0 });
        return notBegun;
      }
      const ending = begin(claim, { isWaitedFor: true });
      const cancel = () => interruptRun(claim.id, 'cancelled');
      signal?.addEventListener('abort', cancel, { once: true });
      if (signal?.aborted) cancel();
      return ending.finally(() => signal?.removeEventListener('abort', cancel));
    },
    running: () => worker.tasks().length,
    fromQueue: () => queued().length,
    isStopping: worker.isStopping,
    stop: (graceMs = graceOrdinaryMs) => worker.stop(graceMs),
  };
}

/** Whether a run continues from its checkpoint. The effects of an interrupted action remain, and are not known. */
function isRepeatable({ kind }: Claim): boolean {
  return kind === 'sync' || kind === 'webhook';
}

/** The ending of a run that must not begin: it was cancelled, or its node was lost and no attempt is left. */
function endingBefore(claim: Claim): Ending | undefined {
  if (claim.isCancelled) return cancelled;
  const isSpent = claim.attempt > (isRepeatable(claim) ? maxTurns : claim.maxAttempts);
  return claim.isResumed && isSpent ? cutShort : undefined;
}

const notBegun: Ending = {
  state: 'failed',
  error: { code: 'function_unavailable', message: 'The node that claimed the run stops. Nothing was done.' },
  mayPass: true,
};

const cutShort: Ending = {
  state: 'failed',
  error: {
    code: 'function_unavailable',
    message: 'The node of the run was stopped or lost. The effects of the run until then remain.',
  },
  mayPass: true,
};
