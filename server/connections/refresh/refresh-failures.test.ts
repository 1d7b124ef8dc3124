import assert from 'node:assert/strict';
import { beforeEach, describe, test } from 'node:test';
import type { AppError } from '../../errors.ts';
import { endConnection } from '../health/status-transitions.ts';
import { codeOf, hour, name, refreshTests } from './refresh.fixture.ts';

const t = refreshTests();

describe('an outage', () => {
  beforeEach(async () => {
    await t().open('none');
    t().bench.provider.plan = () => ({ refusal: { status: 503, error: 'server_error' } });
  });

  test('is reported with the time to wait, and no node requests a token before that', async () => {
    const two = [t().node(), t().node()];
    await assert.rejects(t().fresh(two[0]!), (error: AppError) => {
      return error.code === 'connection_refresh_failed' && (error.retryAfterS ?? 0) > 0;
    });
    for (const one of [...two, ...two])
      assert.equal(await codeOf(t().fresh(one)), 'connection_refresh_failed');
    assert.equal(t().grant.asked, 1);
  });

  test('of hours is one event at its third failure and one at its end, and a state of neither', async () => {
    const one = t().node();
    for (let minute = 0; minute < 360; minute += 5) {
      t().time += 5 * 60_000;
      assert.equal(await codeOf(t().fresh(one)), 'connection_refresh_failed');
    }
    assert.deepEqual(await t().bench.stateOf(name), { status: 'active', cause: null });
    assert.deepEqual(await t().bench.eventsOf(name), ['connection.refresh_delayed']);
    t().bench.provider.plan = () => ({});
    t().time += 5 * 60_000;
    assert.equal(await codeOf(t().fresh(one)), 'success');
    assert.deepEqual(await t().bench.eventsOf(name), ['connection.refresh_delayed', 'connection.recovered']);
  });

  test('does not touch a token that is still good', async () => {
    t().bench.provider.plan = () => ({});
    const one = t().node();
    const { access_token } = await t().fresh(one);
    t().bench.provider.plan = () => ({ refusal: { status: 503, error: 'server_error' } });
    t().time += hour - 10_000;
    for (let call = 0; call < 5; call += 1) {
      assert.equal((await t().fresh(one)).access_token, access_token);
      await one.credentials.settled();
    }
    assert.equal(t().grant.asked, 2);
  });
});

test('a pause that was written by a clock far ahead is none', async () => {
  await t().open('none');
  t().bench.provider.plan = () => ({ refusal: { status: 503, error: 'server_error' } });
  t().time += 12 * hour;
  assert.equal(await codeOf(t().fresh(t().node())), 'connection_refresh_failed');
  t().time -= 12 * hour;
  t().bench.provider.plan = () => ({});
  assert.equal(await codeOf(t().fresh(t().node())), 'success');
});

describe('a dead connection', () => {
  test('is not tried by nodes that have not heard of it', async () => {
    await t().open('none');
    const four = [t().node(), t().node(), t().node(), t().node()];
    const cached = await Promise.all(four.map((node) => node.live(name)));
    t().grant.good = [];
    for (const [index, node] of four.entries()) {
      assert.equal(await codeOf(node.credentials.fresh(cached[index]!)), 'connection_needs_reauth');
    }
    assert.equal(t().grant.asked, 1);
  });

  test('that is blocked is tried once by nodes that try it at once', async () => {
    await t().open('none');
    t().bench.provider.plan = () => ({
      beforeMs: 100,
      refusal: { status: 400, error: 'admin_policy_enforced' },
    });
    const three = [t().node(), t().node(), t().node()];
    for (const asked of [1, 2]) {
      const cached = await Promise.all(three.map((node) => node.live(name)));
      const told = three.map((node, index) => codeOf(node.credentials.refreshed(cached[index]!)));
      assert.deepEqual([...new Set(await Promise.all(told))], ['connection_blocked']);
      assert.equal(t().grant.asked, asked);
      t().time += hour;
    }
  });

  test('whose end was reported to another node does not live again by a call', async () => {
    await t().open('none');
    const one = t().node();
    const cached = await one.live(name);
    await t().bench.db.transaction((tx) =>
      endConnection(tx, { connection: cached, cause: 'security_event', evidence: {}, at: t().now() }),
    );
    for (const call of [
      () => one.credentials.fresh(cached),
      () => one.credentials.refreshed(cached),
      async () => one.credentials.refreshedLiving(await one.live(name)),
    ]) {
      assert.equal(await codeOf(call()), 'connection_needs_reauth');
    }
    assert.equal(t().grant.asked, 0);
    assert.deepEqual(await t().bench.stateOf(name), { status: 'needs_reauth', cause: 'security_event' });
    assert.deepEqual(await t().bench.eventsOf(name), ['connection.needs_reauth']);
  });

  test('is tried once by a requested refresh, and is active again if that succeeds', async () => {
    await t().open('none');
    const { good } = t().grant;
    t().grant.good = [];
    const one = t().node();
    await codeOf(t().fresh(one));
    assert.equal(await codeOf(one.credentials.refreshed(await one.live(name))), 'connection_needs_reauth');
    assert.equal(t().grant.asked, 2);
    t().grant.good = good;
    assert.equal(await codeOf(one.credentials.refreshed(await one.live(name))), 'success');
    assert.deepEqual(await t().bench.eventsOf(name), ['connection.needs_reauth', 'connection.recovered']);
  });
});
