import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { createApi } from './api.ts';
import { runCommand } from './run.ts';
import { runDeployed } from './run-deployed.ts';

test('a running sync runs once more, and that run is followed, even if the sync was held before', async (t) => {
  const held = { code: 'connection_needs_reauth', message: 'm' };
  const run = (id: string, state: string) => ({ id, state, variant: 'base', counts: {}, error: null });
  let runs = [run('1', 'running')];
  let looks = 0;
  const asked: string[] = [];
  let triggered = '';
  const answers: [RegExp, () => unknown][] = [
    [/^\/integrations\//, () => ({ data: { type: 'sync', enabled: true } })],
    [/^\/functions\/syncs\/trigger/, () => ({ success: true })],
    [
      /^\/functions\/syncs\/status/,
      () => ({ syncs: [{ variant: 'base', held: runs[0]!.state === 'running' ? held : null }] }),
    ],
    [/\/lines/, () => ({ lines: [], has_more: false })],
    [/^\/functions\/runs\/2/, () => runs[0]],
    [
      /^\/functions\/runs\?/,
      () => {
        looks += 1;
        if (looks === 3) runs = [run('1', 'succeeded')];
        if (looks === 4) runs = [run('2', 'succeeded'), ...runs];
        return { runs };
      },
    ],
  ];
  const service = createServer((request, response) => {
    asked.push(request.url ?? '');
    if (request.url === '/functions/syncs/trigger') request.on('data', (part) => (triggered += part));
    const [, answer] = answers.find(([path]) => path.test(request.url ?? '')) ?? [];
    response.end(JSON.stringify(answer?.()));
  });
  service.listen(0, '127.0.0.1');
  await once(service, 'listening');
  t.after(() => service.close());
  const { port } = service.address() as AddressInfo;
  const api = createApi({ TRELLIS_URL: `http://127.0.0.1:${port}`, TRELLIS_SECRET_KEY: 'any' });
  const printed: string[] = [];
  const done = await runDeployed(api, {
    target: { integrationKey: 'api', name: 'rows', kind: 'sync' },
    connectionId: 'ada',
    variant: 'base',
    input: undefined,
    allowed: { Row: 7 },
    print: (line) => void printed.push(line),
  });
  assert.equal(done.run.id, '2');
  assert.deepEqual(JSON.parse(triggered), {
    integration_id: 'api',
    connection_id: 'ada',
    syncs: [{ name: 'rows', variant: 'base' }],
    allow_mass_delete: { Row: 7 },
  });
  assert.equal(asked.filter((path) => path === '/functions/syncs/trigger').length, 1);
  assert.match(printed[0]!, /^The sync is running/);
});

test('--allow-mass-delete accepts only a model and a number', async () => {
  for (const given of ['Row', 'Row=', 'Row=0', '=3', 'Row=1.5']) {
    const options = { connection: 'ada', variant: 'base', allowMassDelete: [given] };
    await assert.rejects(runCommand('api/rows', options), { name: 'UsageError' });
  }
});
