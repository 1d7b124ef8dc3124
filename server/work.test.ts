import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { AppError } from './errors.ts';
import { createWorker, type Task, type Worker, writeWhileHeld } from './work.ts';

type Claim = { readonly leasedAtMs: number };
const claim = (): Claim => ({ leasedAtMs: performance.now() });
const interrupted = ({ signal }: Task<Claim>) =>
  new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));

/** The worker stops at the end of the test, also if the test fails. */
function open(t: TestContext, of: Partial<Parameters<typeof createWorker<Claim, void>>[0]> = {}) {
  const interruptions: unknown[] = [];
  const errors: unknown[] = [];
  const worker: Worker<Claim, void> = createWorker({
    async look() {
      return 'nothing';
    },
    async execute(task) {
      await interrupted(task);
      interruptions.push(task.interruption);
    },
    pollMs: 5,
    onError: (error) => errors.push(error),
    giveBack: () => worker.settled(),
    ...of,
  });
  t.after(() => worker.stop(0));
  return { worker, interruptions, errors };
}

/** Leases depend only on `clock.ms`. */
function stopClock(t: TestContext): { ms: number } {
  const clock = { ms: 1_000 };
  t.mock.method(performance, 'now', () => clock.ms);
  return clock;
}

test('a task that is not renewed is lost before its lease ends, also while a renewal gets no answer', async (t) => {
  const clock = stopClock(t);
  let renewals = 0;
  const renew = () => {
    renewals += 1;
    return new Promise<never>(() => {});
  };
  const lease = { leaseMs: 500, marginMs: 200, renewMs: 5, renew };
  const { worker, interruptions } = open(t, { lease });
  const done = worker.begin(claim());
  worker.start();
  for (const ms of [1_000, 1_100, 1_200, 1_300]) {
    clock.ms = ms;
    await pause(20);
    assert.deepEqual(interruptions, [], `at ${ms}`);
  }
  while (renewals < 2) await pause(5, undefined, { signal: t.signal });
  clock.ms = 1_400;
  await done;
  assert.deepEqual(interruptions, ['lost']);
});

test('a renewed task continues', async (t) => {
  const clock = stopClock(t);
  let renewedAtMs = 0;
  const renew = async (tasks: readonly Task<Claim>[]) => {
    renewedAtMs = clock.ms;
    return tasks;
  };
  const { worker, interruptions } = open(t, { lease: { leaseMs: 500, marginMs: 200, renewMs: 5, renew } });
  void worker.begin(claim());
  worker.start();
  for (const ms of [1_200, 1_400, 1_600, 1_800]) {
    clock.ms = ms;
    while (renewedAtMs < ms) await pause(5, undefined, { signal: t.signal });
    assert.deepEqual(interruptions, [], `at ${ms}`);
  }
  await worker.stop(0);
  assert.deepEqual(interruptions, ['lost']);
});

test('a stop begins nothing more, waits for its grace period, and releases the remaining rows', async (t) => {
  let looks = 0;
  const left: number[] = [];
  const quick = Promise.withResolvers<void>();
  const { worker } = open(t, {
    async look() {
      looks += 1;
      return 'nothing';
    },
    execute: (task) => (worker.tasks().length === 0 ? quick.promise : interrupted(task)),
    giveBack: async (tasks) => void left.push(tasks.length),
  });
  void worker.begin(claim());
  void worker.begin(claim());
  worker.start();
  const stopped = worker.stop(50);
  quick.resolve();
  await stopped;
  const looked = looks;
  await pause(20);
  assert.deepEqual([looks, left], [looked, [1]]);
});

test('due rows are processed until a query finds none and no task is running', async (t) => {
  let due = 5;
  const { worker } = open(t, {
    async look() {
      if (due === 0) return 'nothing';
      due -= 1;
      void worker.begin(claim());
      return due % 2 === 0 ? 'more' : 'nothing';
    },
    execute: () => pause(5),
  });
  await worker.runDue();
  assert.deepEqual([due, worker.tasks().length], [0, 0]);
});

test('of failures in a row the first is reported, and the looks go on', async (t) => {
  let looks = 0;
  const { worker, errors } = open(t, {
    async look() {
      looks += 1;
      if (looks < 4) throw new Error(`look ${looks}`);
      return 'nothing';
    },
  });
  worker.start();
  while (looks < 5) await pause(5, undefined, { signal: t.signal });
  await worker.stop(0);
  assert.deepEqual(
    errors.map((error) => (error as Error).message),
    ['look 1'],
  );
});

test('a write is repeated while its task is held and its failure may pass', async () => {
  const doubts: boolean[] = [];
  const write = async (isInDoubt: boolean) => {
    doubts.push(isInDoubt);
    if (doubts.length < 2) throw new AppError('unavailable');
    return 'written';
  };
  const onFailure = () => {};
  assert.equal(await writeWhileHeld(write, { isHeld: () => true, onFailure }), 'written');
  assert.deepEqual(doubts, [false, true]);
  const away = () => Promise.reject(new AppError('unavailable'));
  await assert.rejects(writeWhileHeld(away, { isHeld: () => false, onFailure }), { code: 'unavailable' });
  const wrong = () => Promise.reject(new Error('wrong'));
  await assert.rejects(writeWhileHeld(wrong, { isHeld: () => true, onFailure }), { message: 'wrong' });
});
