import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

type Session = {
  id: number;
  state: string;
  end_user: { id: string; email: string | null } | null;
  allowed_integrations: string[] | null;
  reconnects: object | null;
  connection: object | null;
  created_by: string | null;
  used_at: string | null;
};

let trellis: TestTrellis;
before(async () => {
  trellis = await openTrellis();
});
after(() => trellis.close());

const newSession = async (body: object = { end_user: { id: 'eve' } }, key = trellis.keys.dev) => {
  const made = await trellis.call('POST', '/connect/sessions', { body, key });
  assert.equal(made.status, 201, made.text);
  return (made.body.data as { token: string }).token;
};
const list = async (query = '', key = trellis.keys.dev) => {
  const { status, body, text } = await trellis.call('GET', `/connect/sessions${query}`, { key });
  assert.equal(status, 200, text);
  return body as { data: Session[]; next_before: string | null; next_cursor: string | null };
};
const choicesOf = (token: string) => trellis.call('GET', '/connect/session/choices', { key: token });

test('sessions are listed with their state, end user and creator, and without tokens', async () => {
  const { connectionId: id } = await connect(trellis);
  const made = { integration_id: 'google-sheet', connection_id: id };
  await trellis.call('POST', '/connect/sessions/reconnect', { body: made });
  const token = await newSession({ end_user: { id: 'eve', email: 'eve@example.com' } });
  // Gives the entries of the audit log their positions.
  await trellis.call('GET', '/audit');
  const { status, body, text } = await trellis.call('GET', '/connect/sessions');
  assert.equal(status, 200);
  assert.ok(!text.includes(token.slice(-64)));
  const [open, renewal, used] = body.data as [Session, Session, Session];
  assert.deepEqual(
    [open.state, open.end_user, open.allowed_integrations, open.connection, open.created_by],
    ['open', { id: 'eve', email: 'eve@example.com', display_name: null }, null, null, 'key:1'],
  );
  assert.deepEqual([renewal.state, renewal.reconnects, renewal.connection], ['open', made, null]);
  assert.deepEqual(
    [used.state, used.connection, used.allowed_integrations, used.used_at !== null],
    ['used', made, ['google-sheet'], true],
  );
});

test('the list has pages, and no session of another environment', async () => {
  await newSession(undefined, trellis.keys.prod);
  const all = (await list()).data.map(({ id }) => id);
  assert.deepEqual(
    all,
    all.toSorted((one, other) => other - one),
  );
  const first = await list('?limit=1');
  assert.deepEqual([first.data[0]?.id, first.next_before], [all[0], String(all[0])]);
  const rest = await list(`?limit=200&cursor=${first.next_cursor}`);
  assert.deepEqual([rest.data.map(({ id }) => id), rest.next_cursor], [all.slice(1), null]);
  assert.equal((await list('', trellis.keys.prod)).data.length, 1);
  for (const query of ['before=0', 'before=x', 'limit=0', 'limit=201', 'state=open'])
    assert.equal((await trellis.call('GET', `/connect/sessions?${query}`)).status, 400, query);
});

test('a revoked session is rejected and gone, for its own environment only', async () => {
  const token = await newSession();
  const [{ id } = { id: 0 }] = (await list()).data;
  const revoke = (key: string) => trellis.call('DELETE', `/connect/sessions/${id}`, { key });
  assert.equal((await revoke(trellis.keys.prod)).status, 404);
  assert.equal((await revoke(await trellis.keyWith('connections:read'))).status, 403);
  assert.equal((await choicesOf(token)).status, 200);
  assert.equal((await revoke(trellis.keys.dev)).status, 200);
  assert.equal((await choicesOf(token)).status, 401);
  assert.equal((await revoke(trellis.keys.dev)).status, 404);
  assert.ok(!(await list()).data.some((one) => one.id === id));
});

test('of twenty revocations at once one finds the session', async () => {
  await newSession();
  const [{ id } = { id: 0 }] = (await list()).data;
  const all = Array.from({ length: 20 }, () => trellis.call('DELETE', `/connect/sessions/${id}`));
  const statuses = (await Promise.all(all)).map(({ status }) => status);
  assert.deepEqual(statuses.toSorted(), [200, ...Array.from({ length: 19 }, () => 404)]);
});

test('an expired session is listed as expired', async () => {
  await newSession();
  await trellis.advance(31 * 60);
  const [newest] = (await list()).data;
  assert.equal(newest?.state, 'expired');
});
