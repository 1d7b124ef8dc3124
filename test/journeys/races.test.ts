import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type Answer, connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

/** Calls that change one thing at once: each is whole, or refused, and none is lost. */
let trellis: TestTrellis;
before(async () => {
  trellis = await openTrellis();
});
after(() => trellis.close());

const times = <T>(count: number, make: (index: number) => Promise<T>) =>
  Promise.all(Array.from({ length: count }, (_, index) => make(index)));
const quickstart = (key: string) =>
  trellis.call('POST', '/integrations/quickstart', { body: { provider: 'google-sheet', unique_key: key } });
const importOne = (key: string, id: string) =>
  trellis.call('POST', '/connections', {
    body: {
      provider_config_key: key,
      connection_id: id,
      credentials: { type: 'OAUTH2', access_token: 'a-token' },
      end_user: { id: 'eve', email: 'eve@example.com' },
    },
  });
const statuses = (answers: Answer[]) => [...new Set(answers.map(({ status }) => status))].sort();

test('a connection that was made is not lost to the deletion of its integration', async () => {
  for (let round = 0; round < 5; round += 1) {
    const key = `doomed-${round}`;
    await quickstart(key);
    const [deletion, ...made] = await Promise.all([
      trellis.call('DELETE', `/integrations/${key}`),
      ...Array.from({ length: 10 }, (_, index) => importOne(key, `c${index}`)),
    ]);
    const { body } = await trellis.call('GET', `/connections?integrationId=${key}`);
    const kept = (body.connections as unknown[]).length;
    assert.equal(kept, made.filter(({ status }) => status === 201).length);
    assert.ok(
      made.every(({ status }) => status === 201 || status === 404),
      String(statuses(made)),
    );
    assert.equal(deletion?.status, kept > 0 ? 400 : 200);
  }
});

test('a change that loses to a deletion leaves nothing personal behind', async () => {
  await quickstart('personal');
  for (let round = 0; round < 10; round += 1) {
    const id = `p${round}`;
    await importOne('personal', id);
    const path = `/connections/${id}?provider_config_key=personal`;
    const answers = await Promise.all([
      ...Array.from({ length: 4 }, () =>
        trellis.call('PATCH', path, { body: { tags: { name: 'eve' }, end_user: { id: 'eve' } } }),
      ),
      trellis.call('DELETE', path),
    ]);
    assert.ok(
      answers.every(({ status }) => status === 200 || status === 404),
      String(statuses(answers)),
    );
  }
  const rows = await trellis.db.query(
    "select id from connection where deleted_at is not null and (tags <> '{}' or end_user is not null)",
  );
  assert.deepEqual(rows, []);
});

test('changes of different fields at once are all kept', async () => {
  await quickstart('shared');
  const answers = await Promise.all([
    trellis.call('PATCH', '/integrations/shared', { body: { display_name: 'Renamed' } }),
    trellis.call('PATCH', '/integrations/shared', { body: { forward_webhooks: false } }),
    trellis.call('PATCH', '/integrations/shared', { body: { custom: { a: 'b' } } }),
  ]);
  assert.deepEqual(statuses(answers), [200]);
  const { body } = await trellis.call('GET', '/integrations/shared');
  const { display_name, forward_webhooks, custom } = body.data as Record<string, unknown>;
  assert.deepEqual([display_name, forward_webhooks, custom], ['Renamed', false, { a: 'b' }]);
});

test('an import that races a deletion makes the connection', async () => {
  await quickstart('again');
  for (let round = 0; round < 5; round += 1) {
    await importOne('again', 'same');
    const [deletion, ...imports] = await Promise.all([
      trellis.call('DELETE', '/connections/same?provider_config_key=again'),
      ...Array.from({ length: 10 }, () => importOne('again', 'same')),
    ]);
    assert.equal(deletion?.status, 200);
    assert.deepEqual(statuses(imports), [201]);
  }
});

test('twenty quickstarts at once make one integration', async () => {
  const answers = await times(20, () => quickstart('once'));
  assert.deepEqual(statuses(answers), [200]);
});

test('a trip that begins while its integration goes is refused, not broken', async () => {
  await quickstart('gone');
  const sessions = await times(10, () =>
    trellis.call('POST', '/connect/sessions', {
      body: { end_user: { id: 'u' }, allowed_integrations: ['gone'] },
    }),
  );
  const tokens = sessions.map(({ body }) => (body.data as { token: string }).token);
  const [, ...begun] = await Promise.all([
    trellis.call('DELETE', '/integrations/gone'),
    ...tokens.map((token) =>
      trellis.call('GET', `/oauth/connect/gone?connect_session_token=${token}`, { key: undefined }),
    ),
  ]);
  assert.ok(
    begun.every(({ status }) => status === 302 || (status >= 400 && status < 500)),
    String(statuses(begun)),
  );
});

test('credentials do not change between test and real ones under a connection', async () => {
  const { integration } = await connect(trellis, { integration: 'fixed' });
  const credentials = { type: 'OAUTH2', client_id: 'id', client_secret: 'secret' };
  const refused = await trellis.call('PATCH', `/integrations/${integration}`, { body: { credentials } });
  assert.equal(refused.status, 400, refused.text);
  const { errors } = refused.body.error as { errors: { path: string[] }[] };
  assert.deepEqual(errors[0]?.path, ['credentials', 'type']);
});

test('an event is in the feed as soon as its cause was answered', async () => {
  await quickstart('feed');
  await times(20, async (index) => {
    const id = `seen-${index}`;
    await importOne('feed', id);
    const { body } = await trellis.call('GET', '/events?limit=1000');
    const events = body.events as { type: string; data: { connection_id: string } }[];
    assert.ok(
      events.some(({ type, data }) => type === 'connection.created' && data.connection_id === id),
      id,
    );
  });
});
