import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { Overload } from './overload.ts';

const calm = { delayMs: 2, waiting: 0 };
const late = { delayMs: 150, waiting: 0 };
const settings = { mostDelayMs: 100, mostWaiting: 50 };

function looks(overload: Overload, look: typeof calm, times: number): number {
  for (let at = 0; at < times; at++) overload.note(look);
  return overload.share;
}

test('a burst, a collection of garbage or a stopped process refuses nobody', () => {
  const overload = new Overload(settings);
  for (let at = 0; at < 100; at++) {
    assert.equal(looks(overload, { delayMs: 5_000, waiting: 0 }, 4), 0);
    overload.note(calm);
  }
  assert.equal(overload.refusalOf('/records'), undefined);
});

test('a queue that stands refuses more and more, and what is refused falls slowly once it is gone', () => {
  const overload = new Overload(settings);
  assert.ok(Math.abs(looks(overload, late, 7) - 0.3) < 1e-9);
  // While the queue shrinks the share stays, so that the load does not swing.
  assert.ok(Math.abs(looks(overload, { delayMs: 70, waiting: 0 }, 100) - 0.3) < 1e-9);
  assert.ok(looks(overload, calm, 10) > 0.05);
  assert.equal(looks(overload, calm, 10), 0);
});

test('who waits for the database is a queue, too', () => {
  const overload = new Overload(settings);
  assert.ok(looks(overload, { delayMs: 0, waiting: 51 }, 6) > 0);
});

test('ordinary calls are refused first, webhooks and callbacks last, and what watches over the node never', () => {
  const overload = new Overload({ ...settings, random: () => 0.5 });
  const isRefused = (url: string) => overload.refusalOf(url) !== undefined;
  const ordinary = ['/records?model=a', '/proxy/v4/x', '/connections', '/oauth/callback-not', '/healthy'];
  const last = ['/webhook/dev/google', '/oauth/callback?code=1'];
  const never = ['/health', '/ready', '/ready?a', '/metrics'];
  looks(overload, late, 14);
  assert.ok(overload.share > 0.9);
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
  const overload = new Overload({ mostDelayMs: 20, mostWaiting: 50 });
  overload.watch(() => 0);
  const block = setInterval(() => {
    const until = performance.now() + 100;
    while (performance.now() < until);
  }, 1);
  while (overload.share === 0) await pause(50);
  clearInterval(block);
  const most = overload.share;
  while (overload.share >= most) await pause(50);
  overload.stop();
});
