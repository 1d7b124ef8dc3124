// Who changed what: every route that changes something that lasts leaves one entry, and the log can be read and proven.
// Slow: it calls every route.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';
import { type Fixture, presentName } from './scenario.ts';
import { prepareScenarios, scenarios } from './scenarios.ts';

let trellis: TestTrellis;
let given: Fixture;
before(async () => {
  trellis = await openTrellis();
  given = await prepareScenarios(trellis);
});
after(() => trellis.close());

type Entry = {
  position: number;
  created_at: string;
  actor: string;
  action: string;
  target: string;
  details: Record<string, unknown>;
};

/** What is the cache's content, a follower's place in it, or the provider's: the activity log has these. */
const ofData = undefined;
/** The entry that each route leaves. A route that changes nothing is named by itself. */
const actions: Record<string, string | undefined> = {
  'POST /providers': 'provider.created',
  'PUT /providers/{provider}': 'provider.updated',
  'DELETE /providers/{provider}': 'provider.deleted',
  'POST /integrations': 'integration.created',
  'POST /integrations/quickstart': 'integration.created',
  'PATCH /integrations/{key}': 'integration.updated',
  'DELETE /integrations/{key}': 'integration.deleted',
  'POST /connections': 'connection.imported',
  'POST /connections/{id}/refresh': ofData,
  'PATCH /connections/{id}': 'connection.updated',
  'POST /connections/metadata': 'connection.metadata_changed',
  'PATCH /connections/metadata': 'connection.metadata_changed',
  'DELETE /connections/{id}': 'connection.deleted',
  'POST /connect/sessions': 'connect_session.created',
  'POST /connect/sessions/reconnect': 'connect_session.created',
  'DELETE /connect/sessions/{id}': 'connect_session.ended',
  'POST /records': ofData,
  'PATCH /records': ofData,
  'POST /records/delete': ofData,
  'POST /records/track-deletes/start': ofData,
  'POST /records/track-deletes/end': ofData,
  'PATCH /records/datasets': 'dataset.changed',
  'POST /records/prune/estimate': ofData,
  // This one finds nothing; one that does leaves a receipt.
  'PATCH /records/prune': ofData,
  'PUT /records/consumers/{name}': ofData,
  // The key that calls is the owner here: a move by another caller leaves an entry.
  'PUT /records/consumers/{name} (of another key)': ofData,
  'DELETE /records/consumers/{name}': 'consumer.removed',
  'DELETE /records/consumers/{name} (of another key)': 'consumer.removed',
  'PUT /records/retention': 'retention.set',
  'DELETE /records/retention': 'retention.removed',
  'POST /events/endpoints': 'endpoint.created',
  'PATCH /events/endpoints/{id}': 'endpoint.changed',
  // The call sends a test and stores nothing.
  'POST /events/endpoints/{id}/test': ofData,
  'POST /events/deliveries/{id}/replay': 'delivery.replayed',
  'POST /events/endpoints/{id}/replay': 'endpoint.replayed',
  'DELETE /events/endpoints/{id}': 'endpoint.deleted',
  'POST /functions/deploys/plan': ofData,
  'POST /functions/deploys': 'function.deployed',
  // These two ask for what is so already.
  'POST /integrations/{key}/functions/{name}/rollback': ofData,
  'PATCH /integrations/{key}/functions/{name}': ofData,
  'PUT /integrations/{key}/functions/{name}/shipped': 'function.deployed',
  'DELETE /integrations/{key}/functions/{name}': 'function.removed',
  // Runs stand in the activity log.
  'POST /functions/syncs/trigger': ofData,
  'POST /functions/actions/trigger': ofData,
  'POST /functions/runs/{id}/cancel': ofData,
  'POST /functions/syncs/start': 'sync.started',
  'POST /functions/syncs/pause': 'sync.paused',
  'PUT /functions/syncs/frequency': 'sync.frequency_changed',
  'POST /functions/syncs/{name}/variants/{variant}': 'sync.variant_added',
  'DELETE /functions/syncs/{name}/variants/{variant}': 'sync.variant_removed',
  'PATCH /environment/settings': 'settings.changed',
  'PATCH /environment-variables': 'variables.changed',
  'PUT /environment-variables': 'variables.changed',
  'POST /environment/webhook-signing-key/rotate': 'signing_key.rotated',
  'POST /environment/api-keys': 'key.created',
  'PATCH /environment/api-keys/{id}': 'key.changed',
  'DELETE /environment/api-keys/{id}': 'key.revoked',
  'POST /tickets': 'ticket.created',
  'POST /tickets (to write)': 'ticket.created',
  'POST /proxy/v4/spreadsheets': ofData,
  'POST /v4/spreadsheets': ofData,
};

