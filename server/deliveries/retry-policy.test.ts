import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  afterFailure,
  afterInternalError,
  afterPause,
  type Breaker,
  isGivenUp,
  isOverdue,
  pauseMs,
  retryDelayMs,
  stateOf,
} from './retry-policy.ts';

const nowMs = Date.UTC(2026, 10, 21);
const closed: Breaker = { failures: 0, failingSince: null, openings: 0, openUntil: null };
const after = (count: number, at = { nowMs, random: 0.5 }) => {
  let breaker = closed;
  for (let failure = 0; failure < count; failure += 1) breaker = afterFailure(breaker, at);
  return breaker;
};

test('it opens at the fifth failure, and attempts in progress do not extend it', () => {
  assert.equal(stateOf(after(4), nowMs), 'closed');
  assert.equal(stateOf(after(5), nowMs), 'open');
  assert.deepEqual(after(12).openUntil, after(5).openUntil);
  assert.deepEqual(after(12).failingSince, new Date(nowMs));
});

test('each failed probe doubles the time, up to ten minutes', () => {
  let breaker = after(5);
  const minutes: number[] = [];
  for (let probe = 0; probe < 40; probe += 1) {
    const atMs = breaker.openUntil!.getTime();
    assert.equal(stateOf(breaker, atMs), 'probing');
    breaker = afterFailure(breaker, { nowMs: atMs, random: 0.5 });
    minutes.push((breaker.openUntil!.getTime() - atMs) / 60_000);
  }
  assert.deepEqual(minutes.slice(0, 5), [1, 2, 4, 8, 10]);
  assert.equal(minutes.at(-1), 10);
});

test('attempts come ever more slowly, up to an hour, a fifth more or less', () => {
  assert.deepEqual(
    [1, 2, 3, 4, 5, 6, 7, 8, 1_000].map((attempts) => retryDelayMs(attempts, 0.5) / 1_000),
    [5, 15, 45, 135, 405, 1215, 3600, 3600, 3600],
  );
  assert.deepEqual([retryDelayMs(1, 0), retryDelayMs(1, 1)], [4_000, 6_000]);
});

test('silence lasts five seconds to a day', () => {
  assert.deepEqual([0, 4_999, 60_000, 1e23].map(pauseMs), [5_000, 5_000, 60_000, 86_400_000]);
});

test('a receiver that requests a pause does not open the breaker, unless the pause ends before the next attempt', () => {
  const asked = (requestedPauseMs: number, pausedUntil: Date | null = null) =>
    afterPause({ ...after(4), pausedUntil }, { requestedPauseMs, nowMs, random: 0.5 });
  assert.deepEqual([asked(5_000).failures, asked(5_000).openUntil], [4, null]);
  assert.equal(stateOf(asked(0), nowMs), 'open');
  // What was under way together with the one that it answered first.
  assert.equal(asked(0, new Date(nowMs + 5_000)).failures, 4);
  assert.equal(asked(0, new Date(nowMs)).failures, 5);
  assert.deepEqual(
    afterPause({ ...closed, pausedUntil: null }, { requestedPauseMs: 5_000, nowMs, random: 0 }).failingSince,
    new Date(nowMs),
  );
});

test('an attempt that could not be begun here puts off the next probe, and counts for nothing', () => {
  const dueAt = new Date(nowMs + 3_600_000);
  assert.equal(afterInternalError(closed, dueAt).openUntil, null);
  assert.deepEqual(afterInternalError(after(5), dueAt), { ...after(5), openUntil: dueAt });
  const later = { ...after(5), openUntil: new Date(nowMs + 7_200_000) };
  assert.deepEqual(afterInternalError(later, dueAt), later);
});

test('an event is overdue after three days, an endpoint given up after five', () => {
  const ago = (days: number) => new Date(nowMs - days * 86_400_000);
  assert.deepEqual([isOverdue(ago(2.9), nowMs), isOverdue(ago(3), nowMs)], [false, true]);
  const since = (failingSince: Date | null) => isGivenUp({ ...closed, failingSince }, nowMs);
  assert.deepEqual([since(null), since(ago(4.9)), since(ago(5))], [false, false, true]);
});
