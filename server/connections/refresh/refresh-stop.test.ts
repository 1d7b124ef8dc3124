// Slow: each of its tests takes more than a second.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { takeLease } from './lease.ts';
import { codeOf, hour, name, refreshTests } from './refresh.fixture.ts';

/** Longer than a test may take. */
const forever = 86_400_000;
const t = refreshTests();

test('a stop waits for the answer of a refresh under way as long as it may, and no longer', async () => {
  await t().open('single_use', { limitMs: 60_000, patienceMs: 90_000 });
  const reported = Promise.withResolvers<void>();
  const one = t().node({
    async through(url, init) {
      const answer = await fetch(url, init);
      await reported.promise;
      return answer;
    },
  });
  const refreshing = codeOf(one.credentials.refreshed(await one.live(name)));
  while (t().grant.accepted === 0) await sleep(5);
  const stopped = one.credentials.stop(forever);
  // Longer than a stop waits at least.
  await sleep(3_500);
  reported.resolve();
  await stopped;
  assert.equal((await one.live(name)).credentialsVersion, 2);
  assert.equal(await refreshing, 'success');
  t().time += hour;
  assert.match((await t().fresh(t().node())).access_token, /^access~/);
});

test('a node that stops begins no refresh, and waits for no other node', async () => {
  await t().open('single_use', { patienceMs: forever });
  const one = t().node();
  const seen = await one.live(name);
  const lease = await takeLease(t().bench.db, { connection: seen, forMs: forever });
  assert.ok(lease);
  const waiting = codeOf(one.credentials.refreshed(seen));
  await sleep(50);
  await one.credentials.stop(forever);
  assert.equal(await waiting, 'unavailable');
  await t().endLease();
  assert.equal(await codeOf(one.credentials.refreshed(seen)), 'unavailable');
  assert.equal(t().grant.asked, 0);
});
