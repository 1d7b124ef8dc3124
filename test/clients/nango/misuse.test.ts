import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Nango } from '@nangohq/node';
import { connect } from '../../support/trellis.ts';
import { failure, key, type NodeSubject, openNodeSubject, refusal } from './subject.ts';

/** What users of the node client get for their mistakes, and what comes of twenty calls of it at once. */
let subject: NodeSubject;
let client: Nango;
let connectionId: string;
before(async () => {
  subject = await openNodeSubject();
  ({ client, connectionId } = subject);
});
after(() => subject?.close());

type ProxyRefusal = { error: { code: unknown; details?: { reason: string }[] } };
type Call = (by: Nango, connection: string, integration: string) => Promise<unknown>;
const model = 'Thing';
const ofSync = (connection: string, integration: string) => ({
  provider_config_key: integration,
  connection_id: connection,
  name: 'things',
  variant: 'second',
});
const variant = (connection: string, integration: string) => ofSync(connection, integration);
/** Calls that name a connection, with how they fail where it is not there, and where its integration is not. */
const calls: Record<string, [Call, noConnection: [number, unknown], noIntegration: [number, unknown]]> = {
  getConnection: [(by, id, of) => by.getConnection(of, id), [404, 'not_found'], unknownIntegration(400)],
  getToken: [(by, id, of) => by.getToken(of, id), [404, 'not_found'], unknownIntegration(400)],
  getMetadata: [(by, id, of) => by.getMetadata(of, id), [404, 'not_found'], unknownIntegration(400)],
  patchConnection: [
    (by, id, of) => by.patchConnection({ connectionId: id, provider_config_key: of }, { tags: {} }),
    [404, 'not_found'],
    unknownIntegration(400),
  ],
  setMetadata: [(by, id, of) => by.setMetadata(of, id, {}), unknown(404), unknown(404)],
  updateMetadata: [(by, id, of) => by.updateMetadata(of, id, {}), unknown(404), unknown(404)],
  deleteConnection: [(by, id, of) => by.deleteConnection(of, id), unknown(400), unknown(400)],
  listRecords: [
    (by, id, of) => by.listRecords({ providerConfigKey: of, connectionId: id, model }),
    unknown(400),
    unknown(400),
  ],
  pruneRecords: [
    (by, id, of) =>
      by.pruneRecords({ providerConfigKey: of, connectionId: id, model, untilCursor: 'a cursor' }),
    unknown(400),
    unknown(400),
  ],
  triggerSync: [(by, id, of) => by.triggerSync(of, ['things'], id), unknown(404), unknownIntegration(400)],
  startSync: [(by, id, of) => by.startSync(of, ['things'], id), unknown(404), unknownIntegration(400)],
  pauseSync: [(by, id, of) => by.pauseSync(of, ['things'], id), unknown(404), unknownIntegration(400)],
  syncStatus: [(by, id, of) => by.syncStatus(of, '*', id), unknown(404), unknownIntegration(400)],
  updateSyncConnectionFrequency: [
    (by, id, of) => by.updateSyncConnectionFrequency(of, 'things', id, 'every day'),
    unknown(400),
    unknown(400),
  ],
  createSyncVariant: [(by, id, of) => by.createSyncVariant(variant(id, of)), unknown(400), unknown(400)],
  deleteSyncVariant: [(by, id, of) => by.deleteSyncVariant(variant(id, of)), unknown(400), unknown(400)],
  triggerAction: [(by, id, of) => by.triggerAction(of, id, 'double', { n: 1 }), unknown(400), unknown(400)],
  triggerActionAsync: [
    (by, id, of) => by.triggerActionAsync(of, id, 'double', { n: 1 }),
    unknown(400),
    unknown(400),
  ],
  // In the words of Google for its own integration; its reason stands in `details`.
  get: [
    (by, id, of) => by.get({ providerConfigKey: of, connectionId: id, endpoint: '/v4/x' }),
    [400, 400],
    unknownIntegration(404),
  ],
  createReconnectSession: [
    (by, id, of) => by.createReconnectSession({ connection_id: id, integration_id: of }),
    [400, 'invalid_body'],
    [400, 'invalid_body'],
  ],
};

