// Many expiries on several processes that are paused and killed at random, at a provider that is slow and loses answers.

import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openRefreshBench, type RefreshBench } from '../support/refresh-bench.ts';
import type { Rotation } from '../support/token-provider.ts';
import { pick, type Random, randomOf } from './random.ts';
import type { Ask, Told } from './refresh-worker.ts';

type Trial = {
  rotation: Rotation;
  processes: number;
  connections: number;
  /** In each, every connection expires once. */
  rounds: number;
  seed: number;
  /** Of the provider's requests, and for storing an answer: together the length of a lease. */
  timeoutMs: number;
  storeMs: number;
  /** Pauses of a process: those that a lease outlasts, and those that outlast it. */
  shortPauseMs: number;
  longPauseMs: number | undefined;
};
type Outcome = {
  expiries: number;
  accepted: number;
  lost: number;
  /** Answers that took longer than the provider's time limit, whether or not somebody still waited for them. */
  slow: number;
  kills: number;
  died: number;
};

type Worker = { name: string; process: ChildProcess; waiting: Map<number, (told: string) => void> };

const callersOfEach = 3;
const killed = 'killed';
const hour = 3_600_000;

/**
 * Lets every connection expire once a round, with callers on three processes each, and checks after each round:
 *
 * - no connection had two refreshes under way at once, and where tokens are replaced the provider worked on no two;
 * - the provider accepted one refresh for each, and one more for each answer that was lost;
 * - every caller got a token, unless its process was killed, also where the answer was slower than the time limit;
 * - no connection died; under single use, only those whose answer was lost, and with that cause.
 */
export async function expireInTurn(trial: Trial): Promise<Outcome> {
  const { rotation, timeoutMs, storeMs, connections, rounds } = trial;
  const random = randomOf(trial.seed);
  const timing = { storeMs, patienceMs: 60_000 };
  const bench = await openRefreshBench({ rotation, timeoutMs, timing });
  const done: Outcome = { expiries: 0, accepted: 0, lost: 0, slow: 0, kills: 0, died: 0 };
  bench.provider.plan = ({ answers }) => {
    const isOrderly = answers.at(-1)?.isSent === false;
    const isSlow = !isOrderly && pick(random, 12) === 0;
    if (isSlow) done.slow += 1;
    return {
      // A process that stands still cannot extend its lease, and the answer to it must not outlast that.
      beforeMs: isSlow ? 0 : pick(random, timeoutMs / 6),
      afterMs: isSlow ? timeoutMs * 1.1 : pick(random, timeoutMs / 6),
      isDropped: !isOrderly && !isSlow && pick(random, 20) === 0,
    };
  };
  const names = Array.from({ length: connections }, (_, index) => `c${index}`);
  let at = Date.now();
  for (const name of names) await bench.connect(name, new Date(at));
  let started = 0;
  const start = () => {
    started += 1;
    return startWorker(bench, `node-${started}`);
  };
  let workers = await Promise.all(Array.from({ length: trial.processes }, start));
  try {
    for (let round = 0; round < rounds; round += 1) {
      at += 2 * hour;
      const before = new Map(names.map((name) => [name, bench.provider.grant(name).answers.length]));
      const calls = names.flatMap((name) => callAt(workers, { name, at, random }));
      const { dead, stoodStill } = await disturb(workers, { trial, random });
      const told = await Promise.all(calls);
      const isGone = (node: string) => node === dead?.name || node === stoodStill?.name;
      for (const name of names) {
        const { answers, maxAtOnce, maxWorkedOn } = bench.provider.grant(name);
        const ofRound = answers.slice(before.get(name));
        const lost = ofRound.filter(({ node, isSent }) => !isSent || isGone(node)).length;
        const said = JSON.stringify(told.filter((one) => one.name === name).map(({ error }) => error));
        assert.equal(maxAtOnce, 1, `${name} had ${maxAtOnce} refreshes at once, callers were told ${said}`);
        if (rotation !== 'none') assert.equal(maxWorkedOn, 1, `${name} was worked on twice at once`);
        assert.ok(ofRound.length >= 1, `${name} was not refreshed`);
        assert.ok(ofRound.length <= 1 + lost, `${name}: ${ofRound.length} accepted, ${lost} lost`);
        const errors = told.filter(
          (one) => one.name === name && one.error !== undefined && one.error !== killed,
        );
        const state = await bench.stateOf(name);
        if (rotation === 'single_use' && lost > 0 && state.status !== 'active') {
          assert.deepEqual(state, { status: 'needs_reauth', cause: 'refresh_reply_lost' });
          done.died += 1;
          await bench.connect(name, new Date(at));
        } else {
          assert.deepEqual(state, { status: 'active', cause: null }, `${name} died`);
          assert.deepEqual(errors, [], `a caller of ${name} failed`);
        }
        done.expiries += 1;
        done.accepted += ofRound.length;
        done.lost += ofRound.length - 1;
      }
      if (dead) {
        done.kills += 1;
        const successor = await start();
        workers = workers.map((worker) => (worker === dead ? successor : worker));
      }
    }
    return done;
  } finally {
    for (const worker of workers) worker.process.kill('SIGKILL');
    await bench.close();
  }
}

