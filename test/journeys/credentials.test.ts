import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

/** What a connection goes through after it was made, with a provider that misbehaves on demand. */
let trellis: TestTrellis;
let connectionId: string;
let headers: Record<string, string>;
const inQuery = 'provider_config_key=google-sheet';

before(async () => {
  trellis = await openTrellis();
  await trellis.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'google-sheet' },
  });
  // Calls here are many, and none may wait for a quota.
  await trellis.call('PATCH', '/integrations/google-sheet', {
    body: { integration_config: { quota: 'off' } },
  });
});
after(() => trellis.close());
beforeEach(async () => {
  await trellis.control('DELETE', 'faults');
  ({ connectionId, headers } = await connect(trellis));
});

const read = (query = '') => trellis.call('GET', `/connections/${connectionId}?${inQuery}${query}`);
const proxied = () => trellis.call('GET', '/proxy/v4/spreadsheets/none', { headers });
const tokenCalls = async () => Number((await trellis.control('GET', 'calls'))['POST /token'] ?? 0);
/** Moves the expiry in our books, as time would. */
const expireIn = async (seconds: number) => {
  const { body } = await read('&refresh_token=true');
  const credentials = body.credentials as { access_token: string; refresh_token: string };
  await trellis.call('POST', '/connections', {
    body: {
      provider_config_key: 'google-sheet',
      connection_id: connectionId,
      credentials: {
        type: 'OAUTH2',
        access_token: credentials.access_token,
        refresh_token: credentials.refresh_token,
        expires_at: new Date(Date.now() + seconds * 1000).toISOString(),
      },
    },
  });
};
const eventsOf = async (type: string) => {
  const { body } = await trellis.call('GET', '/events?limit=1000');
  return (body.events as { type: string; data: { connection_id: string } }[]).filter(
    (event) => event.type === type && event.data.connection_id === connectionId,
  );
};

test('a connection carries account, scopes and expiry', async () => {
  const { body } = await read();
  assert.equal((body.account as { email: string }).email, 'ada@example.com');
  assert.match((body.account as { id: string }).id, /^\d+$/);
  const { requested, granted } = body.scopes as { requested: string[]; granted: string[] };
  assert.ok(requested.includes('https://www.googleapis.com/auth/spreadsheets'));
  assert.ok(granted.includes('https://www.googleapis.com/auth/spreadsheets'));
  const { expires_at } = body.credentials as { expires_at: string };
  assert.ok(Date.parse(expires_at) > Date.now() + 3_000_000);
  assert.equal((await eventsOf('connection.created')).length, 1);
});

test('what an answer shows of a connection is what the scopes of its key allow, in the raw answer too', async () => {
  const secrets = {
    access_token: 'raw-access-token-of-some-length',
    id_token: 'raw-id-token-of-some-length',
    refresh_token: 'raw-refresh-token-of-some-length',
    refreshToken: 'raw-wrapped-refresh-token-of-length',
    client_secret: 'raw-client-secret-of-some-length',
  };
  const { refreshToken, ...plain } = secrets;
  const { access_token, refresh_token } = secrets;
  const raw = { ...plain, team: 'T', wrapped: [{ refreshToken, client_secret: plain.client_secret }] };
  const credentials = { type: 'OAUTH2', access_token, refresh_token, raw };
  const body = { provider_config_key: 'google-sheet', connection_id: 'with-raw', credentials };
  const imported = await trellis.call('POST', '/connections', {
    key: await trellis.keyWith('connections:write'),
    body,
  });
  assert.equal(imported.status, 201, imported.text);
  const shownIn = (text: string) =>
    Object.entries(secrets).flatMap(([name, secret]) => (text.includes(secret) ? [name] : []));
  const access = ['access_token', 'id_token'];
  assert.deepEqual(shownIn(imported.text), access);

  const renewing = [...access, 'refresh_token', 'refreshToken'];
  const more = ['connections:credentials', 'connections:refresh_tokens', 'integrations:secrets'];
  for (let chosen = 0; chosen < 2 ** more.length; chosen += 1) {
    const scopes = ['connections:read', ...more.filter((_, index) => chosen & (1 << index))];
    const key = await trellis.keyWith(...scopes);
    for (const path of ['connections', 'connection']) {
      for (const asks of [false, true]) {
        const query = `${inQuery}${asks ? '&refresh_token=true' : ''}`;
        const { status, text } = await trellis.call('GET', `/${path}/with-raw?${query}`, { key });
        const mayRenew = asks && scopes.includes('connections:refresh_tokens');
        const expected = !scopes.includes('connections:credentials') ? [] : mayRenew ? renewing : access;
        assert.deepEqual([status, shownIn(text)], [200, expected], `${scopes} ${query}`);
      }
    }
    const listed = await trellis.call('GET', '/connections', { key });
    const health = await trellis.call('GET', `/connections/with-raw/health?${inQuery}`, { key });
    assert.deepEqual(shownIn(listed.text + health.text), []);
  }
});

