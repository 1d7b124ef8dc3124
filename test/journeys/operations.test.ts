// Operations of modules other than the proxy in the activity log.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connect, openTrellis, type TestTrellis, visit } from '../support/trellis.ts';

let trellis: TestTrellis;
let connectionId: string;
let headers: Record<string, string>;
before(async () => {
  trellis = await openTrellis();
  ({ connectionId, headers } = await connect(trellis));
});
after(() => trellis.close());

type Line = Record<string, unknown> & { id: string; details: Record<string, unknown> };
type Message = { level: string; message: string; details: Record<string, unknown> };

/** The newest operations of a type, once there are so many, with their messages. */
async function logged(type: string, count: number): Promise<(Line & { messages: Message[] })[]> {
  for (;;) {
    const { status, body } = await trellis.call('GET', `/operations?type=${type}`);
    assert.equal(status, 200);
    const lines = body.operations as Line[];
    if (lines.length < count) {
      await new Promise((resolve) => setTimeout(resolve, 10));
      continue;
    }
    return Promise.all(
      lines.map(async ({ id }) => (await trellis.call('GET', `/operations/${id}`)).body as never),
    );
  }
}

test('each trip to a provider is logged, with what it made or why it made nothing', async () => {
  const [made] = await logged('connect', 1);
  assert.deepEqual(
    [made!.status, made!.connection_id, made!.provider_config_key, made!.error_code, made!.messages],
    ['success', connectionId, 'google-sheet', null, []],
  );
  assert.match(String(made!.actor), /^session:\d+$/);
  assert.ok(Number(made!.duration_ms) >= 0);

  const session = await trellis.call('POST', '/connect/sessions', { body: { end_user: { id: 'ada' } } });
  const { token } = session.body.data as { token: string };
  const begun = await visit(
    trellis,
    `${trellis.baseUrl}/oauth/connect/google-sheet?connect_session_token=${token}`,
  );
  const { redirect } = await trellis.control('POST', 'authorize', {
    url: begun.headers.get('location'),
    account: 'ada@example.com',
    deny: true,
  });
  const cookies = begun.headers.getSetCookie().map((line) => line.split(';', 1)[0]);
  assert.notEqual((await visit(trellis, String(redirect), cookies.join('; '))).status, 200);
  const [refused] = await logged('connect', 2);
  assert.deepEqual(
    [refused!.status, refused!.connection_id, refused!.error_code],
    ['failed', null, 'access_denied'],
  );
  assert.match(refused!.messages[0]!.message, /did not allow access/);
});

test('a form that was filled in is logged, whether or not it made a connection', async () => {
  await trellis.call('POST', '/integrations', {
    body: {
      provider: 'private-api-key',
      unique_key: 'by-key',
      integration_config: { base_url: 'https://api.example.com' },
    },
  });
  const session = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: ['by-key'] },
  });
  const { token } = session.body.data as { token: string };
  const fill = (body: object) =>
    trellis.call('POST', `/api-auth/api-key/by-key?connect_session_token=${token}`, { key: undefined, body });
  assert.equal((await fill({ apiKey: '' })).status, 400);
  const filled = await fill({ apiKey: 'an-api-key-of-ada' });
  assert.equal(filled.status, 200, filled.text);
  const [made, refused] = (await logged('connect', 4)).filter(
    ({ provider_config_key: key }) => key === 'by-key',
  );
  assert.deepEqual(
    [made!.status, made!.connection_id, made!.details],
    ['success', filled.body.connectionId, { mode: 'API_KEY' }],
  );
  assert.deepEqual([refused!.status, refused!.error_code], ['failed', 'invalid_body']);
});

