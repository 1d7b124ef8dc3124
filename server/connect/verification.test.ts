import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { type ConnectBench, openConnectBench } from './connect.fixture.ts';

/** After consent, at a provider whose definition names a call that tries credentials (Google Drive). */
let bench: ConnectBench;
before(async () => {
  bench = await openConnectBench();
});
after(() => bench.end());
beforeEach(async () => {
  await bench.control('DELETE /faults', {});
  await bench.db.query('delete from event');
  await bench.db.query('delete from connection');
});

async function dance(faults: Record<string, unknown>[] = [], reconnect?: string) {
  const browser = bench.browser();
  const token = reconnect
    ? await bench.reconnectSession(reconnect, { integration_id: 'drive' })
    : await bench.session();
  const redirect = await bench.consent(await browser.begin(token, { key: 'drive' }));
  for (const fault of faults) await bench.control('POST /faults', fault);
  return browser.visit(redirect);
}
const asked = async (route: string) =>
  ((await (await fetch(`${bench.sandbox.url}/_sandbox/calls`)).json()) as Record<string, number>)[route] ?? 0;

test('a token that the API takes makes a connection, after one call', async () => {
  const before = await asked('GET /drive/v3/about');
  assert.equal((await dance()).status, 200);
  assert.equal(await asked('GET /drive/v3/about'), before + 1);
  assert.deepEqual(await bench.events(), ['connection.created']);
});

test('a token that the API refuses makes none: the page shows this, and the application gets one event', async () => {
  const { status, text } = await dance([{ case: 'api_401' }]);
  assert.equal(status, 400);
  assert.match(text, /does not accept this account/);
  assert.match(text, /Google Drive refused these credentials \(status 401\)/);
  assert.match(text, /trellis_oauth_callback_error/);
  assert.deepEqual(await bench.connections(), []);
  const [event, ...others] = await bench.db.query<{ type: string; data: Record<string, unknown> }>(
    'select type, data from event',
  );
  assert.deepEqual(others, []);
  assert.equal(event?.type, 'connection.connect_failed');
  assert.deepEqual([event.data.cause, event.data.evidence], ['credentials_refused', { http_status: 401 }]);
});

test('a connection that is renewed stays as it was where the API refuses the new token', async () => {
  await dance();
  const [row] = await bench.connections();
  const before = await bench.db.query('select credentials, credentials_version from connection');
  assert.equal((await dance([{ case: 'api_401' }], row?.connection_id)).status, 400);
  assert.deepEqual(await bench.db.query('select credentials, credentials_version from connection'), before);
});

// A process that is told to stop waits for less than the 15 seconds of other trials, and the code is spent.
test('an API that never answers does not prevent a connection', { timeout: 10_000 }, async () => {
  assert.equal((await dance([{ case: 'api_timeout' }])).status, 200);
  assert.deepEqual(await bench.events(), ['connection.created']);
});

for (const name of [
  'api_500',
  'api_503',
  'api_reset',
  'api_service_disabled',
  'api_scope_insufficient',
  'api_403_html',
  'api_404',
  'api_html_200',
  'api_truncated',
]) {
  test(`an inconclusive response does not prevent a connection (${name})`, async () => {
    assert.equal((await dance([{ case: name }])).status, 200);
    assert.deepEqual(await bench.events(), ['connection.created']);
  });
}
