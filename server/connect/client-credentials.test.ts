import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { findConnection } from '../connections/store/store.ts';
import { type ConnectBench, openConnectBench, sheetsScope } from './connect.fixture.ts';

let bench: ConnectBench;
let client: { client_id: string; client_secret: string };
before(async () => {
  bench = await openConnectBench();
  client = await bench.control('POST /clients', { redirect_uris: ['https://app.example/callback'] });
  client = { client_id: client.client_id, client_secret: client.client_secret };
  const { url } = bench.sandbox;
  const integrationConfig = { base_url: url, token_url: `${url}/token`, scope: sheetsScope };
  await bench.addIntegration('machine', 'private-client-credentials', { integrationConfig });
  await bench.addIntegration('checked', 'private-client-credentials', {
    integrationConfig: { ...integrationConfig, verification_path: '/v4/spreadsheets/none' },
  });
  await bench.addIntegration('ours', 'private-client-credentials', {
    integrationConfig,
    client: bench.sandbox.client,
  });
});
after(() => bench.end());
beforeEach(async () => {
  await bench.db.query('delete from event');
  await bench.db.query('delete from connection');
  await bench.control('DELETE /faults', {});
});

const submit = async (key: string, body?: unknown, { token = '', query = '' } = {}) =>
  bench.call(
    `POST /oauth2/auth/${key}?connect_session_token=${token || (await bench.session())}${query}`,
    body,
  );
const stored = async (key: string, connectionId: string) => {
  const { environment, reading } = bench;
  return findConnection(bench.db, {
    environmentId: environment.id,
    integrationKey: key,
    connectionId,
    ...reading,
  });
};
const strike = (name: string, more = {}) => bench.control('POST /faults', { case: name, ...more });

describe('a client of the connection', () => {
  test('that the provider accepts makes a connection with a token that was fetched with it', async () => {
    const { status, body, headers } = await submit('machine', client);
    assert.equal(status, 200, JSON.stringify(body));
    assert.deepEqual(await bench.events(), ['connection.created']);
    assert.equal(headers.get('cache-control'), 'no-store');
    const connection = await stored('machine', body.connectionId);
    assert.ok(connection?.credentials.type === 'OAUTH2_CC');
    const { token = '', client_id, client_secret, expires_at } = connection.credentials;
    assert.deepEqual({ client_id, client_secret }, client);
    assert.equal(connection.accessExpiresAt?.toISOString(), expires_at);
    assert.deepEqual(connection.scopesGranted, [sheetsScope]);
    const answer = await fetch(`${bench.sandbox.url}/v4/spreadsheets`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: '{"properties":{"title":"Of a machine"}}',
    });
    assert.equal(answer.status, 200);
  });

  test('that the provider refuses makes nothing, is named in no answer, and can be corrected in the same session', async () => {
    const token = await bench.session();
    for (const wrong of [
      { ...client, client_secret: 'not-the-secret-at-all' },
      { client_id: 'nobody-knows-me', client_secret: 'some-secret-of-nobody' },
    ]) {
      const { status, body } = await submit('machine', wrong, { token });
      assert.deepEqual([status, body.error.code], [400, 'connection_test_failed']);
      assert.deepEqual(body.error.payload, { status: 401, error: 'invalid_client', refused: true });
      assert.match(body.error.message, /refused this client ID and secret/);
      assert.ok(!JSON.stringify(body).includes(wrong.client_secret));
    }
    assert.deepEqual(await bench.connections(), []);
    // It says nothing of the integration, which has no client to be refused.
    assert.deepEqual(await bench.events(), []);
    assert.equal((await submit('machine', client, { token })).status, 200);
  });

  test('is refused by the name of the field that does not fit', async () => {
    for (const [body, field] of [
      [{}, 'client_id'],
      [{ client_id: client.client_id }, 'client_secret'],
      [{ client_secret: client.client_secret }, 'client_id'],
      [{ ...client, client_id: '' }, 'client_id'],
      [{ ...client, client_secret: 'a\r\nb' }, 'client_secret'],
      [{ ...client, client_secret: 7 }, 'client_secret'],
      [{ ...client, token: 'x' }, ''],
      [[], ''],
      ['"text"', ''],
    ] as const) {
      const { status, body: answer } = await submit('machine', body);
      assert.deepEqual([status, answer.error.code], [400, 'invalid_body'], JSON.stringify(answer));
      assert.equal(answer.error.errors[0].path.join('.'), field, JSON.stringify(answer));
    }
    assert.deepEqual(await bench.connections(), []);
  });

  test('belongs to providers of this way alone', async () => {
    assert.equal((await submit('private', client)).body.error.code, 'invalid_auth_mode');
    assert.equal((await submit('sheets', client)).body.error.code, 'invalid_auth_mode');
    const other = await bench.call(
      `POST /api-auth/basic/machine?connect_session_token=${await bench.session()}`,
      { username: 'a', password: 'b' },
    );
    assert.equal(other.body.error.code, 'invalid_auth_mode');
  });

  test('makes one connection of a session, also with twenty calls at once', async () => {
    const token = await bench.session();
    const answers = await Promise.all(Array.from({ length: 20 }, () => submit('machine', client, { token })));
    assert.equal(answers.filter(({ status }) => status === 200).length, 1);
    assert.deepEqual([...new Set(answers.map(({ status }) => status))].sort(), [200, 401]);
    assert.equal((await bench.connections()).length, 1);
  });

  test('is not accepted if the provider issues no token', async () => {
    for (const name of ['token_html_200', 'token_html_403', 'token_503', 'token_reset', 'token_truncated']) {
      await strike(name, { times: 1 });
      const { status, body } = await submit('machine', client);
      assert.deepEqual([status, body.error?.code], [400, 'connection_test_failed'], name);
      assert.match(body.error.message, /their validity is unknown/);
    }
    assert.deepEqual(await bench.connections(), []);
  });

  test('has its token verified if the definition has a verification', async () => {
    await strike('api_401', { times: 1 });
    const refused = await submit('checked', client);
    assert.deepEqual([refused.status, refused.body.error.code], [400, 'connection_test_failed']);
    assert.match(refused.body.error.message, /refused these credentials \(status 401\)/);
    const elsewhere = await submit('checked', client);
    assert.match(elsewhere.body.error.message, /status 404 .* their validity is unknown/);
    assert.deepEqual(await bench.connections(), []);
  });
});