test("each attempt to renew credentials is logged, with the provider's response", async () => {
  const refresh = () =>
    trellis.call('POST', `/connections/${connectionId}/refresh?provider_config_key=google-sheet`);
  assert.equal((await refresh()).status, 200);
  const [renewed] = await logged('refresh', 1);
  assert.deepEqual(
    [renewed!.status, renewed!.connection_id, renewed!.actor, renewed!.messages],
    ['success', connectionId, 'service', []],
  );
  await trellis.control('POST', 'faults', { case: 'token_503', times: 10 });
  assert.notEqual((await refresh()).status, 200);
  await trellis.control('DELETE', 'faults');
  const [failed] = await logged('refresh', 2);
  assert.deepEqual([failed!.status, failed!.error_code], ['failed', 'connection_refresh_failed']);
  assert.deepEqual(failed!.messages[0], {
    level: 'warn',
    message: 'the provider returned no new credentials',
    details: { kind: 'transient', error: 'server_error', http_status: 503 },
    deleted: false,
  });
  assert.equal(failed!.messages.at(-1)!.level, 'error');
  // A caller that waits for a running refresh starts none: all ten arrive during the first one.
  await trellis.advance(60);
  await trellis.control('POST', 'faults', { case: 'token_slow_after', delay_ms: 2_000, times: 1 });
  await Promise.all(Array.from({ length: 10 }, refresh));
  assert.equal((await logged('refresh', 3)).length, 3);
});

test('each call that changes records is logged once, with its counts', async () => {
  const call = async (method: string, path: string, body: object, status = 200) => {
    const answer = await trellis.call(method, path, { headers, body: { model: 'Row', ...body } });
    assert.equal(answer.status, status, answer.text);
    return answer;
  };
  const { headers: answered } = await call('POST', '/records', {
    records: [{ id: 'a' }, { id: 'b' }, { id: 'c' }],
  });
  await call('POST', '/records', { records: [{ id: 'a' }, { id: 'b', is: 'new' }] });
  await call('POST', '/records', { records: [{ id: 'a' }, 'no record'] }, 400);
  await call('PATCH', '/records', { records: [{ id: 'a', more: 1 }, { id: 'none' }] });
  await call('POST', '/records/delete', { ids: ['c'] });
  const { body } = await trellis.call('GET', '/records?model=Row', { headers });
  const last = (body.records as { _trellis_metadata: { cursor: string } }[]).at(-1)!;
  await call('PATCH', '/records/prune', { until_cursor: last._trellis_metadata.cursor });
  const of = async (type: string, count: number) =>
    (await logged(type, count)).map((line) => [
      line.status,
      line.error_code,
      line.connection_id,
      line.details,
    ]);
  const row = { model: 'Row', variant: 'base' };
  const none = { added: 0, updated: 0, unchanged: 0, restored: 0 };
  assert.deepEqual(await of('records.save', 3), [
    ['failed', 'invalid_record', connectionId, row],
    ['success', null, connectionId, { ...row, ...none, updated: 1, unchanged: 1 }],
    ['success', null, connectionId, { ...row, ...none, added: 3 }],
  ]);
  assert.equal((await logged('records.save', 3)).at(-1)!.request_id, answered.get('x-request-id'));
  assert.deepEqual(await of('records.update', 1), [
    ['success', null, connectionId, { ...row, updated: 1, unchanged: 0, left: 1 }],
  ]);
  assert.deepEqual(await of('records.delete', 1), [['success', null, connectionId, { ...row, count: 1 }]]);
  assert.deepEqual(await of('records.prune', 1), [
    ['success', null, connectionId, { ...row, count: 3, has_more: false }],
  ]);
});

test('the records that retention pruned are logged in their environment', async () => {
  await trellis.call('PUT', '/records/retention', {
    body: { provider_config_key: 'google-sheet', prune_after_days: 1 },
  });
  await trellis.call('POST', '/records', {
    headers,
    body: { model: 'Old', records: [{ id: 'a' }, { id: 'b' }] },
  });
  await trellis.db.query(`update record set last_modified_at = last_modified_at - interval '2 days'`);
  await trellis.runJob('records.retention');
  const [line] = await logged('records.retention', 1);
  assert.deepEqual([line!.status, line!.actor, line!.details.pruned], ['success', 'retention', 2]);
  const { body } = await trellis.call('GET', '/operations?type=records.retention', {
    key: trellis.keys.prod,
  });
  assert.deepEqual(body.operations, []);
});
