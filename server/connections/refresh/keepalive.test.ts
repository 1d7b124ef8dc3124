import assert from 'node:assert/strict';
import { once } from 'node:events';
import { copyFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { RefreshNode } from '../../../test/support/refresh-node.ts';
import type { OAuth2Credentials } from '../../auth-modes/oauth2-credentials.ts';
import { createIntegration, updateIntegration } from '../../integrations/store.ts';
import { createLog } from '../../log.ts';
import { endConnection } from '../health/status-transitions.ts';
import { insertConnection, replaceCredentials } from '../store/save.ts';
import { keepaliveJob } from './keepalive.ts';
import { codeOf, hour, name, refreshTests } from './refresh.fixture.ts';

const t = refreshTests();

test('an unused connection is refreshed before its token would expire by disuse, and no sooner', async () => {
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

test('unused connections are refreshed in small steps, and one that fails does not block the others', async () => {
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

test('a connection that ends while others are refreshed stays as it is', async () => {
  await t().open('none');
  await t().bench.connect('behind', t().now());
  const one = t().node({
    async through(url, init) {
      const connection = await t().node().live('behind');
      await t().bench.db.transaction((tx) =>
        endConnection(tx, { connection, cause: 'security_event', evidence: {}, at: t().now() }),
      );
      return fetch(url, init);
    },
  });
  t().time += 150 * 24 * hour;
  await one.live('behind');
  await jobOf(one)();
  assert.equal(t().grant.accepted, 1);
  assert.equal(t().bench.provider.grant('behind').asked, 0);
  assert.deepEqual(await t().bench.stateOf('behind'), { status: 'needs_reauth', cause: 'security_event' });
});

test('a provider that lets its callers wait keeps those of another one from nothing', async () => {
  await t().open('none');
  const { directory } = t().bench.provider;
  await copyFile(join(directory, 'rotating.yaml'), join(directory, 'quick.yaml'));
  const served: string[] = [];
  const { promise: isServed, resolve: serve } = Promise.withResolvers<void>();
  const one = t().node({
    async through(url, init) {
      const isQuick = String(init.body).includes('refresh_token=quick');
      if (!isQuick) await Promise.race([isServed, once(init.signal, 'abort')]);
      served.push(isQuick ? 'quick' : 'slow');
      serve();
      return fetch(url, init);
    },
  });
  const { environmentId } = t().bench.settings;
  const integration = await createIntegration(one.db, {
    ...one.reading,
    environmentId,
    key: 'quick',
    provider: 'quick',
    client: { clientId: 'id', clientSecret: 'secret' },
  });
  const refresh_token = t().bench.provider.issue('quick');
  await insertConnection(one.db, {
    integration,
    vault: one.reading.vault,
    grant: {},
    at: t().now(),
    credentials: { type: 'OAUTH2', access_token: 'a', refresh_token, raw: {} },
  });
  t().time += 150 * 24 * hour;
  await jobOf(one)();
  assert.deepEqual(served, ['quick', 'slow']);
});

test('a run continues where the previous run reached its time limit', async () => {
  await t().open('none');
  const others = ['b', 'c'];
  for (const other of others) await t().bench.connect(other, t().now());
  t().bench.provider.plan = () => ({ refusal: { status: 503, error: 'server_error' } });
  const run = jobOf(t().node(), { turnMs: 0 });
  const asked = () => [name, ...others].map((who) => t().bench.provider.grant(who).asked);
  t().time += 150 * 24 * hour;
  for (const expected of [
    [1, 0, 0],
    [1, 1, 0],
    [1, 1, 1],
    [2, 1, 1],
  ]) {
    t().time += hour;
    await run();
    assert.deepEqual(asked(), expected);
  }
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
  assert.equal(await codeOf(t().fresh(one)), 'integration_misconfigured');
  t().time += 150 * 24 * hour;
  await jobOf(one)();
  assert.deepEqual(
    others.map((other) => t().bench.provider.grant(other).accepted),
    others.map(() => 1),
  );
});

test('a client that the provider refuses waits for its probe, and a disabled API delays no refresh', async () => {
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

test('a connection with a client of its own waits for no probe of the integration’s', async () => {
  await t().open('none');
  const one = t().node();
  const current = await one.live(name);
  const config_override = { client_id: 'own', client_secret: 'own secret' };
  const credentials = { ...(current.credentials as OAuth2Credentials), config_override };
  await replaceCredentials(one.db, {
    vault: one.reading.vault,
    current,
    credentials,
    grant: {},
    at: t().now(),
  });
  const fault = { cause: 'client_refused', evidence: {}, since: t().now().toISOString(), next_step: '' };
  await one.db.query('update integration set fault = $1', [JSON.stringify(fault)]);
  t().time += 150 * 24 * hour;
  await jobOf(t().node())();
  assert.equal(t().grant.accepted, 1);
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

test('a connection that was blocked by a node whose clock is far ahead is not kept waiting for it', async () => {
  await t().open('none');
  t().bench.provider.plan = () => ({ refusal: { status: 400, error: 'admin_policy_enforced' } });
  const one = t().node();
  t().time += 72 * hour;
  assert.equal(await codeOf(t().fresh(one)), 'connection_blocked');
  t().time -= 72 * hour;
  t().bench.provider.plan = () => ({});
  await jobOf(one)();
  assert.deepEqual(await t().bench.stateOf(name), { status: 'active', cause: null });
});

test('a connection whose token the client may not use is tried again an hour later, or once the integration was changed', async () => {
  await t().open('none');
  t().bench.provider.plan = () => ({ refusal: { status: 401, error: 'unauthorized_client' } });
  const one = t().node();
  const run = jobOf(one);
  t().time += 150 * 24 * hour;
  assert.equal(await codeOf(t().fresh(one)), 'integration_misconfigured');
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
  await updateIntegration(one.db, {
    ...one.reading,
    current: integration,
    change: { client },
    at: new Date(),
  });
  t().bench.provider.plan = () => ({});
  await run();
  assert.equal(t().grant.accepted, 1);
  const types = (await one.db.query<{ type: string }>('select type from event order by created_at')).map(
    ({ type }) => type,
  );
  assert.deepEqual(types, ['integration.misconfigured', 'integration.recovered']);
});

function jobOf(
  { db, reading, reader, credentials }: RefreshNode,
  settings: { turnMs?: number } = {},
): () => Promise<unknown> {
  const job = keepaliveJob({
    db,
    catalog: reading.catalog,
    reader,
    credentials,
    isSandboxOn: false,
    log: createLog({ level: 'silent', format: 'json' }),
    now: t().now,
    ...settings,
  });
  return () => job.run({}, new AbortController().signal);
}
