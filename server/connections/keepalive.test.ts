import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RefreshNode } from '../../test/support/refresh-node.ts';
import { keepaliveJob } from './keepalive.ts';
import { codeOf, hour, name, refreshTests } from './refresh.fixture.ts';

const t = refreshTests();

test('a connection that nobody calls is refreshed before its token would die of disuse, and no sooner', async () => {
  await t().open('none');
  const one = t().node();
  await t().fresh(one);
  const run = jobOf(one);
  t().time += 89 * 24 * hour;
  await run();
  assert.equal(t().grant.accepted, 1);
  t().time += 46 * 24 * hour;
  await run();
  await run();
  assert.equal(t().grant.accepted, 2);
});

test('connections that nobody calls are refreshed in small steps, and one that fails does not stand in front of the others', async () => {
  await t().open('none');
  const names = Array.from({ length: 45 }, (_, index) => `c${index}`);
  for (const other of names) await t().bench.connect(other, t().now());
  t().bench.provider.plan = (of) => ({
    ...(Number(of.name.slice(1)) < 20 && { refusal: { status: 400, error: 'invalid_request' } }),
  });
  const run = jobOf(t().node());
  t().time += 150 * 24 * hour;
  for (let turn = 0; turn < 3; turn += 1) await run();
  const accepted = names.filter((other) => t().bench.provider.grant(other).accepted === 1);
  assert.equal(accepted.length, 25);
  assert.ok(names.every((other) => t().bench.provider.grant(other).asked === 1));
});
test('a connection that an administrator blocked is tried again a day later, and each day', async () => {
  await t().open('none');
  t().bench.provider.plan = () => ({ refusal: { status: 400, error: 'admin_policy_enforced' } });
  const one = t().node();
  const run = jobOf(one);
  assert.equal(await codeOf(t().fresh(one)), 'connection_blocked');
  for (const [hours, asked] of [
    [1, 1],
    [24, 2],
    [1, 2],
    [24, 3],
  ] as const) {
    t().time += hours * hour;
    await run();
    assert.equal(t().grant.asked, asked);
  }
  assert.deepEqual(await t().bench.eventsOf(name), ['connection.blocked']);
  t().bench.provider.plan = () => ({});
  t().time += 25 * hour;
  await run();
  assert.deepEqual(await t().bench.stateOf(name), { status: 'active', cause: null });
});

function jobOf({ db, reading, reader, credentials }: RefreshNode): () => Promise<unknown> {
  const job = keepaliveJob({
    db,
    catalog: reading.catalog,
    reader,
    credentials,
    isSandboxOn: false,
    now: t().now,
  });
  return () => job.run({}, new AbortController().signal);
}
