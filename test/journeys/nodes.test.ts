// Slow: it starts two nodes as processes, and processes for functions at both.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { listNodes } from '../../server/nodes/nodes.ts';
import { version } from '../../server/version.ts';
import { runCommand } from '../support/command.ts';
import { openTestDatabase, type TestDatabase } from '../support/database.ts';
import { deployBody, flowConfig } from '../support/functions.ts';
import { type OtlpReceiver, openOtlpReceiver } from '../support/otlp-receiver.ts';
import { functionProcessesOf } from '../support/processes.ts';
import { type RunningService, settingsFor, startRunningService } from '../support/service.ts';

/** Two nodes that share the work: one answers, the other does what is due and runs the customers' code. */
let bench: TestDatabase;
let receiver: OtlpReceiver;
let settings: Record<string, string>;
let api: RunningService;
let isApiStopped = false;
let worker: RunningService | undefined;
before(async () => {
  bench = await openTestDatabase();
  receiver = await openOtlpReceiver();
  settings = {
    ...settingsFor(bench),
    TRELLIS_SANDBOX: 'off',
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
  };
  api = await startRunningService({
    env: { ...settings, TRELLIS_ROLE: 'api', TRELLIS_DRAIN_DELAY_SECONDS: '2' },
  });
  worker = await startRunningService({ dataDir: api.dataDir, env: { ...settings, TRELLIS_ROLE: 'worker' } });
  await api.call('POST', '/integrations', {
    body: {
      provider: 'unauthenticated',
      unique_key: 'open',
      integration_config: { base_url: 'https://api.example.com' },
    },
  });
});
after(async () => {
  await worker?.stop();
  if (!isApiStopped) await api?.stop();
  await receiver.close();
  await bench.drop();
});

const importInto = (connectionId: string) =>
  api.call('POST', '/connections', {
    body: { provider_config_key: 'open', connection_id: connectionId, credentials: { type: 'NONE' } },
  });
