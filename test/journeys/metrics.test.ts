// What a service tells of itself at /metrics while it does what it is for.
// In a process of its own: the figures are those of the whole process.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { metrics } from '../../server/metrics/metrics.ts';
import { actionCode, deployBody, flowConfig, syncCode } from '../support/functions.ts';
import { type Figure, figuresOf, sumOf } from '../support/metrics.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let headers: Record<string, string>;
let connectionId: string;
/** Nothing in the figures may be what a customer chose. */
const integration = 'an-integration-of-mine';

before(async () => {
  trellis = await openTrellis();
  ({ headers, connectionId } = await connect(trellis, { integration }));
});
after(() => trellis.close());

async function scrape(): Promise<{ text: string; figures: Figure[] }> {
  const { status, text, headers: answered } = await trellis.call('GET', '/metrics', { key: undefined });
  assert.equal(status, 200, text);
  assert.match(answered.get('content-type') ?? '', /^text\/plain; version=0\.0\.4/);
  return { text, figures: figuresOf(text) };
}

/** By how much figures grow while something is done. */
async function growth(
  work: () => Promise<unknown>,
): Promise<(name: string, labels?: Record<string, string>) => number> {
  const { figures: before } = await scrape();
  await work();
  const { figures: after } = await scrape();
  return (name, labels) => (sumOf(after, name, labels) ?? 0) - (sumOf(before, name, labels) ?? 0);
}

test('a call of the proxy is counted by provider, status and outcome, with its times and its bytes', async () => {
  const provider = 'google-sheet';
  const grown = await growth(async () => {
    const made = await trellis.call('POST', '/proxy/v4/spreadsheets', {
      headers,
      body: { properties: { title: 'Orders' } },
    });
    assert.equal(made.status, 200, made.text);
    assert.equal((await trellis.call('GET', '/proxy/v4/spreadsheets/none', { headers })).status, 404);
    await trellis.call('GET', '/proxy/v4/spreadsheets/none', {
      key: 'trs_dev_0000000000000000000000',
      headers,
    });
  });
  assert.equal(grown('trellis_proxy_calls_total', { provider, status: '2xx', outcome: 'answered' }), 1);
  assert.equal(grown('trellis_proxy_calls_total', { provider, status: '4xx', outcome: 'answered' }), 1);
  assert.equal(grown('trellis_proxy_calls_total', { provider: 'other', status: '4xx', outcome: 'error' }), 1);
  assert.equal(grown('trellis_proxy_errors_total', { provider: 'other', code: 'unknown_account' }), 1);
  for (const name of ['trellis_proxy_call_duration_seconds_count', 'trellis_proxy_first_byte_seconds_count'])
    assert.equal(grown(name, { provider }), 2, name);
  assert.equal(grown('trellis_proxy_upstream_requests_total', { provider }), 2);
  assert.equal(
    grown('trellis_proxy_request_bytes_total', { provider }),
    '{"properties":{"title":"Orders"}}'.length,
  );
  assert.ok(grown('trellis_proxy_response_bytes_total', { provider }) > 100);
  const { figures } = await scrape();
  assert.equal(sumOf(figures, 'trellis_proxy_calls_in_flight'), 0);
});

test('a refresh is counted by its outcome', async () => {
  const provider = 'google-sheet';
  const renewed = await growth(() =>
    trellis.call('GET', `/connections/${connectionId}?provider_config_key=${integration}&force_refresh=true`),
  );
  assert.equal(renewed('trellis_refreshes_total', { provider, outcome: 'renewed' }), 1);
  assert.equal(renewed('trellis_refresh_duration_seconds_count', { provider }), 1);
});

test('records are counted by operation', async () => {
  const of = { ...headers };
  const save = (records: object[]) =>
    trellis.call('POST', '/records', { headers: of, body: { model: 'Order', records } });
  const grown = await growth(async () => {
    const saved = await save([
      { id: 'a', n: 1 },
      { id: 'b', n: 1 },
      { id: 'c', n: 1 },
    ]);
    assert.equal(saved.status, 200, saved.text);
    await save([
      { id: 'a', n: 1 },
      { id: 'b', n: 2 },
    ]);
    await trellis.call('POST', '/records/delete', { headers: of, body: { model: 'Order', ids: ['c'] } });
    const listed = await trellis.call('GET', '/records?model=Order', { headers: of });
    const { next_cursor: none, records } = listed.body as {
      next_cursor: unknown;
      records: Record<string, { cursor: string }>[];
    };
    assert.equal(none, null);
    const until = records.at(-1)!._trellis_metadata!.cursor;
    await trellis.call('PATCH', '/records/prune', {
      headers: of,
      body: { model: 'Order', until_cursor: until },
    });
  });
  const by = (operation: string) => grown('trellis_records_total', { operation });
  assert.deepEqual(
    ['added', 'updated', 'unchanged', 'deleted', 'listed', 'pruned'].map((operation) => [
      operation,
      by(operation),
    ]),
    [
      ['added', 3],
      ['updated', 1],
      ['unchanged', 1],
      ['deleted', 1],
      ['listed', 3],
      ['pruned', 3],
    ],
  );
});