async function startWorker({ settings }: RefreshBench, name: string): Promise<Worker> {
  const child = fork(
    path.join(import.meta.dirname, 'refresh-worker.ts'),
    [JSON.stringify({ ...settings, name })],
    {
      env: { ...process.env, NODE_TEST_CONTEXT: undefined },
      execArgv: [],
    },
  );
  const waiting: Worker['waiting'] = new Map();
  const settle = (id: number, told: string) => {
    waiting.get(id)?.(told);
    waiting.delete(id);
  };
  await once(child, 'message');
  child.on('message', ({ id, error = '' }: Told) => settle(id, error));
  child.on('exit', () => {
    for (const id of waiting.keys()) settle(id, killed);
  });
  return { name, process: child, waiting };
}

let calls = 0;

/** Two calls at each of three processes, within a tenth of a second. */
function callAt(
  workers: Worker[],
  { name, at, random }: { name: string; at: number; random: Random },
): Promise<{ name: string; error: string | undefined }>[] {
  const first = pick(random, workers.length);
  const chosen = Array.from(
    { length: callersOfEach },
    (_, index) => workers[(first + index) % workers.length]!,
  );
  return [...chosen, ...chosen].map(async (worker) => {
    await sleep(pick(random, 100));
    calls += 1;
    const ask: Ask = { id: calls, connection: name, at };
    const told = new Promise<string>((resolve) => worker.waiting.set(ask.id, resolve));
    if (worker.process.connected) worker.process.send(ask, () => {});
    else worker.waiting.get(ask.id)?.(killed);
    return { name, error: (await told) || undefined };
  });
}

/** Pauses two processes, and in two rounds of three kills a third, while the calls are under way. */
async function disturb(
  workers: Worker[],
  { trial, random }: { trial: Trial; random: Random },
): Promise<{ dead: Worker | undefined; stoodStill: Worker | undefined }> {
  const { shortPauseMs, longPauseMs, timeoutMs } = trial;
  const first = pick(random, workers.length);
  const [one, other, victim] = [0, 1, 2].map((index) => workers[(first + index) % workers.length]!);
  const isLong = longPauseMs !== undefined && pick(random, 3) === 0;
  const isKill = pick(random, 3) > 0;
  const soon = () => sleep(pick(random, timeoutMs / 3));
  const stop = async (worker: Worker, ms: number) => {
    await soon();
    worker.process.kill('SIGSTOP');
    await sleep(ms);
    worker.process.kill('SIGCONT');
  };
  await Promise.all([
    stop(one!, pick(random, shortPauseMs)),
    stop(other!, isLong ? longPauseMs : pick(random, shortPauseMs)),
    isKill && soon().then(() => victim!.process.kill('SIGKILL')),
  ]);
  return { dead: isKill ? victim : undefined, stoodStill: isLong ? other : undefined };
}