describe('refresh', () => {
  test('a token with more than five minutes left is not refreshed', async () => {
    await expireIn(400);
    const before = await tokenCalls();
    await read();
    assert.equal(await tokenCalls(), before);
  });

  test('two hundred calls at expiry share one refresh, and all succeed', async () => {
    await expireIn(-1);
    const before = await tokenCalls();
    const answers = await Promise.all(Array.from({ length: 200 }, proxied));
    assert.deepEqual(
      [...new Set(answers.map(({ status }) => status))],
      [404],
      "all reached the provider's 404",
    );
    assert.equal(await tokenCalls(), before + 1);
  });

  test('a 401 from the provider leads to one refresh and one replay, which the caller does not see', async () => {
    await trellis.control('POST', 'faults', { case: 'access_token_ended', times: 1 });
    const before = await tokenCalls();
    assert.equal((await proxied()).status, 404);
    assert.equal(await tokenCalls(), before + 1);
  });

  test('an outage of the token endpoint does not touch a token that is still good', async () => {
    await expireIn(100);
    await trellis.control('POST', 'faults', { case: 'token_503' });
    assert.equal((await proxied()).status, 404);
    assert.equal(((await read()).body.health as { status: string }).status, 'active');
  });

  test('an outage after expiry is 503 with Retry-After, and no judgement on the connection', async () => {
    await expireIn(-1);
    for (const fault of ['token_503', 'token_html_403', 'token_reset']) {
      await trellis.control('DELETE', 'faults');
      await trellis.control('POST', 'faults', { case: fault });
      const answer = await proxied();
      assert.equal(answer.status, 503, fault);
      assert.ok(Number(answer.headers.get('retry-after')) > 0);
      assert.equal(answer.headers.get('x-trellis-error'), 'connection_refresh_failed');
      await trellis.advance(600);
    }
    await trellis.control('DELETE', 'faults');
    assert.equal((await proxied()).status, 404);
    assert.deepEqual(await eventsOf('connection.needs_reauth'), []);
  });

  test('an outage of six hours changes no connection, and one revocation is reported once', async () => {
    await trellis.control('POST', 'faults', { case: 'token_503' });
    for (let minute = 15; minute <= 360; minute += 15) {
      await trellis.advance(15 * 60);
      assert.equal((await proxied()).status, minute < 60 ? 404 : 503, `after ${minute} minutes`);
      await trellis.runJob('connections.keepalive');
    }
    await trellis.control('DELETE', 'faults');
    await trellis.advance(15 * 60);
    assert.equal((await proxied()).status, 404);
    assert.deepEqual(await eventsOf('connection.needs_reauth'), []);
    assert.equal((await eventsOf('connection.refresh_delayed')).length, 1);
    assert.equal((await eventsOf('connection.recovered')).length, 1);

    await trellis.control('POST', 'faults', { case: 'refresh_revoked' });
    await trellis.advance(2 * 3600);
    for (let call = 0; call < 5; call += 1) assert.equal((await proxied()).status, 424);
    assert.equal((await eventsOf('connection.needs_reauth')).length, 1);
  });
});

