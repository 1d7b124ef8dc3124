/**
 * Runs what is due. One on each node; together they run each run once at a time, and one whose node is gone is taken over
 * within its lease (20 s) and a look or two.
 *
 * Owns: how much of this node's is taken, renewing what is under way, breaking off what is lost or cancelled. Neighbours:
 * `schedule.ts` queues what is due, `claims.ts` takes it, `execute.ts` does it, `settle.ts` writes what it came to.
 */
import type { Activity } from '../../activity/writer.ts';
import type { Logger } from '../../log.ts';
import { metrics } from '../../metrics/metrics.ts';
import type { RunCounts } from '../context/run-counts.ts';
import {
  type Claim,
  claimLost,
  claimWaiting,
  findStopped,
  integrationOf,
  leaseMs as ordinaryLeaseMs,
  release,
  renewLeases,
} from './claims.ts';
import { type ExecuteDeps, execute } from './execute.ts';
import { measuredRun } from './measured-run.ts';
import { createRunLog } from './run-log.ts';
import { queueFollowing } from './runs.ts';
import { queueDue } from './schedule.ts';
import { cancelled, detailsOf, type Ending, settle } from './settle.ts';
import { settleWhileHeld } from './settle-while-held.ts';

export type Runner = {
  /** From now on until `stop`. */
  start(): void;
  /** Looks at once for what is due: something was queued here. */
  poke(): void;
  /** Runs until nothing is due any more and nothing is under way. */
  runDue(): Promise<void>;
  /**
   * Runs one that was claimed as it was made, because its caller waits for it: at once, beside what this node takes of the
   * queue. `signal` cancels it. Undefined where it was lost, or its node stops meanwhile: nothing can be told of it. A node that
   * stops already does not begin it, and says so.
   */
  runNow(claim: Claim, signal?: AbortSignal): Promise<Ending | undefined>;
  /** What is under way here. */
  running(): number;
  /** Of that: what was taken from the queue. */
  fromQueue(): number;
  isStopping(): boolean;
  /**
   * Begins nothing more. What is under way is told to end, and may for `graceMs`; then it is given back, and another node
   * goes on from its last checkpoint.
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
  /** Under way at once, from this node. */
  max: number;
  /** Of them of one integration: where its quota is used up they wait with their turns, and others still have some. */
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
/** Before the end of its lease a node that could not renew stops, so that no two run the same. */
const marginMs = 3_000;
const graceOrdinaryMs = 3_000;
/** Of a run that goes on wherever its node is lost: it may be what loses the nodes. */
const maxTurns = 25;

/** Why a run is broken off. What is lost is another's, or nobody's: nothing is written of it. */
type Cut = 'cancelled' | 'lost' | 'stopping';
type UnderWay = {
  claim: Claim;
  /** Not from the queue. */
  isWaitedFor: boolean;
  counts: RunCounts;
  cut: AbortController;
  why: Cut | undefined;
  renewedAtMs: number;
};

export function createRunner(deps: RunnerDeps): Runner {
  const { db, log, activity, nowMs, random = Math.random } = deps;
  const { max, maxOfIntegration, pollMs, leaseMs, renewMs } = { ...ordinary, ...deps.limits };
  const underWay = new Map<string, UnderWay>();
  const running = new Set<Promise<unknown>>();
  const now = () => new Date(nowMs());
  let lookAfter = 0;
  /** Of those under way: how many are not from the queue. */
  let waitedFor = 0;
  let isStopping = false;
  let isFailing = false;
  let loop: Promise<void> | undefined;
  let renewing: NodeJS.Timeout | undefined;
  let wake = () => {};

  const report = (error: unknown) => {
    if (!isFailing) log.warn({ err: error }, 'runs of functions go on later');
    isFailing = true;
  };
  const reportAnd =
    <T>(answer: T) =>
    (error: unknown): T => {
      report(error);
      return answer;
    };
  const fromQueue = () => underWay.size - waitedFor;
  const free = () => (isStopping ? 0 : max - fromQueue());

  /** From the queue, by integration. */
  const held = () => {
    const counts = new Map<string, number>();
    for (const { claim, isWaitedFor } of underWay.values()) {
      if (isWaitedFor) continue;
      const of = integrationOf({ ...claim, ...claim.connection });
      counts.set(of, (counts.get(of) ?? 0) + 1);
    }
    return counts;
  };

  /** How many were begun. */
  async function begin(): Promise<number> {
    await watch();
    let begun = 0;
    if (free() > 0) {
      const lost = await claimLost(db, { now: now(), max: free(), leaseMs });
      for (const claim of lost) start(claim);
      begun += lost.length;
    }
    await queueFollowing(db, now());
    await queueDue(db, now());
    if (free() > 0) {
      const share = { max: maxOfIntegration, held: held() };
      const claiming = { now: now(), max: free(), after: lookAfter, leaseMs, share };
      const { claims, lookOnAfter } = await claimWaiting(db, claiming);
      for (const claim of claims) start(claim);
      begun += claims.length;
      // Where the look did not reach the end, the next connections are worth another one at once.
      if (lookOnAfter !== 0 && claims.length === 0) begun += 1;
      lookAfter = lookOnAfter;
    }
    isFailing = false;
    return begun;
  }

  function start(claim: Claim): void {
    void take(claim);
  }

  /** Resolves when it is over here, with what it came to where that is known. */
  async function take(claim: Claim, signal?: AbortSignal): Promise<Ending | undefined> {
    const of: UnderWay = {
      ...{
        claim,
        isWaitedFor: signal !== undefined,
        cut: new AbortController(),
        why: undefined,
        renewedAtMs: claim.leasedAtMs,
      },
      counts: structuredClone(claim.counts),
    };
    // A turn of this run whose lease lapsed may still be under way here: nothing that it does counts any more.
    const earlier = underWay.get(claim.id);
    if (earlier !== undefined) breakOff(earlier, 'lost');
    underWay.set(claim.id, of);
    const cancel = () => breakOff(of, 'cancelled');
    signal?.addEventListener('abort', cancel, { once: true });
    if (signal?.aborted) cancel();
    if (signal === undefined && !claim.isResumed)
      metrics.runDelay.observe([claim.kind], Math.max(0, nowMs() - claim.notBefore.getTime()) / 1000);
    const done: Promise<Ending | undefined> = measuredRun(claim, {
      work: () => carry(of),
      outcomeOf: (ending) => ending?.state ?? (of.why === 'stopping' ? 'released' : 'lost'),
    })
      // The lease ends by itself.
      .catch(reportAnd(undefined))
      .finally(() => {
        signal?.removeEventListener('abort', cancel);
        if (underWay.get(claim.id) === of) underWay.delete(claim.id);
        running.delete(done);
        wake();
      });
    running.add(done);
    return done;
  }

  async function carry(of: UnderWay): Promise<Ending | undefined> {
    const { claim, counts, cut } = of;
    const startedAt = performance.now();
    const lines = createRunLog({ db, runId: claim.id, attempt: claim.attempt, now, onFailure: report });
    if (claim.isResumed && isRepeatable(claim) && !claim.isCancelled)
      lines.write({ level: 'warn', text: 'Its node was lost; the run goes on from its last checkpoint.' });
    const order = { claim, counts, signal: cut.signal, log: lines.write };
    let ending = endingBefore(claim) ?? (await execute(deps, order));
    const isOfStop = of.why === 'stopping' && ending.state !== 'succeeded';
    if (isOfStop && !isRepeatable(claim)) ending = cutShort;
    if (ending.state === 'failed')
      lines.write({ level: 'error', text: `${ending.error.code}: ${ending.error.message}`, by: ending.by });
    await lines.end();
    if (of.why === 'lost') return undefined;
    if (isOfStop && isRepeatable(claim)) {
      await release(db, claim, counts);
      return undefined;
    }
    const settled = await settleWhileHeld(
      db,
      { claim, ending, counts, now: now(), random: random() },
      { vault: deps.vault, isHeld: () => of.why !== 'lost', onFailure: report },
    );
    // One that is held is told by its sync, once.
    if (settled === ending && ending.state !== 'held')
      note(of, { ending, startedAt, messages: lines.told() });
    return settled;
  }

  function note(
    { claim, counts }: UnderWay,
    {
      ending,
      startedAt,
      messages,
    }: { ending: Ending; startedAt: number; messages: ReturnType<ReturnType<typeof createRunLog>['told']> },
  ): void {
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
      details: detailsOf(claim, counts),
      messages,
    });
  }

  function breakOff(of: UnderWay, why: Cut): void {
    // What was lost stays lost.
    if (of.why !== 'lost') of.why = why;
    of.cut.abort();
  }

  /** What others have done to the runs of this node. */
  async function watch(): Promise<void> {
    if (underWay.size === 0) return;
    const { lost, cancelled } = await findStopped(
      db,
      [...underWay.values()].map(({ claim }) => claim),
    );
    for (const id of cancelled) cutOff(id, 'cancelled');
    for (const id of lost) cutOff(id, 'lost');
  }

  /** One that has settled since it was looked for has nothing left to break off. */
  function cutOff(id: string, why: Cut): void {
    const of = underWay.get(id);
    if (of !== undefined) breakOff(of, why);
  }

  async function renew(): Promise<void> {
    const held = [...underWay.values()];
    if (held.length === 0) return;
    const atMs = performance.now();
    const wanted = held.map(({ claim, counts }) => ({ id: claim.id, owner: claim.owner, counts }));
    const renewed = new Set(await renewLeases(db, wanted, leaseMs).catch(reportAnd<string[]>([])));
    for (const of of held) {
      if (renewed.has(of.claim.id)) of.renewedAtMs = atMs;
    }
    breakLapsed();
  }

  /** Also of a database that does not answer, before the next renewal waits for it. */
  function breakLapsed(): void {
    for (const of of underWay.values()) {
      if (performance.now() - of.renewedAtMs > leaseMs - marginMs) breakOff(of, 'lost');
    }
  }

  async function goOn(): Promise<void> {
    while (!isStopping) {
      const woken = new Promise<void>((resolve) => {
        wake = resolve;
      });
      const begun = await begin().catch(reportAnd(0));
      if (begun > 0 && free() > 0) continue;
      const timer = Promise.withResolvers<void>();
      const id = setTimeout(timer.resolve, pollMs);
      await Promise.race([woken, timer.promise]);
      clearTimeout(id);
    }
  }

  return {
    start() {
      loop ??= goOn();
      renewing ??= setInterval(() => {
        breakLapsed();
        void renew();
      }, renewMs);
    },
    poke: () => wake(),
    async runDue() {
      for (;;) {
        const begun = await begin();
        if (begun === 0 && running.size === 0) return;
        if (running.size > 0) await Promise.race(running);
      }
    },
    async runNow(claim, signal) {
      if (isStopping) {
        await settle(db, { claim, ending: notBegun, counts: claim.counts, now: now(), random: 0 });
        return notBegun;
      }
      waitedFor += 1;
      try {
        return await take(claim, signal);
      } finally {
        waitedFor -= 1;
      }
    },
    running: () => underWay.size,
    fromQueue,
    isStopping: () => isStopping,
    async stop(graceMs = graceOrdinaryMs) {
      isStopping = true;
      wake();
      await loop;
      for (const of of underWay.values()) breakOff(of, 'stopping');
      const over = Promise.withResolvers<void>();
      const timer = setTimeout(over.resolve, graceMs);
      await Promise.race([Promise.allSettled(running), over.promise]);
      clearTimeout(timer);
      clearInterval(renewing);
      // What did not end in time has its process ended by the runtime. Another node may have it now.
      for (const of of underWay.values()) {
        const { claim, counts } = of;
        of.why = 'lost';
        const done = isRepeatable(claim)
          ? release(db, claim, counts)
          : settle(db, { claim, ending: cutShort, counts, now: now(), random: random() });
        await done.catch(report);
      }
    },
  };
}

/** Goes on from its checkpoint. What an action did until it was cut short is done, and nobody knows how much it was. */
function isRepeatable({ kind }: Claim): boolean {
  return kind === 'sync' || kind === 'webhook';
}

/** Of one that is not to begin: it was told to end meanwhile, or its node was lost and nobody asked for another attempt. */
function endingBefore(claim: Claim): Ending | undefined {
  if (claim.isCancelled) return cancelled;
  const isSpent = claim.attempt > (isRepeatable(claim) ? maxTurns : claim.maxAttempts);
  return claim.isResumed && isSpent ? cutShort : undefined;
}

const notBegun: Ending = {
  state: 'failed',
  error: { code: 'function_unavailable', message: 'The node that was to run it stops. Nothing was done.' },
  mayPass: true,
};

const cutShort: Ending = {
  state: 'failed',
  error: {
    code: 'function_unavailable',
    message: 'The node that ran it was stopped or lost. What it did until then is done.',
  },
  mayPass: true,
};
