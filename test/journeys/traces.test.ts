// A trace goes on through the service: from its caller, through the proxy and through runs, to the provider.
// Slow: each of its tests takes more than a second.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { openTestDatabase, type TestDatabase } from '../support/database.ts';
import { actionCode, deployBody, flowConfig, syncCode } from '../support/functions.ts';
import { type OtlpReceiver, openOtlpReceiver, type ReceivedSpan } from '../support/otlp-receiver.ts';
import { openSecretWatch } from '../support/secret-watch.ts';
import { type RunningService, settingsFor, startRunningService } from '../support/service.ts';
import { callerAt, connect } from '../support/trellis.ts';

let receiver: OtlpReceiver;
let service: RunningService;
let database: TestDatabase;
let provider: Awaited<ReturnType<typeof openProvider>>;
let headers: Record<string, string>;
let connectionId: string;
const hidden = 'a-spreadsheet-of-somebody';

before(async () => {
  receiver = await openOtlpReceiver();
  provider = await openProvider();
  database = await openTestDatabase();
  service = await startRunningService({
    env: {
      ...settingsFor(database),
      OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
      OTEL_EXPORTER_OTLP_HEADERS: 'x-team=integrations',
      OTEL_SERVICE_NAME: 'trellis-under-test',
      TRELLIS_OUTBOUND_ALLOW: '127.0.0.1/32',
    },
  });
  const { baseUrl, secretKey: key } = service;
  const watch = openSecretWatch();
  const control = async (method: string, route: string, body?: unknown) =>
    (await service.sandbox(method, route, body)) as Record<string, unknown>;
  ({ headers, connectionId } = await connect({ ...callerAt({ baseUrl, key, watch }), control }));
  await service.call('POST', '/integrations', {
    body: {
      unique_key: 'own',
      provider: 'unauthenticated',
      integration_config: { base_url: provider.url },
    },
  });
  await service.call('POST', '/connections', {
    body: { provider_config_key: 'own', connection_id: 'one', credentials: { type: 'NONE' } },
  });
  const calls = actionCode({
    more: `exec: async (nango) => ({ n: (await nango.get({ endpoint: "/v4/spreadsheets/${hidden}", retries: 0 })).status }),`,
  });
  const heard = syncCode({
    more: 'webhookSubscriptions: ["*"], onWebhook: async () => {},',
  });
  const followed = `exports.default = { type: 'onEvent', description: '', event: 'post-connection-creation', exec: async () => {} };`;
  await service.call('POST', '/sync/deploy', {
    body: deployBody(
      [
        flowConfig({ name: 'calls', code: calls }),
        flowConfig({ name: 'doubles', code: actionCode(), integration: 'own' }),
        flowConfig({ name: 'things', code: heard, integration: 'own', type: 'sync' }),
      ],
      {
        onEventScriptsByProvider: [
          {
            providerConfigKey: 'own',
            scripts: [
              { name: 'followed', event: 'post-connection-creation', fileBody: { js: followed, ts: '' } },
            ],
          },
        ],
      },
    ),
  });
});
after(async () => {
  await service?.stop();
  await database?.drop();
  await receiver?.close();
  await provider?.close();
});