describe('a dead connection', () => {
  test('reports its cause once, and the proxy answers 424 in the format of the provider', async () => {
    await expireIn(-1);
    await trellis.control('POST', 'faults', { case: 'refresh_revoked' });
    const answer = await proxied();
    assert.equal(answer.status, 424);
    assert.equal(answer.headers.get('x-trellis-error'), 'connection_needs_reauth');
    const error = answer.body.error as { code: number; status: string; details: { reason: string }[] };
    assert.equal(error.code, 424);
    assert.equal(error.details[0]?.reason, 'CONNECTION_NEEDS_REAUTH');
    for (let again = 0; again < 3; again += 1) assert.equal((await proxied()).status, 424);
    const [event, ...more] = await eventsOf('connection.needs_reauth');
    assert.equal((event!.data as unknown as { cause: string }).cause, 'grant_dead');
    assert.deepEqual(more, []);
    const calls = await tokenCalls();
    const shown = await read();
    assert.equal(shown.status, 424);
    assert.equal((shown.body.error as { code: string }).code, 'invalid_credentials');
    assert.equal(await tokenCalls(), calls, 'a dead grant is not tried again');
    const health = await trellis.call('GET', `/connections/${connectionId}/health?${inQuery}`);
    assert.equal(health.body.status, 'needs_reauth');
    assert.ok(String(health.body.next_step).length > 20);
  });

  test('is tried by a requested refresh, and by nothing else', async () => {
    await expireIn(-1);
    await trellis.control('POST', 'faults', { case: 'refresh_revoked' });
    assert.equal((await proxied()).status, 424);
    const calls = await tokenCalls();
    assert.equal((await read('&force_refresh=true')).status, 424);
    assert.equal(await tokenCalls(), calls);
    const refreshed = await trellis.call('POST', `/connections/${connectionId}/refresh?${inQuery}`);
    assert.equal(refreshed.status, 424);
    assert.equal(await tokenCalls(), calls + 1);
  });

  test('is 424 from the first call on, also if the provider answers 401', async () => {
    await trellis.control('POST', 'faults', { case: 'access_token_ended', times: 1 });
    await trellis.control('POST', 'faults', { case: 'refresh_revoked' });
    const answers = [await proxied(), await proxied()];
    assert.deepEqual(
      answers.map(({ status }) => status),
      [424, 424],
    );
  });

  test('has another cause when the administrator blocks it, or limits the session', async () => {
    for (const [fault, cause, status] of [
      ['refresh_admin_policy', 'blocked_by_admin', 'blocked'],
      ['refresh_invalid_rapt', 'session_policy', 'needs_reauth'],
    ] as const) {
      ({ connectionId, headers } = await connect(trellis));
      await expireIn(-1);
      await trellis.control('DELETE', 'faults');
      await trellis.control('POST', 'faults', { case: fault });
      assert.equal((await proxied()).status, 424);
      const health = await trellis.call('GET', `/connections/${connectionId}/health?${inQuery}`);
      assert.deepEqual([health.body.cause, health.body.status], [cause, status]);
      await trellis.control('DELETE', 'faults');
    }
  });

  test('a wrong client secret is a fault of the integration and leaves the connection alone', async () => {
    await expireIn(-1);
    await trellis.control('POST', 'faults', { case: 'token_invalid_client' });
    const answer = await proxied();
    assert.equal(answer.status, 424);
    assert.equal(answer.headers.get('x-trellis-error'), 'integration_misconfigured');
    await trellis.control('DELETE', 'faults');
    // A refused client is tried again after a minute, not at every call.
    await trellis.advance(61);
    assert.equal((await proxied()).status, 404);
  });
});

test('a deleted connection is refused at once, and nothing it sealed can be opened again', async () => {
  await trellis.call('POST', '/records', { headers, body: { model: 'M', records: [{ id: 'x', a: 1 }] } });
  assert.equal((await trellis.call('DELETE', `/connections/${connectionId}?${inQuery}`)).status, 200);
  assert.equal((await proxied()).status, 400);
  assert.equal((await trellis.call('GET', '/records?model=M', { headers })).status, 400);
  const [row] = await trellis.db.query<{
    data_key: string | null;
    account_email: string | null;
    tags: object;
  }>('select data_key, account_email, tags from connection where connection_id = $1', [connectionId]);
  assert.deepEqual(row, { data_key: null, account_email: null, tags: {} });
  assert.equal((await eventsOf('connection.deleted')).length, 1);
});

test('twenty deletions at once: one succeeds, one event', async () => {
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => trellis.call('DELETE', `/connections/${connectionId}?${inQuery}`)),
  );
  assert.equal(answers.filter(({ status }) => status === 200).length, 1);
  assert.ok(answers.every(({ status }) => status === 200 || status === 400));
  assert.equal((await eventsOf('connection.deleted')).length, 1);
});

test('credentials of a database are kept and shown, and calls to it are refused', async () => {
  const made = await trellis.call('POST', '/integrations', {
    body: { provider: 'postgres', unique_key: 'warehouse' },
  });
  assert.equal(made.status, 200, made.text);
  const stored = await trellis.call('POST', '/connections', {
    body: {
      provider_config_key: 'warehouse',
      connection_id: 'db',
      credentials: { type: 'BASIC', username: 'ada', password: 'password-of-the-database' },
      connection_config: { host: 'db.example.com', database: 'sales' },
    },
  });
  assert.equal(stored.status, 201, stored.text);
  const { body } = await trellis.call('GET', '/connections/db?provider_config_key=warehouse');
  assert.deepEqual(
    [body.connection_config, (body.credentials as { password: string }).password],
    [{ host: 'db.example.com', database: 'sales' }, 'password-of-the-database'],
  );
  const call = { headers: { 'connection-id': 'db', 'provider-config-key': 'warehouse' } };
  const { status, body: refusal } = await trellis.call('GET', '/proxy/anything', call);
  assert.deepEqual([status, (refusal.error as { code: string }).code], [400, 'unsupported_provider']);
  const { body: provider } = await trellis.call('GET', '/providers/postgres');
  assert.equal((provider.data as { proxy?: object }).proxy, undefined);
});