test('runs are counted by kind and outcome, and waiting runs are reported', async () => {
  const boom = actionCode({ more: 'exec: async () => { throw new Error("no"); },' });
  const calls = actionCode({
    more: 'exec: async (nango) => ({ n: (await nango.get({ endpoint: "/v4/spreadsheets/none", retries: 0 })).status }),',
  });
  const grown = await growth(async () => {
    const deployed = await trellis.call('POST', '/sync/deploy', {
      body: deployBody([
        flowConfig({ name: 'double', code: actionCode(), integration }),
        flowConfig({ name: 'boom', code: boom, integration }),
        flowConfig({ name: 'calls', code: calls, integration }),
        flowConfig({ name: 'things', code: syncCode(), integration, type: 'sync' }),
      ]),
    });
    assert.equal(deployed.status, 200, deployed.text);
    for (const action_name of ['double', 'boom', 'calls'])
      await trellis.call('POST', '/action/trigger', { headers, body: { action_name, input: { n: 2 } } });
    // Its first run by its time may be minutes away.
    await trellis.call('POST', '/sync/trigger', { headers, body: { syncs: ['things'] } });
    for (let left = 400; left > 0; left--) {
      const { figures } = await scrape();
      if (sumOf(figures, 'trellis_runs_total', { kind: 'sync' }) !== undefined) break;
      await pause(25);
    }
  });
  assert.equal(grown('trellis_runs_total', { kind: 'action', outcome: 'succeeded' }), 1);
  assert.equal(grown('trellis_runs_total', { kind: 'action', outcome: 'failed' }), 2);
  assert.equal(grown('trellis_runs_total', { kind: 'sync', outcome: 'succeeded' }), 1);
  assert.equal(grown('trellis_run_duration_seconds_count', { kind: 'action' }), 3);
  assert.equal(grown('trellis_run_delay_seconds_count', { kind: 'sync' }), 1);
  // What a run calls goes through the proxy, and is counted there.
  assert.equal(
    grown('trellis_proxy_calls_total', { provider: 'google-sheet', status: '4xx', outcome: 'answered' }),
    1,
  );
  const { figures } = await scrape();
  assert.equal(sumOf(figures, 'trellis_runs_under_way'), 0);
  assert.ok(sumOf(figures, 'trellis_function_processes', { state: 'idle' })! >= 1);
});

test('all metrics are exposed, also those of the process, of Node and of the database', async () => {
  const { text, figures } = await scrape();
  const reported = new Set([...text.matchAll(/^# TYPE (\S+) /gm)].map(([, name]) => name));
  for (const { name } of Object.values(metrics)) assert.ok(reported.has(name), name);
  for (const name of [
    'process_resident_memory_bytes',
    'nodejs_eventloop_lag_p99_seconds',
    'nodejs_gc_duration_seconds',
  ])
    assert.ok(reported.has(name), name);
  assert.equal(sumOf(figures, 'trellis_database_up'), 1);
  assert.equal(sumOf(figures, 'trellis_connections', { status: 'active' }), 1);
  assert.equal(sumOf(figures, 'trellis_connections', { status: 'needs_reauth' }), 0);
  for (const name of [
    'trellis_runs_waiting',
    'trellis_deliveries_oldest_waiting_seconds',
    'trellis_events_without_position',
  ])
    assert.ok(sumOf(figures, name) !== undefined, name);
  assert.ok(sumOf(figures, 'trellis_db_connection_wait_seconds_count')! > 10);
  assert.equal(sumOf(figures, 'trellis_build_info'), 1);
});

test('a request of a route is counted by its template, and nothing that a customer chose is in any figure', async () => {
  const path = `/connections/${connectionId}?provider_config_key=${integration}`;
  const grown = await growth(async () => {
    await trellis.call('GET', path);
    await trellis.call('GET', '/no/such/address');
  });
  const of = (labels: Record<string, string>) => grown('trellis_http_request_duration_seconds_count', labels);
  assert.equal(of({ method: 'GET', route: '/connections/:id', status: '200' }), 1);
  assert.equal(of({ method: 'GET', route: 'none', status: '404' }), 1);
  const { text } = await scrape();
  for (const chosen of [
    connectionId,
    integration,
    'ada',
    'double',
    'localhost',
    '127.0.0.1',
    'spreadsheets',
    'Order',
  ])
    assert.ok(!text.includes(chosen), chosen);
});

test('metrics are not served through a proxy', async () => {
  const answer = await trellis.call('GET', '/metrics', { headers: { 'x-forwarded-for': '203.0.113.9' } });
  assert.equal(answer.status, 403);
  assert.ok(!answer.text.includes('trellis_'), answer.text);
});