/** All entries of `dev`, newest first, page by page. */
async function listed(query = '', options: { key?: string } = {}): Promise<Entry[]> {
  const entries: Entry[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const path = `/audit?limit=7${query}${cursor && `&cursor=${cursor}`}`;
    const { status, body, text } = await trellis.call('GET', path, options);
    assert.equal(status, 200, text);
    entries.push(...(body.entries as Entry[]));
    cursor = body.next_cursor as string | null;
  }
  return entries;
}

test('each route that changes something leaves one entry, which names the key, and no other route does', async () => {
  const changing = Object.keys(scenarios).filter((name) => !/^(GET|HEAD) /.test(name));
  assert.deepEqual(new Set(changing.map(presentName)), new Set(Object.keys(actions)));
  for (const [name, { request, right }] of Object.entries(scenarios)) {
    const { path, ...options } = request(given);
    const before = await listed();
    const { status, text } = await trellis.call(name.split(' ', 1)[0]!, path, options);
    assert.equal(status, right, `${name}: ${text}`);
    const entries = (await listed()).slice(0, -before.length);
    // It comes after its successor, which has deployed the same functions.
    const expected = name === 'POST /sync/deploy' ? undefined : actions[presentName(name)];
    assert.deepEqual(
      entries.map(({ actor, action }) => `${actor} ${action}`),
      expected === undefined ? [] : [`key:1 ${expected}`],
      name,
    );
  }
});

test('entries are found by who, what, which and when, in one order, and those of other environments are not', async () => {
  const all = await listed();
  const positions = all.map(({ position }) => position);
  assert.deepEqual(
    positions,
    positions.toSorted((a, b) => b - a),
  );
  const created = all.filter(({ action }) => action === 'integration.created');
  assert.ok(created.length >= 2);
  assert.deepEqual(await listed('&action=integration.created'), created);
  assert.deepEqual(
    await listed('&target=quick'),
    all.filter(({ target }) => target === 'quick'),
  );
  assert.deepEqual(
    await listed('&actor=key:1&action=key.created'),
    all.filter(({ actor, action }) => actor === 'key:1' && action === 'key.created'),
  );
  assert.deepEqual(await listed('&actor=key:9999'), []);
  const at = created[0]!.created_at;
  assert.deepEqual(
    await listed(`&to=${at}`),
    all.filter(({ created_at: time }) => time < at),
  );
  assert.deepEqual(
    await listed(`&from=${at}`),
    all.filter(({ created_at: time }) => time >= at),
  );
  const key = trellis.keys.prod;
  await trellis.call('POST', '/connect/sessions', { key, body: { end_user: { id: 'p' } } });
  assert.deepEqual(
    (await listed('', { key })).map(({ action }) => action),
    ['connect_session.created'],
  );
  for (const query of ['from=0000-01-01T00:00:00Z', 'to=9999-12-31T23:59:59Z'])
    assert.equal((await trellis.call('GET', `/audit?${query}`)).status, 200, query);
  for (const query of [
    'cursor=99999999999999999999',
    'cursor=0',
    'cursor=x',
    'from=yesterday',
    'limit=0',
    'whose=me',
  ]) {
    assert.equal((await trellis.call('GET', `/audit?${query}`)).status, 400, query);
  }
});

test('a session that ends itself is the actor of its entry', async () => {
  const made = await trellis.call('POST', '/connect/sessions', { body: { end_user: { id: 'e' } } });
  const { token } = made.body.data as { token: string };
  assert.equal((await trellis.call('DELETE', '/connect/session', { key: token })).status, 204);
  const [ended, created] = await listed();
  assert.equal(created!.action, 'connect_session.created');
  assert.deepEqual(
    [ended!.action, ended!.actor, ended!.target],
    ['connect_session.ended', created!.target, created!.target],
  );
});

test('entries stay when their environment is deleted', async () => {
  const count = () =>
    trellis.db.query(
      `select count(*) as count
       from audit
       where environment_id is not null and environment_id not in (select id from environment)`,
    );
  assert.deepEqual(await count(), [{ count: 0 }]);
  await trellis.db.query(`delete from environment where name = 'prod'`);
  assert.deepEqual(await count(), [{ count: 1 }]);
});