const call = (name: string, input?: unknown, signal?: AbortSignal) =>
  fetch(`${api.baseUrl}/action/trigger`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${api.secretKey}`,
      'content-type': 'application/json',
      'connection-id': 'first',
      'provider-config-key': 'open',
    },
    body: JSON.stringify({ action_name: name, input }),
    ...(signal && { signal }),
  });
const action = (exec: string) => `"use strict";
const { z } = require("zod");
exports.default = { type: "action", description: "", input: z.any(), output: z.any(), exec: async (nango, input) => { ${exec} } };`;
const judge = `exports.default = { type: 'onEvent', description: '', event: 'validate-connection',
  exec: async (nango) => { if (nango.connectionId === 'unwanted') throw new Error('not that one'); } };`;
const runs = (name: string) =>
  bench.db.query<{ state: string; code: string | null }>(
    `select run.state, run.error ->> 'code' as code
     from run join function on function.id = run.function_id
     where name = $1 order by run.id`,
    [name],
  );
/** Waits until the worker has taken the remote call. */
async function taken(): Promise<void> {
  while ((await bench.db.query('select id from errand where owner is not null')).length === 0)
    await pause(20);
}
async function until(name: string, state: string): Promise<void> {
  while ((await runs(name)).at(-1)?.state !== state) await pause(20);
}

test('what a caller waits for runs at the worker, and the node that was called runs no code', async () => {
  await api.call('POST', '/sync/deploy', {
    body: deployBody(
      [
        flowConfig({ name: 'doubled', code: action('return { n: input.n * 2 };'), integration: 'open' }),
        flowConfig({
          name: 'refused',
          code: action('throw new nango.ActionError({ why: "on purpose" });'),
          integration: 'open',
        }),
        flowConfig({
          name: 'endless',
          code: action(
            'await new Promise((_, reject) => { setTimeout(reject, 60_000); nango.signal.addEventListener("abort", reject); });',
          ),
          integration: 'open',
        }),
      ],
      {
        onEventScriptsByProvider: [
          {
            providerConfigKey: 'open',
            scripts: [{ name: 'judged', event: 'validate-connection', fileBody: { js: judge, ts: '' } }],
          },
        ],
      },
    ),
  });
  await importInto('first');
  await assert.rejects(importInto('unwanted'), /connection_validation_failed.*not that one/);

  const answer = await call('doubled', { n: 21 });
  assert.deepEqual([answer.status, await answer.json()], [200, { n: 42 }]);
  const refused = await call('refused');
  assert.deepEqual(
    [refused.status, ((await refused.json()) as { error: { payload: unknown } }).error.payload],
    [500, { why: 'on purpose' }],
  );
  assert.deepEqual(await functionProcessesOf(api.pid), []);
  if (process.platform === 'linux') assert.notDeepEqual(await functionProcessesOf(worker!.pid), []);
  assert.deepEqual(await bench.db.query('select id from errand'), []);
});

test('a call is one trace on both nodes', async () => {
  assert.equal((await call('doubled', { n: 1 })).status, 200);
  const request = await receiver.until(({ name }) => name === 'POST /action/trigger');
  const remoteCall = await receiver.until(({ parentSpanId }) => parentSpanId === request.spanId);
  const run = await receiver.until(({ parentSpanId }) => parentSpanId === remoteCall.spanId);
  assert.deepEqual([remoteCall.name, remoteCall.kind, run.name], ['remote_call run', 2, 'run action']);
  assert.deepEqual([remoteCall.traceId, run.traceId], [request.traceId, request.traceId]);
});

test('a caller who hangs up ends the run, wherever it is', async () => {
  const gone = new AbortController();
  const asked = call('endless', undefined, gone.signal);
  await taken();
  gone.abort();
  await assert.rejects(asked, /abort/i);
  await until('endless', 'cancelled');
});

test('a worker serves only its state', async () => {
  const of = async (path: string) => (await fetch(worker!.baseUrl + path)).status;
  assert.deepEqual(await Promise.all(['/health', '/ready'].map(of)), [200, 200]);
  const others = ['/', '/connections', '/proxy/x', '/connect', '/docs', '/openapi.json', '/mcp', '/sign-in'];
  assert.deepEqual(
    await Promise.all(others.map(of)),
    others.map(() => 404),
  );
});

test('a worker that stops reports it to waiting callers, and nodes are listed until they end', async () => {
  const list = async () => {
    const { code, stdout } = await runCommand(['nodes', '--json'], {
      DATABASE_URL: settings.DATABASE_URL!,
      DATA_DIR: api.dataDir,
    });
    const nodes = JSON.parse(stdout) as { role: string; state: string; version: string }[];
    return { code, nodes: nodes.map(({ role, state }) => `${role} ${state}`).sort() };
  };
  const asked = call('endless');
  await taken();
  assert.deepEqual(await list(), { code: 0, nodes: ['api runs', 'worker runs'] });
  assert.equal(await worker!.stop(), 0);
  worker = undefined;
  const answer = await asked;
  assert.equal(answer.status, 503);
  assert.equal(((await answer.json()) as { error: { code: string } }).error.code, 'unavailable');
  assert.deepEqual((await runs('endless')).at(-1), { state: 'failed', code: 'function_unavailable' });
  const left = await listNodes(bench.db);
  assert.deepEqual(
    left.map(({ role, version: of }) => [role, of]),
    [['api', version]],
  );

  // As a node leaves its row that was killed.
  await bench.db.query(
    `insert into node (id, name, role, version, migration, seen_at)
     values (gen_random_uuid(), 'killed', 'worker', '0', '', clock_timestamp() - interval '21 seconds')`,
  );
  assert.deepEqual(await list(), { code: 1, nodes: ['api runs', 'worker silent'] });
});

test('a stopping node is not ready any more, and answers until load balancers have noticed', async () => {
  const ready = async () => (await fetch(`${api.baseUrl}/ready`)).status;
  assert.equal(await ready(), 200);
  isApiStopped = true;
  const stopped = api.stop();
  let status = 200;
  while (status === 200) status = await ready();
  assert.equal(status, 503);
  assert.equal((await fetch(`${api.baseUrl}/health`)).headers.get('connection'), 'close');
  assert.equal(await stopped, 0);
  assert.deepEqual(await bench.db.query(`select id from node where role = 'api'`), []);
});

test('nodes report the version of the package', () => {
  const manifest = readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8');
  assert.equal((JSON.parse(manifest) as { version: string }).version, version);
});
