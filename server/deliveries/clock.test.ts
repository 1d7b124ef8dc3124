import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createClock } from './worker.ts';

const hourMs = 3_600_000;
const open = (aheadMs: number) => {
  const machine = { ms: 1_000_000 + aheadMs };
  const told: number[] = [];
  const clock = createClock({
    // A test that moves the time, by an hour.
    nowMs: () => machine.ms + hourMs,
    machineMs: () => machine.ms,
    onFarOff: (ms) => told.push(ms),
  });
  /** The database answers after `ms` of `takesMs`. */
  const compare = (takesMs: number, ms = takesMs / 2) =>
    clock.compare(async () => {
      const databaseMs = machine.ms - aheadMs + ms;
      machine.ms += takesMs;
      return { databaseMs };
    });
  return { clock, machine, told, compare };
};

test('a wrong clock is corrected, and reported if it is wrong by seconds', async () => {
  for (const aheadMs of [hourMs, -hourMs, 2_000]) {
    const { clock, machine, told, compare } = open(aheadMs);
    assert.deepEqual(await compare(10), { databaseMs: 1_000_005 });
    await compare(10);
    assert.equal(clock.nowMs(), machine.ms - aheadMs + hourMs);
    assert.deepEqual(told, Math.abs(aheadMs) === hourMs ? [aheadMs] : []);
  }
});

test('a right clock never goes back, however long comparisons take', async () => {
  const { clock, machine, compare } = open(0);
  for (const [takesMs, ms] of [
    [900, 0],
    [900, 900],
    [1_800, 1_800],
    [10, 0],
  ] as const) {
    await compare(takesMs, ms);
    assert.equal(clock.nowMs(), machine.ms + hourMs);
  }
});