/** Answers whatever it is asked, and keeps the headers. */
async function openProvider() {
  const got: IncomingHttpHeaders[] = [];
  const server = createServer((request, response) => {
    got.push(request.headers);
    response.end('{}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = async () => {
    server.close();
    server.closeAllConnections();
    await once(server, 'close');
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, got, close };
}

/** A caller's own span, in the form of its header. */
function caller() {
  const [traceId, spanId] = [randomBytes(16).toString('hex'), randomBytes(8).toString('hex')];
  return { traceId, spanId, traceparent: `00-${traceId}-${spanId}-01` };
}

async function ask(method: string, path: string, sent: { headers?: Record<string, string>; body?: object }) {
  const response = await fetch(service.baseUrl + path, {
    method,
    headers: {
      authorization: `Bearer ${service.secretKey}`,
      ...(sent.body && { 'content-type': 'application/json' }),
      ...sent.headers,
    },
    ...(sent.body && { body: JSON.stringify(sent.body) }),
  });
  return {
    status: response.status,
    text: await response.text(),
    requestId: response.headers.get('x-request-id'),
  };
}

/** The spans of a trace once its outermost one has come; spans come when they have ended. */
async function traceOf(traceId: string, rootParent: string): Promise<ReceivedSpan[]> {
  await receiver.until((span) => span.traceId === traceId && span.parentSpanId === rootParent);
  return receiver.spans.filter((span) => span.traceId === traceId);
}

const under = (spans: readonly ReceivedSpan[], parent: ReceivedSpan | undefined, name: RegExp) => {
  const found = spans.find((span) => span.parentSpanId === parent?.spanId && name.test(span.name));
  assert.ok(found, `${name} below ${parent?.name} among ${spans.map((span) => span.name).join(', ')}`);
  return found;
};

test("a proxied call is a span of its caller's trace, and the request to the provider one below it", async () => {
  const { traceId, spanId, traceparent } = caller();
  const answer = await ask('GET', `/proxy/v4/spreadsheets/${hidden}?fields=spreadsheetUrl`, {
    headers: { ...headers, traceparent },
  });
  assert.equal(answer.status, 404, answer.text);
  const spans = await traceOf(traceId, spanId);
  const server = spans.find((span) => span.parentSpanId === spanId)!;
  assert.deepEqual([server.name, server.kind], ['GET /proxy/*', 2]);
  assert.equal(server.attributes['http.response.status_code'], 404);
  assert.equal(server.attributes['trellis.provider'], 'google-sheet');
  assert.equal(typeof server.attributes['trellis.request_id'], 'string');
  const client = under(spans, server, /^GET$/);
  assert.equal(client.kind, 3);
  const { hostname, port } = new URL(service.sandboxUrl);
  assert.equal(client.attributes['server.address'], hostname);
  assert.equal(client.attributes['server.port'], Number(port));
  assert.equal(client.attributes['http.response.status_code'], 404);
});

test('an action is one trace: its request, its run, what the run calls through the proxy, and the provider', async () => {
  const { traceId, spanId, traceparent } = caller();
  const answer = await ask('POST', '/action/trigger', {
    headers: { ...headers, traceparent },
    body: { action_name: 'calls', input: { n: 1 } },
  });
  assert.equal(answer.status, 424, answer.text);
  const spans = await traceOf(traceId, spanId);
  const server = spans.find((span) => span.parentSpanId === spanId)!;
  assert.deepEqual([server.name, server.kind], ['POST /action/trigger', 2]);
  assert.equal(server.attributes['trellis.request_id'], answer.requestId);
  const run = under(spans, server, /^run action$/);
  assert.equal(run.attributes['trellis.function'], 'calls');
  assert.ok(run.isError);
  const inner = under(spans, run, /^GET \/proxy\/\*$/);
  assert.equal(inner.kind, 1);
  const client = under(spans, inner, /^GET$/);
  assert.equal(client.attributes['http.response.status_code'], 404);
});

/** Of a run that somebody has asked for and does not wait for: who asked, by its link. */
async function queuedFrom(name: string, asked: ReturnType<typeof caller>): Promise<ReceivedSpan> {
  const [server] = (await traceOf(asked.traceId, asked.spanId)).filter(
    ({ parentSpanId }) => parentSpanId === asked.spanId,
  );
  const run = await receiver.until(
    (span) => span.name === name && span.links.some(({ spanId }) => spanId === server?.spanId),
  );
  assert.deepEqual(
    run.links.map(({ traceId, spanId }) => [traceId, spanId]),
    [[asked.traceId, server?.spanId]],
  );
  assert.notEqual(run.traceId, asked.traceId);
  assert.equal(run.parentSpanId ?? '', '');
  return run;
}

test('what a request leaves to be run is a trace of its own, linked to the request', async () => {
  const own = { 'provider-config-key': 'own', 'connection-id': 'one' };
  for (const [name, path, sent] of [
    [
      'run action',
      '/action/trigger',
      { body: { action_name: 'doubles', input: { n: 1 } }, 'x-async': 'true' },
    ],
    ['run sync', '/sync/trigger', { body: { syncs: ['things'] } }],
    ['run webhook', '/webhook/dev/own', { body: { type: 'told', connectionId: 'one' } }],
    [
      'run on_event',
      '/connections',
      {
        body: {
          provider_config_key: 'own',
          connection_id: 'followed',
          credentials: { type: 'NONE' },
        },
      },
    ],
  ] as const) {
    const asked = caller();
    const { body, ...more } = { 'x-async': 'false', ...sent };
    const answer = await ask('POST', path, {
      headers: { ...own, ...more, traceparent: asked.traceparent },
      body,
    });
    assert.ok(answer.status < 300, answer.text);
    await queuedFrom(name, asked);
  }
});

test('a request without a valid traceparent begins a trace; a request that is marked as not sampled is not traced', async () => {
  const path = '/providers/google-sheet';
  for (const traceparent of [undefined, '00-nothing']) {
    const before = receiver.spans.length;
    await ask('GET', path, traceparent === undefined ? {} : { headers: { traceparent } });
    const begun = await receiver.until(
      (span) => receiver.spans.indexOf(span) >= before && span.name === 'GET /providers/:provider',
    );
    assert.equal(begun.parentSpanId ?? '', '');
  }
  const { traceId, spanId } = caller();
  await ask('GET', path, { headers: { traceparent: `00-${traceId}-${spanId}-00` } });
  const later = caller();
  await ask('GET', path, { headers: { traceparent: later.traceparent } });
  await traceOf(later.traceId, later.spanId);
  assert.ok(!receiver.spans.some((span) => span.traceId === traceId));
});

test('the provider gets a traceparent where the caller sends one there, as it was sent, and no other', async () => {
  const { traceparent } = caller();
  const called = async (sent: Record<string, string>) => {
    const own = { 'provider-config-key': 'own', 'connection-id': 'one' };
    assert.equal((await ask('GET', '/proxy/things', { headers: { ...own, ...sent } })).status, 200);
    return provider.got.at(-1);
  };
  assert.equal((await called({ traceparent }))?.traceparent, undefined);
  assert.equal((await called({}))?.traceparent, undefined);
  const other = caller().traceparent;
  const both = await called({ traceparent: other, 'trellis-proxy-traceparent': traceparent });
  assert.equal(both?.traceparent, traceparent);
});

test('the delivery of an event is a trace of its own', async () => {
  await service.call('POST', '/events/endpoints', { body: { url: `${provider.url}/events/a-secret-path` } });
  await service.call('POST', '/connections', {
    body: { provider_config_key: 'own', connection_id: 'two', credentials: { type: 'NONE' } },
  });
  const sent = await receiver.until(({ name }) => name === 'deliver');
  assert.equal(sent.attributes['trellis.event_type'], 'connection.created');
  assert.deepEqual(
    [
      sent.attributes['trellis.outcome'],
      sent.attributes['http.response.status_code'],
      sent.parentSpanId ?? '',
    ],
    ['delivered', 200, ''],
  );
});

test('a refresh is a span of the request that needs it', async () => {
  const { traceId, spanId, traceparent } = caller();
  const path = `/connections/${connectionId}?provider_config_key=google-sheet&force_refresh=true`;
  assert.equal((await ask('GET', path, { headers: { traceparent } })).status, 200);
  const spans = await traceOf(traceId, spanId);
  const refresh = under(
    spans,
    spans.find((span) => span.parentSpanId === spanId),
    /^refresh$/,
  );
  assert.equal(refresh.attributes['trellis.outcome'], 'renewed');
});

test('the collector gets its configured headers, and no path, query, key or ID of a connection', async () => {
  assert.equal(receiver.service(), 'trellis-under-test');
  assert.equal(receiver.headers['x-team'], 'integrations');
  const all = receiver.texts.join('\n');
  for (const secret of [
    hidden,
    'spreadsheetUrl',
    service.secretKey,
    connectionId,
    'a-secret-path',
    'ya29.',
    'ada@example.com',
  ])
    assert.ok(!all.includes(secret), secret);
});
