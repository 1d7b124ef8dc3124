import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { createKey } from '../../server/environments/keys.ts';
import { getEnvironment } from '../../server/environments/store.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let headers: Record<string, string>;
before(async () => {
  trellis = await openTrellis();
  ({ headers } = await connect(trellis));
});
after(() => trellis.close());

type Line = Record<string, unknown> & { id: string };

/** The one operation whose path holds the text, once it has been written. */
async function operationWith(text: string): Promise<Line> {
  for (;;) {
    const { status, body } = await trellis.call('GET', `/operations?text=${encodeURIComponent(text)}`);
    assert.equal(status, 200);
    const [found] = body.operations as Line[];
    if (found !== undefined) return found;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

test('a caller with the scope can look up a proxied call, without its secrets', async () => {
  const answer = await trellis.call(
    'GET',
    '/proxy/v4/spreadsheets/looked-up?access_token=s3cret&prettyPrint=false',
    {
      headers,
    },
  );
  assert.equal(answer.status, 404);
  const {
    id,
    created_at: createdAt,
    duration_ms: durationMs,
    request_id: requestId,
    actor,
    credentials_ms: credentialsMs,
    connect_ms: connectMs,
    first_byte_ms: firstByteMs,
    body_ms: bodyMs,
    ...rest
  } = await operationWith('LOOKED-up');
  assert.deepEqual(rest, {
    type: 'proxy',
    status: 'failed',
    integration_id: headers['provider-config-key'],
    provider_config_key: headers['provider-config-key'],
    connection_id: headers['connection-id'],
    account_email: 'ada@example.com',
    method: 'GET',
    path: '/v4/spreadsheets/looked-up?access_token=***&prettyPrint=false',
    http_status: 404,
    error_code: null,
    requests: 1,
    retries: 0,
    request_bytes: 0,
    answer_bytes: Buffer.byteLength(answer.text),
    quota_ms: 0,
    details: {},
  });
  assert.match(String(actor), /^key:\d+$/);
  assert.ok(typeof requestId === 'string' && typeof durationMs === 'number' && typeof createdAt === 'string');
  const phases = [credentialsMs, connectMs, firstByteMs, bodyMs].map(Number);
  assert.ok(phases.every((ms) => ms >= 0) && Number(credentialsMs) > 0 && Number(firstByteMs) > 0);
  const one = await trellis.call('GET', `/operations/${id}`);
  assert.deepEqual([one.body.messages, one.body.account_email], [[], 'ada@example.com']);
  const { body: found } = await trellis.call('GET', '/operations?text=ADA@example.com&type=proxy');
  assert.ok((found.operations as { id: string }[]).some((operation) => operation.id === id));
  const key = await trellis.keyWith('activity:read');
  for (const path of [`/operations/${id}`, '/operations?text=looked-up&limit=1']) {
    const { text } = await trellis.call('GET', path, { key });
    assert.match(text, /"account_email":null/);
  }
  const { body: none } = await trellis.call('GET', '/operations?text=ada@example.com&type=proxy', { key });
  assert.deepEqual(none.operations, []);
  assert.equal((await trellis.call('GET', `/operations/${id}`, { key: trellis.keys.prod })).status, 404);
  assert.equal(
    (await trellis.call('GET', '/operations', { key: await trellis.keyWith('proxy:read') })).status,
    403,
  );
});

test('retries are counted, with the sizes of both bodies', async () => {
  await trellis.control('POST', 'faults', { case: 'api_503', times: 1 });
  const body = { range: 'A1', values: [['x'.repeat(100)]] };
  const answer = await trellis.call(
    'PUT',
    '/proxy/v4/spreadsheets/tried-again/values/A1?valueInputOption=RAW',
    {
      headers: { ...headers, retries: '1' },
      body,
    },
  );
  assert.equal(answer.status, 404);
  const line = await operationWith('tried-again');
  assert.deepEqual(
    [line.method, line.requests, line.retries, line.request_bytes, line.answer_bytes],
    ['PUT', 2, 1, Buffer.byteLength(JSON.stringify(body)), Buffer.byteLength(answer.text)],
  );
});

test('of calls that succeed a sample is logged, of those that fail each one', async () => {
  const other = await openTrellis({ TRELLIS_ACTIVITY_SAMPLE: '0' });
  try {
    const { headers: at } = await connect(other);
    const created = await other.call('POST', '/proxy/v4/spreadsheets', { headers: at, body: {} });
    assert.equal(created.status, 200);
    assert.equal((await other.call('GET', '/proxy/v4/spreadsheets/none', { headers: at })).status, 404);
    let paths: unknown[] = [];
    while (paths.length === 0) {
      const { body } = await other.call('GET', '/operations?type=proxy');
      paths = (body.operations as Line[]).map(({ method, path }) => `${method} ${path}`);
    }
    assert.deepEqual(paths, ['GET /v4/spreadsheets/none']);
  } finally {
    await other.close();
  }
});

test('lists are cut into pages, and hours are counted', async () => {
  for (let index = 0; index < 3; index++)
    await trellis.call('GET', `/proxy/v4/spreadsheets/paged-${index}`, { headers });
  for (let index = 0; index < 3; index++) await operationWith(`paged-${index}`);
  const paths: unknown[] = [];
  let cursor = '';
  do {
    const { body } = await trellis.call('GET', `/operations?text=paged&limit=2${cursor}`);
    paths.push(...(body.operations as Line[]).map(({ path }) => path));
    cursor = body.next_cursor === null ? '' : `&cursor=${body.next_cursor}`;
  } while (cursor !== '');
  assert.deepEqual(
    paths,
    [2, 1, 0].map((index) => `/v4/spreadsheets/paged-${index}`),
  );
  const { body } = await trellis.call('GET', '/operations/stats?text=paged&status=failed');
  const hours = body.hours as { hour: string; status: string; count: number }[];
  assert.equal(
    hours.reduce((sum, { count }) => sum + count, 0),
    3,
  );
  assert.deepEqual([body.exact, body.dropped], [true, 0]);
  const stepped = await trellis.call('GET', '/operations/stats?text=paged&step_s=900');
  const series = stepped.body.series as { count: number; failed: number; p95_ms: number | null }[];
  const busy = series.filter(({ count }) => count > 0);
  assert.equal(
    busy.reduce((sum, { failed }) => sum + failed, 0),
    3,
  );
  assert.ok(busy.every(({ p95_ms: p95Ms }) => p95Ms !== null && p95Ms > 0));
  assert.equal(stepped.body.hours, undefined);
});

test('an invalid parameter is reported by name', async () => {
  for (const query of ['cursor=1', 'status=odd', 'from=yesterday', 'limit=0', 'unknown=1']) {
    const { status, body } = await trellis.call('GET', `/operations?${query}`);
    assert.deepEqual([status, (body.error as { code: string }).code], [400, 'invalid_query_params'], query);
  }
  const far = await trellis.call('GET', '/operations/stats?from=2020-01-01T00:00:00Z');
  assert.equal(far.status, 400);
  for (const query of ['step_s=60', 'step_s=7']) {
    assert.equal((await trellis.call('GET', `/operations/stats?${query}`)).status, 400, query);
  }
  assert.equal((await trellis.call('GET', '/operations/none')).status, 400);
  assert.equal((await trellis.call('GET', '/operations/00000000-0000-0000-0000-000000000000')).status, 404);
});

test('the rules of an integration and of a key are in force at once, and can be taken back', async () => {
  const integration = `/integrations/${headers['provider-config-key']}`;
  const statusOf = async (method: string, options: { key?: string } = {}) => {
    const { status, headers: answered } = await trellis.call(method, '/proxy/v4/spreadsheets/ruled', {
      headers,
      ...options,
    });
    return [status, answered.get('x-trellis-error')];
  };
  const proxyRules = [{ effect: 'allow', methods: ['GET'], path: '/v4/spreadsheets/*' }];
  const changed = await trellis.call('PATCH', integration, { body: { proxy_rules: proxyRules } });
  assert.deepEqual((changed.body.data as Line).proxy_rules, proxyRules);
  assert.deepEqual(await statusOf('DELETE'), [403, 'proxy_rule_denied']);
  assert.deepEqual(await statusOf('GET'), [404, null]);
  await trellis.call('PATCH', integration, { body: { display_name: 'Renamed' } });
  assert.deepEqual(await statusOf('DELETE'), [403, 'proxy_rule_denied']);
  await trellis.call('PATCH', integration, { body: { proxy_rules: [] } });
  assert.notEqual((await statusOf('DELETE'))[0], 403);

  const { secret } = await createKey(trellis.db, {
    environment: await getEnvironment(trellis.db, 'dev'),
    name: 'reader',
    scopes: ['proxy:read', 'proxy:write'],
    proxyRules: [{ effect: 'allow', methods: ['GET'], path: '/**' }],
  });
  trellis.watch.made('key', secret);
  assert.deepEqual(await statusOf('DELETE', { key: secret }), [403, 'proxy_rule_denied']);
  assert.deepEqual(await statusOf('GET', { key: secret }), [404, null]);

  const bad = await trellis.call('PATCH', integration, {
    body: { proxy_rules: [{ effect: 'allow', path: '/a/../b' }] },
  });
  assert.equal(bad.status, 400);
  assert.match(bad.text, /proxy_rules/);
});

test('a call that is answered while the service stops is in the log', async () => {
  const asked = Promise.withResolvers<ServerResponse>();
  const upstream = createServer((_request, response) => asked.resolve(response)).listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  const baseUrl = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
  const other = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' });
  const at = { 'provider-config-key': 'own', 'connection-id': 'own' };
  await other.call('POST', '/integrations', {
    body: { provider: 'private-api-key', unique_key: 'own', integration_config: { base_url: baseUrl } },
  });
  await other.call('POST', '/connections', {
    body: {
      provider_config_key: 'own',
      connection_id: 'own',
      credentials: { type: 'API_KEY', apiKey: 'of-the-test' },
    },
  });
  const call = other.call('GET', '/proxy/last', { headers: at });
  const response = await asked.promise;
  const closed = other.app.close();
  response.end('late');
  assert.equal((await call).text, 'late');
  // The caller would keep its connection; a stop of the service cuts it off as well.
  other.app.server.closeAllConnections();
  await closed;
  const rows = await other.db.query(`select http_status from operation where path = '/last'`);
  assert.deepEqual(rows, [{ http_status: 200 }]);
  await other.close();
  upstream.close();
});
