import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RefreshNode } from '../../test/support/refresh-node.ts';
import { updateIntegration } from '../integrations/store.ts';
import { createLog } from '../log.ts';
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

test('a connection that cannot be opened does not stop the others', async () => {
  await t().open('none');
  await t().bench.connect('behind', t().now());
  await t().node().db.query("update connection set credentials = '\\x00' where connection_id = $1", [name]);
  t().time += 150 * 24 * hour;
  await jobOf(t().node())();
  assert.equal(t().grant.asked, 0);
  assert.equal(t().bench.provider.grant('behind').accepted, 1);
});

test('a token that the client may not use keeps no other connection of the integration from its turn', async () => {
  await t().open('none');
  const others = Array.from({ length: 5 }, (_, index) => `other${index}`);
  for (const other of others) await t().bench.connect(other, t().now());
  t().bench.provider.plan = (of) => ({
    ...(of.name === name && { refusal: { status: 401, error: 'unauthorized_client' } }),
  });
  const one = t().node();
  assert.equal(await codeOf(t().fresh(one)), 'connection_blocked');
  t().time += 150 * 24 * hour;
  await jobOf(one)();
  assert.deepEqual(
    others.map((other) => t().bench.provider.grant(other).accepted),
    others.map(() => 1),
  );
});

test('a client that the provider refuses waits for its probe, and an API that is switched off keeps nobody', async () => {
  await t().open('none');
  const one = t().node();
  t().time += 150 * 24 * hour;
  for (const [cause, accepted] of [
    ['client_refused', 0],
    ['api_disabled', 1],
  ] as const) {
    const fault = { cause, evidence: {}, since: t().now().toISOString(), next_step: '' };
    await t().bench.db.query('update integration set fault = $1', [JSON.stringify(fault)]);
    await jobOf(one)();
    assert.equal(t().grant.accepted, accepted, cause);
  }
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

test('a connection whose token the client may not use is tried again an hour later, or once the integration was changed', async () => {
  await t().open('none');
  t().bench.provider.plan = () => ({ refusal: { status: 401, error: 'unauthorized_client' } });
  const one = t().node();
  const run = jobOf(one);
  assert.equal(await codeOf(t().fresh(one)), 'connection_blocked');
  for (const [minutes, asked] of [
    [59, 1],
    [1, 2],
    [1, 2],
  ] as const) {
    t().time += (minutes * hour) / 60;
    await run();
    assert.equal(t().grant.asked, asked);
  }
  const { integration } = await one.live(name);
  const client = { clientId: 'another', clientSecret: 'secret' };
  await updateIntegration(one.db, { ...one.reading, current: integration, change: { client } });
  t().bench.provider.plan = () => ({});
  await run();
  assert.deepEqual(await t().bench.eventsOf(name), ['connection.blocked', 'connection.recovered']);
});

function jobOf({ db, reading, reader, credentials }: RefreshNode): () => Promise<unknown> {
  const job = keepaliveJob({
    db,
    catalog: reading.catalog,
    reader,
    credentials,
    isSandboxOn: false,
    log: createLog({ level: 'silent', format: 'json' }),
    now: t().now,
  });
  return () => job.run({}, new AbortController().signal);
}