function unknown(status: number): [number, unknown] {
  return [status, 'unknown_connection'];
}
function unknownIntegration(status: number): [number, unknown] {
  return [status, 'unknown_provider_config'];
}

describe('a mistake is told as one', () => {
  for (const [method, [call, noConnection, noIntegration]] of Object.entries(calls)) {
    test(`${method}: no such connection, no such integration, and one of another environment`, async () => {
      assert.deepEqual(await refusal(call(client, 'nobody', key)), noConnection);
      assert.deepEqual(await refusal(call(client, connectionId, 'nobody')), noIntegration);
      const other = new Nango({ host: subject.trellis.baseUrl, secretKey: subject.trellis.keys.prod });
      const [status] = await refusal(call(other, connectionId, key));
      assert.ok(status === noConnection[0] || status === noIntegration[0], String(status));
    });
  }

  test('a wrong key is 401 on every call, a key without the right 403, and says which', async () => {
    const { trellis } = subject;
    const host = `${trellis.baseUrl}/`;
    const wrong = [crypto.randomUUID(), trellis.keys.dev.slice(0, -1), 'no key', `${trellis.keys.dev}0`];
    for (const secretKey of wrong) {
      const by = new Nango({ host, secretKey });
      for (const [method, [call]] of Object.entries(calls)) {
        const { status, code } = await failure(call(by, connectionId, key));
        assert.equal(status, 401, method);
        assert.match(String(code), /^(unknown_account|invalid_secret_key_format|malformed_auth_header)$/);
      }
      assert.equal((await failure(by.listProviders({}))).status, 401);
    }
    const few = new Nango({ host, secretKey: await trellis.keyWith('records:read') });
    assert.deepEqual(await refusal(few.listConnections()), [403, 'forbidden']);
    assert.deepEqual(await refusal(few.deleteConnection(key, connectionId)), [403, 'forbidden']);
    const { message } = await failure(few.getToken(key, connectionId));
    assert.match(String(message), /connections:read/);
    const half = new Nango({ host, secretKey: await trellis.keyWith('connections:read') });
    await assert.rejects(half.getToken(key, connectionId), TypeError, 'without credentials there is none');
  });

  test('what the proxy refuses says its code in a header, whatever form the body has', async () => {
    const refused = async (providerConfigKey: string) => {
      const call = client.get({ providerConfigKey, connectionId: 'nobody', endpoint: '/v4/x' });
      const { response } = await call.then(
        () => assert.fail('it was not refused'),
        (error: { response: { status: number; headers: Record<string, string>; data: ProxyRefusal } }) =>
          error,
      );
      return { told: response.headers['x-nango-error'], ...response };
    };
    const ofGoogle = await refused(key);
    assert.deepEqual([ofGoogle.status, ofGoogle.told], [400, 'unknown_connection']);
    const { code, details } = ofGoogle.data.error;
    assert.deepEqual([code, details?.[0]?.reason], [400, 'UNKNOWN_CONNECTION']);
    const plain = await refused('private');
    assert.deepEqual(
      [plain.status, plain.told, plain.data.error.code],
      [400, 'unknown_connection', 'unknown_connection'],
    );
  });

  test('what does not fit is 400 with the field, and nothing else happens', async () => {
    const nul = 'a\u0000b';
    const at = { connectionId, provider_config_key: key };
    const place = { ...subject.place, model };
    const long = 'x'.repeat(300);
    const deep = JSON.parse(`${'['.repeat(200)}${']'.repeat(200)}`) as unknown;
    const given: [string, () => Promise<unknown>][] = [
      ['tags', () => client.patchConnection(at, { tags: { 'no key': 'x' } })],
      ['tags', () => client.patchConnection(at, { tags: { a: nul } })],
      ['tags', () => client.patchConnection(at, { tags: { a: '' } })],
      ['end_user', () => client.patchConnection(at, { end_user: { id: '' } })],
      ['end_user', () => client.createConnectSession({ end_user: { id: nul } })],
      ['end_user', () => client.createConnectSession({ end_user: { id: 'a', email: 'none' } })],
      ['tags', () => client.createConnectSession({ tags: { A: '1', a: '2' } })],
      ['more', () => client.createConnectSession({ tags: {}, more: 1 } as never)],
      ['unique_key', () => client.createIntegration({ provider: 'google-sheet', unique_key: 'a/b' })],
      ['provider', () => client.createIntegration({ provider: 'nobody', unique_key: 'a' })],
      ['metadata', () => client.setMetadata(key, connectionId, 'text' as never)],
      ['metadata', () => client.setMetadata(key, connectionId, [] as never)],
      ['connection_id', () => client.setMetadata(key, [], {})],
      ['connection_id', () => client.setMetadata(key, long, {})],
      ['frequency', () => client.updateSyncConnectionFrequency(key, 'things', connectionId, nul)],
      ['syncs', () => client.triggerSync(key, [long], connectionId)],
      ['opts', () => client.triggerSync(key, ['things'], connectionId, { more: 1 } as never)],
      ['action_name', () => client.triggerAction(key, connectionId, 'no name', {})],
      ['input', () => client.triggerAction(key, connectionId, 'double', deep)],
      ['model', () => client.listRecords({ ...place, model: nul })],
      ['limit', () => client.listRecords({ ...place, limit: 10_001 })],
      ['limit', () => client.listRecords({ ...place, limit: 1.5 })],
      ['filter', () => client.listRecords({ ...place, filter: 'none' as never })],
      ['modified_after', () => client.listRecords({ ...place, modifiedAfter: 'yesterday' })],
      ['ids', () => client.listRecords({ ...place, ids: Array.from({ length: 101 }, (_, at) => `${at}`) })],
      ['until_cursor', () => client.pruneRecords({ ...place, untilCursor: '' })],
      ['limit', () => client.pruneRecords({ ...place, untilCursor: 'a', limit: -1 })],
      ['limit', () => client.listConnections({ limit: 2001 })],
      ['search', () => client.listConnections(undefined, nul)],
      ['type', () => client.listFunctions({ uniqueKey: key }, { type: 'none' as never })],
      ['limit', () => client.listFunctions({ uniqueKey: key }, { limit: 101 })],
      ['id', () => client.getAsyncActionResult({ id: 'none' })],
    ];
    for (const [field, call] of given) {
      const { status, code, message, errors = [] } = await failure(call());
      assert.equal(status, 400, `${field}: ${code}`);
      assert.match(String(code), /^invalid_(body|query_params|headers|uri_params|action_input)$/);
      assert.equal(typeof message, 'string');
      const named = JSON.stringify(errors);
      assert.ok(named.includes(field), `${field}: ${named}`);
    }
    const { metadata } = await client.getConnection(key, connectionId);
    assert.deepEqual(metadata, {});
  });

  test('an ID that the client puts into the path as it is leads nowhere else', async () => {
    for (const id of [
      '../integrations',
      'a/b',
      '%2e%2e/integrations',
      '?provider_config_key=x',
      '#',
      '%00',
    ]) {
      const { status, code } = await failure(client.getConnection(key, id));
      assert.ok([400, 404].includes(status), `${id}: ${status}`);
      assert.equal(typeof code, 'string', id);
      const deletion = await failure(client.deleteConnection(key, id));
      assert.ok([400, 404].includes(deletion.status), `${id}: ${deletion.status}`);
    }
    const { connections } = await client.listConnections({ integrationId: key });
    assert.equal(connections.length, 1);
  });

  test('metadata keeps every value that JSON has', async () => {
    const metadata = JSON.parse(
      '{"":2,"big":1e300,"nul":"a\\u0000b","lone":"\\ud800","none":null,"toString":{"x":[]}}',
    ) as Record<string, unknown>;
    await client.setMetadata(key, connectionId, metadata);
    const read = await client.getMetadata(key, connectionId);
    assert.equal(JSON.stringify(read), JSON.stringify(metadata));
    await client.setMetadata(key, connectionId, {});
  });
});

