import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { Overload } from './overload.ts';

const calm = { delayMs: 2, waiting: 0 };
const late = { delayMs: 150, waiting: 0 };
const settings = { maxDelayMs: 100, maxWaiting: 50 };

function looks(overload: Overload, look: typeof calm, times: number): number {
  for (let at = 0; at < times; at++) overload.note(look);
  return overload.share;
}

test('a burst, a garbage collection or a stopped process refuses no call', () => {
  const overload = new Overload(settings);
  for (let at = 0; at < 100; at++) {
    assert.equal(looks(overload, { delayMs: 60_000, waiting: 0 }, 1), 0);
    overload.note(calm);
    assert.equal(looks(overload, late, 3), 0);
    overload.note(calm);
  }
  assert.equal(overload.refusalOf('/records'), undefined);
});

test('a persistent queue refuses a growing share, which falls slowly after it has gone', () => {
  const overload = new Overload(settings);
  // Four looks of a quarter of a second: it stands. Each adds an eighth.
  assert.equal(looks(overload, late, 4), 0.125);
  assert.equal(looks(overload, late, 2), 0.375);
  // While the queue shrinks the share stays, so that the load does not swing.
  assert.equal(looks(overload, { delayMs: 70, waiting: 0 }, 100), 0.375);
  assert.ok(looks(overload, calm, 10) > 0.15);
  assert.equal(looks(overload, calm, 10), 0);
});

test('a node that comes late by seconds refuses at its second look', () => {
  const overload = new Overload(settings);
  assert.equal(looks(overload, { delayMs: 5_000, waiting: 0 }, 1), 0);
  assert.equal(looks(overload, { delayMs: 5_000, waiting: 0 }, 1), 0.5);
});

test('waiters for the database are a queue, too', () => {
  const overload = new Overload(settings);
  assert.equal(looks(overload, { delayMs: 0, waiting: 51 }, 9), 0);
  assert.ok(looks(overload, { delayMs: 0, waiting: 51 }, 1) > 0);
});

test('ordinary calls are refused first, webhooks and callbacks last, and monitors of the node never', () => {
  const overload = new Overload({ ...settings, random: () => 0.5 });
  const isRefused = (url: string) => overload.refusalOf(url) !== undefined;
  const ordinary = ['/records?model=a', '/proxy/v4/x', '/connections', '/oauth/callback-not', '/healthy'];
  const last = ['/webhook/dev/google', '/oauth/callback?code=1'];
  const never = ['/health', '/ready', '/ready?a', '/metrics'];
  looks(overload, late, 11);
  assert.equal(overload.share, 1);
  assert.deepEqual(ordinary.filter(isRefused), ordinary);
  assert.deepEqual([...last, ...never].filter(isRefused), []);
  looks(overload, late, 20);
  assert.deepEqual([...ordinary, ...last].filter(isRefused), [...ordinary, ...last]);
  assert.deepEqual(never.filter(isRefused), []);
  const refusal = overload.refusalOf('/records');
  assert.equal(refusal?.code, 'overloaded');
  assert.ok(refusal?.retryAfterS !== undefined && refusal.retryAfterS >= 1);
  // Those come back first.
  looks(overload, calm, 60);
  assert.deepEqual([...ordinary, ...last].filter(isRefused).length > 0, true);
  assert.deepEqual(last.filter(isRefused), []);
});

test('a node that a program keeps busy notices, and notices that it is over', async () => {
  const overload = new Overload({ maxDelayMs: 20, maxWaiting: 50 });
  overload.watch(() => 0);
  const block = setInterval(() => {
    const until = performance.now() + 100;
    while (performance.now() < until);
  }, 1);
  while (overload.share === 0) await pause(50);
  clearInterval(block);
  const max = overload.share;
  while (overload.share >= max) await pause(50);
  overload.stop();
});