describe("the integration's client", () => {
  test('connects by a click, and its secret is in no connection', async () => {
    const { status, body } = await submit('ours', {});
    assert.equal(status, 200, JSON.stringify(body));
    const connection = await stored('ours', body.connectionId);
    assert.ok(connection?.credentials.type === 'OAUTH2_CC');
    assert.deepEqual(Object.keys(connection.credentials).sort(), ['expires_at', 'raw', 'token', 'type']);
  });

  test('that is refused is the fault of the integration, reported once, until it is accepted again', async () => {
    await strike('token_wrong_secret', { times: 2 });
    for (let time = 0; time < 2; time += 1) {
      const { status, body } = await submit('ours', {});
      assert.deepEqual([status, body.error.code], [400, 'integration_misconfigured']);
    }
    assert.deepEqual(await bench.events(), ['integration.misconfigured']);
    assert.equal((await submit('ours', {})).status, 200);
    assert.deepEqual((await bench.events()).sort(), [
      'connection.created',
      'integration.misconfigured',
      'integration.recovered',
    ]);
  });
});

describe('the connect page', () => {
  const fieldsOf = async (key: string, token: string) => {
    const { choices } = await bench.choices(token);
    return choices.find(({ unique_key }: { unique_key: string }) => unique_key === key).fields;
  };
  const ofClient = [
    { name: 'client_id', secret: false, required: true },
    { name: 'client_secret', secret: true, required: true },
  ].map((field) => ({ title: null, description: null, example: null, ...field }));

  test('requests the client, and nothing if the integration has one', async () => {
    const token = await bench.session();
    assert.deepEqual(await fieldsOf('machine', token), ofClient);
    assert.deepEqual(await fieldsOf('ours', token), []);
  });

  test("requests a user's own client again, and renews the connection with the new values", async () => {
    const { body } = await submit('ours', client);
    await bench.db.query(`update connection set status = 'needs_reauth'`);
    const token = await bench.reconnectSession(body.connectionId, { integration_id: 'ours' });
    assert.deepEqual(await fieldsOf('ours', token), ofClient);
    const other = await bench.control<typeof client>('POST /clients', {
      redirect_uris: ['https://app.example/callback'],
    });
    const { client_id, client_secret } = other;
    const again = await submit('ours', { client_id, client_secret }, { token });
    assert.deepEqual(again.body, body);
    const connection = await stored('ours', body.connectionId);
    assert.equal(connection?.status, 'active');
    assert.ok(connection.credentials.type === 'OAUTH2_CC');
    assert.equal(connection.credentials.client_id, client_id);
    assert.deepEqual(await bench.events(), ['connection.created', 'connection.reconnected']);
  });
});
