import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

/** What lists tell beside the objects: when each was used, until when it holds, how many there are. */
let trellis: TestTrellis;
before(async () => {
  trellis = await openTrellis();
});
after(() => trellis.close());

type Listed = {
  connection_id: string;
  last_used_at: string | null;
  token: { refreshed_at: string; expires_at: string | null; refresh_expires_at: string | null } | null;
};
const list = async (query = '', key?: string) => {
  const answer = await trellis.call('GET', `/connections${query}`, key ? { key } : {});
  assert.equal(answer.status, 200, answer.text);
  return answer.body as { connections: Listed[]; total?: number };
};
const idsOf = ({ connections }: { connections: Listed[] }) => connections.map(({ connection_id: id }) => id);
async function until<T>(look: () => Promise<T>, isSo: (value: T) => boolean): Promise<T> {
  for (;;) {
    const value = await look();
    if (isSo(value)) return value;
    await sleep(10);
  }
}

test('a connection has the time of its last use and the validity of its token, never the token', async () => {
  const one = await connect(trellis);
  const two = await connect(trellis);
  const find = async (id: string) => (await list(`?connectionId=${id}`)).connections[0]!;
  const unused = await find(one.connectionId);
  assert.equal(unused.last_used_at, null);
  const { refreshed_at: from, expires_at: to } = unused.token!;
  assert.equal(Math.round((Date.parse(to!) - Date.parse(from)) / 60_000), 60);

  const started = Date.now();
  await trellis.call('GET', '/proxy/v4/spreadsheets/none', { headers: one.headers });
  const used = await until(
    () => find(one.connectionId),
    (found) => found.last_used_at !== null,
  );
  assert.ok(Date.parse(used.last_used_at!) >= started && Date.parse(used.last_used_at!) <= Date.now());
  assert.deepEqual(idsOf(await list('?sort=last_used')), [one.connectionId, two.connectionId]);
  assert.deepEqual(idsOf(await list()), [two.connectionId, one.connectionId]);

  // Reading the connection is not a use of it; reading its credentials is.
  const path = `/connections/${two.connectionId}?provider_config_key=google-sheet`;
  const seen = await trellis.call('GET', path, { key: await trellis.keyWith('connections:read') });
  assert.equal(seen.body.last_used_at, null);
  await trellis.call('GET', path);
  await until(
    () => find(two.connectionId),
    (found) => found.last_used_at !== null,
  );
});

test('lists are narrowed and counted on the server', async () => {
  const [kept, lost] = [await connect(trellis), await connect(trellis)];
  await trellis.db.query(`update connection set status = 'needs_reauth' where connection_id = $1`, [
    lost.connectionId,
  ]);
  assert.deepEqual(idsOf(await list('?status=needs_reauth')), [lost.connectionId]);
  assert.deepEqual(idsOf(await list('?status=needs_reauth,blocked')), [lost.connectionId]);
  const { connections, total } = await list('?status=active&count=true&limit=1');
  assert.deepEqual([connections.length, total], [1, 3]);
  assert.equal(connections[0]?.connection_id, kept.connectionId);
  assert.ok(!('total' in (await list())));
  assert.equal((await list('?count=true', trellis.keys.prod)).total, 0);
  for (const query of ['?status=dead', '?status=', '?status=active,', '?sort=name', '?count=yes']) {
    assert.equal((await trellis.call('GET', `/connections${query}`)).status, 400, query);
  }
});

test('integrations have their connections and the used quota, on request', async () => {
  const { headers } = await connect(trellis, { integration: 'counted' });
  const settings = { integration_config: { quota: 'ReadRequestsPerMinutePerProject=100' } };
  await trellis.call('PATCH', '/integrations/counted', { body: settings });
  for (let n = 0; n < 3; n += 1) await trellis.call('GET', '/proxy/v4/spreadsheets/none', { headers });
  type Usage = {
    connections: Record<string, number>;
    quota: { name: string; used: number; limit: number }[];
  };
  const one = async () => {
    const { body } = await trellis.call('GET', '/integrations/counted?include=usage');
    return (body.data as { usage: Usage }).usage;
  };
  // What a node holds for calls to come is counted, too, until it is given back.
  const { connections, quota } = await until(one, (usage) => usage.quota.some(({ used }) => used >= 3));
  assert.deepEqual(connections, { total: 1, active: 1, needs_reauth: 0, blocked: 0 });
  const limits = quota.map(({ name, limit }) => [name, limit]);
  assert.deepEqual(limits[0], ['ReadRequestsPerMinutePerProject', 100]);
  assert.equal(quota.find(({ name }) => name.startsWith('Write'))?.used, 0);

  const all = (await trellis.call('GET', '/integrations?include=usage')).body.data as {
    unique_key: string;
    usage: Usage;
  }[];
  const other = all.find(({ unique_key: key }) => key === 'google-sheet')!;
  assert.deepEqual(other.usage, {
    connections: { total: 4, active: 3, needs_reauth: 1, blocked: 0 },
    quota: [],
    sunsets: [],
  });
  const [plain] = (await trellis.call('GET', '/integrations')).body.data as object[];
  assert.ok(!('usage' in plain!));

  const made = await trellis.call('POST', '/connect/sessions', { body: { tags: {} } });
  const { token } = (made.body as { data: { token: string } }).data;
  const seen = await trellis.call('GET', '/integrations?include=usage', { key: token });
  assert.ok(!seen.text.includes('"usage"'), seen.text);
});

test('a connection is found by the tags of its current end user, after any change', async () => {
  await trellis.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'owned' },
  });
  const at = '?provider_config_key=owned';
  const ada = { id: 'ada', email: 'ada@customer.example', display_name: 'Ada' };
  const put = async (body: object) => {
    const credentials = { type: 'OAUTH2', access_token: crypto.randomUUID() };
    const { status, text } = await trellis.call('POST', '/connections', {
      body: { provider_config_key: 'owned', connection_id: 'one', credentials, ...body },
    });
    assert.equal(status, 201, text);
  };
  const change = (body: object) => trellis.call('PATCH', `/connections/one${at}`, { body });
  const tags = async () => (await trellis.call('GET', `/connections/one${at}`)).body.tags;
  const ofAda = { end_user_id: 'ada', end_user_email: ada.email, end_user_display_name: 'Ada' };
  const byAddress = async () => idsOf(await list(`?tags[end_user_email]=${ada.email}`));
  await put({ end_user: ada, tags: { plan: 'gold' } });
  assert.deepEqual(await tags(), { ...ofAda, plan: 'gold' });
  await put({ tags: { team: 'x' } });
  assert.deepEqual([await tags(), await byAddress()], [{ ...ofAda, team: 'x' }, ['one']]);
  await change({ end_user: { id: 'bob' } });
  assert.deepEqual([await tags(), await byAddress()], [{ end_user_id: 'bob', team: 'x' }, []]);
  await change({ end_user: ada, tags: { end_user_id: 'both' } });
  assert.deepEqual(await tags(), { end_user_id: 'both' }, 'tags that are sent are those that it has');
  await change({ end_user: { id: 'bob', display_name: 'Bob' } });
  assert.deepEqual(await tags(), { end_user_id: 'both', end_user_display_name: 'Bob' }, 'set by hand');
  await put({ end_user: ada });
  assert.deepEqual(await tags(), ofAda);
});
