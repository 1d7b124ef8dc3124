// Slow: each of its tests takes more than a second.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { codeOf, hour, name, refreshTests } from './refresh.fixture.ts';

const t = refreshTests();

describe('an answer without a judgement', () => {
  const html = 'text/html';
  const pages = {
    'is owed': [
      { status: 200, type: 'application/json', text: '{"access_token":"a' },
      { status: 200, type: html, text: '<html>' },
      { status: 302, type: html, text: '' },
      { status: 502, type: html, text: '<html>' },
      { status: 500, type: 'application/json', text: '{"error":"server_error"}' },
    ],
    'is none': [
      { status: 503, type: html, text: '<html>' },
      { status: 403, type: html, text: '<html>' },
      { status: 429, type: html, text: '<html>' },
    ],
  };
  for (const [meaning, all] of Object.entries(pages)) {
    for (const page of all) {
      test(`${meaning}: ${page.status} ${page.type}`, async () => {
        await t().open('single_use');
        t().bench.provider.plan = () => ({ page });
        const one = t().node();
        assert.equal(await codeOf(t().fresh(one)), 'connection_refresh_failed');
        t().time += 2 * hour;
        assert.equal(await codeOf(t().fresh(one)), 'connection_needs_reauth');
        const cause = meaning === 'is owed' ? 'refresh_reply_lost' : 'grant_dead';
        assert.deepEqual(await t().bench.stateOf(name), { status: 'needs_reauth', cause });
      });
    }
  }
});

describe('an answer that is slower than the time limit', () => {
  const limitMs = 1000;
  /** Between the end of a lease that is not extended, and twice the limit. */
  const slow = 1.5 * limitMs;
  /** Just after twice the limit. */
  const timing = { limitMs, storeMs: limitMs / 2, patienceMs: 3 * limitMs - 1 };

  for (const [rotation, moment, delay] of [
    ['until_used', 'after', { afterMs: slow }],
    ['single_use', 'after', { afterMs: slow }],
    ['single_use', 'before', { beforeMs: slow }],
  ] as const) {
    test(`is awaited and not requested again if it comes ${moment} the token is replaced (rotation: ${rotation})`, async () => {
      await t().open(rotation, timing);
      t().bench.provider.plan = ({ asked }) => ({ ...(asked === 0 && delay) });
      const nodes = [t().node(), t().node()];
      const got = await Promise.all(nodes.map((node) => t().fresh(node)));
      assert.equal(new Set(got.map(({ access_token }) => access_token)).size, 1);
      t().time += hour;
      await t().fresh(nodes[0]!);
      assert.deepEqual([t().grant.asked, t().grant.maxWorkedOn], [2, 1]);
      assert.deepEqual(await t().bench.eventsOf(name), []);
    });
  }

  test('is requested again if tokens are not replaced, and no caller gets an error', async () => {
    await t().open('none', timing);
    t().bench.provider.plan = ({ asked }) => ({ ...(asked === 0 && { afterMs: slow }) });
    const nodes = [t().node(), t().node()];
    await Promise.all(nodes.map((node) => t().fresh(node)));
    assert.deepEqual([t().grant.asked, t().grant.maxAtOnce], [2, 1]);
  });

  for (const [rotation, asked] of [
    ['none', 2],
    ['single_use', 1],
  ] as const) {
    test(`is given up where it does not come at all (rotation: ${rotation})`, async () => {
      await t().open(rotation, timing);
      t().bench.provider.plan = () => ({ afterMs: 3 * limitMs });
      const one = t().node();
      assert.equal(await codeOf(t().fresh(one)), 'connection_refresh_failed');
      assert.equal(t().grant.asked, asked);
      assert.deepEqual(await t().bench.stateOf(name), { status: 'active', cause: null });
    });

    test(`is given up at the limit where callers would not wait for more (rotation: ${rotation})`, async () => {
      await t().open(rotation, { ...timing, patienceMs: limitMs });
      t().bench.provider.plan = () => ({ afterMs: slow });
      assert.equal(await codeOf(t().fresh(t().node())), 'connection_refresh_failed');
      assert.equal(t().grant.asked, 1);
    });
  }
});
