import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { Bucket, type Token } from './bucket.ts';
import { cellAt, cellMsOf, type Priority, type Rule, SlidingWindow } from './sliding-window.ts';
import type { WindowStore } from './window-store.ts';

const rule: Rule = { count: 60, burst: 60, windowMs: 60_000 };
const cellMs = cellMsOf(rule);

/** A ledger of one node, with a clock that only the test moves. */
function openWindowStore() {
  const clock = { ms: 1_000 * cellMs };
  let pages = new SlidingWindow().pages(0);
  let writes = 0;
  const store: WindowStore = {
    now: () => clock.ms,
    async change({ change }) {
      writes += 1;
      const window = new SlidingWindow(pages);
      const result = change(window, clock.ms);
      pages = window.pages(cellAt(rule, clock.ms));
      return { result, known: { pages, version: '' }, window };
    },
  };
  return { clock, store, writes: () => writes };
}

/** Waits in the line as a call of the lane does. */
function waitIn(bucket: Bucket, lane: number, priority: Priority = 'interactive') {
  const outcome: { token?: Token; isRefused?: boolean; error?: Error } = {};
  const isWaiting = bucket.wait({
    lane,
    priority,
    until: Number.POSITIVE_INFINITY,
    serve: (token) => {
      outcome.token = token;
    },
    refuse: () => {
      outcome.isRefused = true;
    },
    fail: (error) => {
      outcome.error = error;
    },
  });
  if (!isWaiting) outcome.isRefused = true;
  return outcome;
}

test('a token that was held for too long is not used', async () => {
  const { clock, store } = openWindowStore();
  const bucket = new Bucket({ key: 'old', rule, store });
  const waiter = waitIn(bucket, 1);
  await setImmediate();
  const first = waiter.token;
  assert.ok(first);
  bucket.giveBack(first);
  clock.ms += 5 * cellMs;
  const again = bucket.take('interactive');
  assert.deepEqual(again, first);
  bucket.giveBack(again);
  clock.ms += cellMs;
  assert.equal(bucket.take('interactive'), undefined);
  await bucket.stop();
});

test('the expected time in a long queue is its end, not the next token', async () => {
  const slow: Rule = { count: 31, burst: 1, windowMs: 60_000 };
  const { clock, store } = openWindowStore();
  const bucket = new Bucket({ key: 'long', rule: slow, store });
  for (let lane = 1; lane <= 20; lane += 1) waitIn(bucket, lane);
  await setImmediate();
  const waitS = (bucket.expectedAt('interactive', 99) - clock.ms) / 1000;
  assert.ok(waitS >= 36 && waitS <= 44, `${waitS} s for one behind twenty, where one goes each 2 s`);
  assert.ok(bucket.expectedAt('interactive', 1) >= bucket.expectedAt('interactive', 99));
  await bucket.stop();
});

test('background calls never displace interactive ones', async () => {
  const { store } = openWindowStore();
  const bucket = new Bucket({ key: 'full', rule: { ...rule, count: 1, burst: 1 }, store });
  for (let lane = 1; lane <= 10; lane += 1)
    for (let call = 0; call < 200; call += 1) waitIn(bucket, lane, 'background');
  assert.equal(waitIn(bucket, 11).isRefused, undefined);
  assert.equal(waitIn(bucket, 1).isRefused, undefined);
  await bucket.stop();
});

test('in a full line a lane with few waiters gets a place from a lane with many, and no other lane does', async () => {
  const { store } = openWindowStore();
  const bucket = new Bucket({ key: 'greedy', rule: { ...rule, count: 1, burst: 1 }, store });
  const greedy = Array.from({ length: 2_000 }, (_, at) => waitIn(bucket, 1 + (at % 10)));
  const modest = waitIn(bucket, 11);
  assert.equal(modest.isRefused, undefined);
  assert.deepEqual(
    greedy.flatMap(({ isRefused }, at) => (isRefused ? [at] : [])).map((at) => Math.floor(at / 10)),
    [199],
  );
  // As long as the longest, or one shorter: nothing would be fairer.
  assert.equal(waitIn(bucket, 1).isRefused, true);
  for (let call = 1; call < 181; call += 1) waitIn(bucket, 11);
  assert.equal(waitIn(bucket, 11).isRefused, true);
  await bucket.stop();
  assert.equal(modest.error !== undefined || modest.token !== undefined, true);
});

test('a caller with occasional calls mostly finds a token available, and writes are few', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  for (const [everyCells, maxWrites] of [
    [0.5, 0.2],
    [1, 0.3],
    [2, 0.5],
    [4, 1.1],
    [12, 2.1],
  ] as const) {
    const { clock, store, writes } = openWindowStore();
    const bucket = new Bucket({ key: 'now and then', rule: { ...rule, count: 200, burst: 200 }, store });
    const calls = 40;
    for (let call = 0; call < calls; call += 1) {
      const waiter = { token: bucket.take('interactive') };
      if (waiter.token === undefined) {
        const waiting = waitIn(bucket, 1);
        await setImmediate();
        waiter.token = waiting.token;
      }
      assert.ok(waiter.token);
      bucket.settle(waiter.token, clock.ms);
      for (let half = 0; half < everyCells; half += 0.5) {
        clock.ms += cellMs / 2;
        t.mock.timers.tick(cellMs / 2);
        await setImmediate();
      }
    }
    assert.ok(
      writes() <= calls * maxWrites,
      `${writes()} writes for ${calls} calls, one in ${everyCells} cells`,
    );
    await bucket.stop();
  }
});

test('a stopped bucket refuses calls, and reads nothing any more', async () => {
  const { store, writes } = openWindowStore();
  const bucket = new Bucket({ key: 'stopped', rule, store });
  await bucket.stop();
  assert.throws(() => waitIn(bucket, 1), { code: 'unavailable' });
  assert.equal(writes(), 0);
});