describe('twenty at once', () => {
  const twenty = Array.from({ length: 20 }, (_, at) => at);
  const count = async (asked: Promise<unknown>[], code: string) => {
    const ends = await Promise.all(asked.map((one) => one.then(() => 'done', refused)));
    assert.deepEqual(
      ends.filter((end) => end !== 'done' && end !== code),
      [],
    );
    return ends.filter((end) => end === 'done').length;
  };
  const refused = async (error: unknown) => (await failure(Promise.reject(error))).code;

  test('an expired token is renewed once, and all get the new one', async () => {
    const refreshes = async () => {
      const { refreshes: all } = (await subject.trellis.control('GET', 'refreshes')) as {
        refreshes: { accepted: number; most_at_once: number }[];
      };
      return all.reduce((sum, { accepted }) => sum + accepted, 0);
    };
    const before = await refreshes();
    const old = await client.getToken(key, connectionId);
    await subject.trellis.advance(3600);
    const tokens = new Set(await Promise.all(twenty.map(() => client.getToken(key, connectionId))));
    assert.equal(tokens.size, 1);
    assert.ok(!tokens.has(old));
    assert.equal((await refreshes()) - before, 1);
  });

  test('one integration is made, one connection deleted, one variant added', async () => {
    const made = twenty.map(() =>
      client.createIntegration({
        provider: 'google-drive',
        unique_key: 'drive',
        credentials: { type: 'OAUTH2', client_id: 'the client', client_secret: 'the secret of it' },
      }),
    );
    assert.equal(await count(made, 'integration_exists'), 1);
    const { connectionId: other } = await connect(subject.trellis, { account: 'grace@example.com' });
    const deleted = twenty.map(() => client.deleteConnection(key, other));
    assert.equal(await count(deleted, 'unknown_connection'), 1);
    const added = twenty.map(() => client.createSyncVariant(variant(connectionId, key)));
    assert.equal(await count(added, 'sync_variant_already_exists'), 1);
    const removed = twenty.map(() => client.deleteSyncVariant(variant(connectionId, key)));
    assert.equal(await count(removed, 'unknown_sync'), 1);
  });

  test('no change of metadata is lost, and each action gets its own answer', async () => {
    await client.setMetadata(key, connectionId, {});
    await Promise.all(twenty.map((n) => client.updateMetadata(key, connectionId, { [`k${n}`]: n })));
    const merged = await client.getMetadata(key, connectionId);
    assert.deepEqual(merged, Object.fromEntries(twenty.map((n) => [`k${n}`, n])));
    const answers = await Promise.all(
      twenty.map((n) => client.triggerAction<object, { n: number }>(key, connectionId, 'double', { n })),
    );
    assert.deepEqual(
      answers.map(({ n }) => n),
      twenty.map((n) => 2 * n),
    );
  });

  test('each record is pruned once, and counted once', async () => {
    const headers = { 'connection-id': connectionId, 'provider-config-key': key };
    const records = Array.from({ length: 100 }, (_, id) => ({ id, text: `record ${id}` }));
    await subject.trellis.call('POST', '/records', { headers, body: { model, records } });
    const at = { ...subject.place, model };
    const { records: saved } = await client.listRecords(at);
    const untilCursor = saved[79]!._nango_metadata.cursor;
    const pruned = await Promise.all(
      twenty.map(() => client.pruneRecords({ ...at, untilCursor, limit: 10 })),
    );
    assert.equal(
      pruned.reduce((sum, one) => sum + one.count, 0),
      80,
    );
    const { records: left } = await client.listRecords(at);
    assert.deepEqual(
      left.map(({ _nango_metadata: { pruned_at } }) => pruned_at !== null),
      saved.map((_, index) => index < 80),
    );
  });
});
