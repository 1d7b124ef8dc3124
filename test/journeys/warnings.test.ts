// Slow: its tests take seconds each.

import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

/** What is told before a connection dies: grants that end on a day, and accounts with too many of them. */
const inQuery = 'provider_config_key=google-sheet';
const dayS = 86_400;
let trellis: TestTrellis;
let account: string;
let made = 0;
before(async () => {
  trellis = await openTrellis();
});
after(() => trellis.close());
beforeEach(async () => {
  made += 1;
  account = `person-${made}@example.com`;
  await trellis.control('POST', 'accounts', { email: account });
});

type Told = { type: string; data: Record<string, unknown> };
const told = (...types: string[]) =>
  trellis.db.query<Told>(
    `select type, data from event where type = any($1) and data->'account'->>'email' = $2 order by created_at`,
    [types, account],
  );
const health = async (connectionId: string) => {
  const { body } = await trellis.call('GET', `/connections/${connectionId}/health?${inQuery}`);
  return body as { status: string; cause: string; warnings: Record<string, unknown>[] };
};
const refresh = (connectionId: string) =>
  trellis.call('POST', `/connections/${connectionId}/refresh?${inQuery}`);

/** The whole dance, on a new session unless it renews a connection; the callback's status. */
async function walk({ renews, forS }: { renews?: string; forS?: number } = {}): Promise<number> {
  const target = { integration_id: 'google-sheet', connection_id: renews };
  const session =
    renews === undefined
      ? await trellis.call('POST', '/connect/sessions', { body: { tags: {} } })
      : await trellis.call('POST', '/connect/sessions/reconnect', { body: target });
  const { token } = session.body.data as { token: string };
  const begun = await fetch(`${trellis.baseUrl}/oauth/connect/google-sheet?connect_session_token=${token}`, {
    redirect: 'manual',
  });
  const cookie = begun.headers.getSetCookie()[0]?.split(';', 1)[0] ?? '';
  const { redirect } = await trellis.control('POST', 'authorize', {
    url: begun.headers.get('location'),
    account,
    ...(forS !== undefined && { for_s: forS }),
  });
  const landed = await fetch(String(redirect), { redirect: 'manual', headers: { cookie } });
  await landed.body?.cancel();
  return landed.status;
}

describe('a grant that ends on a day', () => {
  test('of a project in testing: shown from the start, reported 48 hours before, once per grant', async (context) => {
    const project = { project_number: '100000000001' };
    context.after(() => trellis.control('POST', 'projects', { ...project, publishing: 'production' }));
    await trellis.control('POST', 'projects', { ...project, publishing: 'testing', test_users: [account] });
    const { connectionId } = await connect(trellis, { account });
    const [warning, ...others] = (await health(connectionId)).warnings;
    assert.deepEqual(others, []);
    assert.equal(warning?.code, 'testing_expiry');
    const leftS = (Date.parse(String(warning.at)) - Date.now()) / 1000;
    assert.ok(Math.abs(leftS - 604_799) < 60);
    await trellis.advance(4.9 * dayS);
    await trellis.runJob('connections.expiry');
    assert.deepEqual(await told('connection.expiring'), []);
    await trellis.advance(0.2 * dayS);
    assert.equal((await refresh(connectionId)).status, 200);
    await trellis.runJob('connections.expiry');
    await trellis.runJob('connections.expiry');
    const [event, ...more] = await told('connection.expiring');
    assert.deepEqual(more, []);
    assert.equal(event?.data.cause, 'testing_expiry');
    const movedMs = Date.parse(String(event.data.expires_at)) - Date.parse(String(warning.at));
    assert.ok(Math.abs(movedMs) < 60_000, 'the provider restarts the remaining time at each refresh');

    await trellis.advance(2 * dayS);
    assert.equal((await refresh(connectionId)).status, 424);
    const { status, cause, warnings } = await health(connectionId);
    assert.deepEqual([status, cause, warnings], ['needs_reauth', 'testing_expired', []]);
    assert.equal(await walk({ renews: connectionId }), 200);
    await trellis.advance(5.5 * dayS);
    await trellis.runJob('connections.expiry');
    assert.equal((await told('connection.expiring')).length, 2);
  });

  test('that ends within 48 hours when it is made: reported at once', async () => {
    assert.equal(await walk({ forS: dayS }), 200);
    const [event, ...more] = await told('connection.expiring');
    assert.deepEqual(more, []);
    assert.equal(event?.data.cause, 'time_based_expiry');
    await trellis.runJob('connections.expiry');
    assert.equal((await told('connection.expiring')).length, 1);
  });

  test('is not warned of where the provider names none', async () => {
    const { connectionId } = await connect(trellis, { account });
    assert.deepEqual((await health(connectionId)).warnings, []);
  });
});

test('at 80 of 100 grants the account is reported, at 100 the connection that ends next, which then ends', async () => {
  await connect(trellis, { account });
  for (let count = 2; count <= 100; count += 1) assert.equal(await walk(), 200);
  const rows = await trellis.db.query<{ id: string }>(
    'select connection_id as id from connection where account_email = $1 order by connection.id',
    [account],
  );
  const [first = '', second = '', third = ''] = rows.map(({ id }) => id);
  const events = async () =>
    (await told('connection.token_slots')).map(({ data }) => [data.connection_id, data.used, data.is_next]);
  const eightieth = rows[79]?.id;
  assert.deepEqual(await events(), [
    [eightieth, 80, false],
    [first, 100, true],
  ]);
  await trellis.runJob('connections.token-slots');
  await trellis.advance(2);
  const [warning] = (await health(third)).warnings;
  assert.deepEqual([warning?.code, warning?.evidence], ['token_slots', { used: 100, limit: 100 }]);
  assert.match(String(warning?.next_step), /100 of the 100 active grants/);

  // Ours and the provider's books agree: the one that was named is gone, and no other.
  assert.equal(await walk(), 200);
  assert.equal((await refresh(first)).status, 424);
  assert.equal((await refresh(second)).status, 200);
  assert.deepEqual((await events()).at(-1), [second, 100, true]);
  // Reconnecting the one that is next pushes out nothing but its own old token.
  assert.equal(await walk({ renews: second }), 200);
  assert.equal((await refresh(second)).status, 200);
  assert.equal((await refresh(third)).status, 200);
});
