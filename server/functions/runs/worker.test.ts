// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { recordStatements } from '../../../test/support/recorder.ts';
import { openRunsBench, type RunsBench, syncOf } from './runs.fixture.ts';

let bench: RunsBench;
beforeEach(async () => {
  bench = await openRunsBench();
});
afterEach(() => bench.end());

test('a sync reads an API through the proxy, saves its records, and reports its changes', async () => {
  bench.serve(({ url }, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify([{ id: `${url}-1` }, { id: `${url}-2` }]));
  });
  await bench.deploy(
    'rows',
    syncOf(`
      const { data } = await nango.get({ endpoint: '/rows', params: { a: 'b c' } });
      await nango.batchSave(data, 'Row');
      await nango.log('saved', data.length);
    `),
  );
  const { id } = await bench.connect('ada');
  await bench.one.runner.runDue();
  assert.deepEqual(
    (await bench.runs()).map(({ state, trigger, error }) => [state, trigger, error]),
    [['succeeded', 'schedule', null]],
  );
  assert.deepEqual(await bench.records(id), ['/rows?a=b+c-1', '/rows?a=b+c-2']);
  assert.deepEqual(await bench.lines(), ['saved 2']);
  const [event, none] = await bench.events('sync.%');
  assert.equal(none, undefined);
  assert.equal(event?.type, 'sync.changed');
  const { connection_id, model, sync_type, added, updated, deleted } = event.data;
  assert.deepEqual(
    [connection_id, model, sync_type, added, updated, deleted],
    ['ada', 'Row', 'INITIAL', 2, 0, 0],
  );
});

const json = (value: unknown) => (_request: unknown, response: import('node:http').ServerResponse) => {
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(value));
};
const outcomes = async () => (await bench.runs()).map(({ state, error }) => [state, error?.code]);
test('the next run continues at the checkpoint, which is stored sealed', async () => {
  await bench.deploy(
    'rows',
    syncOf(`
      const before = await nango.getCheckpoint();
      await nango.log(JSON.stringify(before));
      await nango.saveCheckpoint({ page: (before?.page ?? 0) + 1, at: 'secret place' });
      if (before?.page === 2) await nango.clearCheckpoint();
    `),
  );
  await bench.connect('ada');
  for (let n = 0; n < 4; n += 1) {
    await bench.one.runner.runDue();
    bench.advance(3_600_000);
  }
  assert.deepEqual(
    (await bench.lines()).map((line) => JSON.parse(line)?.page ?? null),
    [null, 1, 2, null],
  );
  const [stored] = await bench.db.query<{ value: Buffer }>('select value from function_checkpoint');
  assert.equal(stored?.value.includes('secret place'), false);
});

test('every kind of request is answered, and an invalid argument is refused by its name', async () => {
  bench.serve((request, response) => {
    let body = '';
    request.on('data', (part) => {
      body += part;
    });
    request.on('end', () => {
      response.statusCode = request.url === '/missing' ? 404 : 200;
      json({ method: request.method, url: request.url, own: request.headers['x-own'], body })(
        request,
        response,
      );
    });
  });
  await bench.deploy(
    'rows',
    syncOf(`
      const told = {};
      told.post = (await nango.post({ endpoint: 'things?x=1', data: { a: 1 }, headers: { 'X-Own': 'é'.normalize() === 'x' ? '' : 'yes' } })).data;
      told.missing = await nango.get({ endpoint: '/missing' }).catch((error) => [error.response.status, error.response.data.url]);
      told.fetched = await nango.uncontrolledFetch({ url: new URL('https://127.0.0.2:1/') }).catch((error) => error.code);
      await nango.setMetadata({ a: 1, b: 2 });
      await nango.updateMetadata({ b: 3 });
      told.metadata = await nango.getMetadata();
      const connection = await nango.getConnection();
      told.connection = [connection.connection_id, connection.provider_config_key, connection.metadata];
      told.integration = (await nango.getIntegration()).unique_key;
      told.webhook = await nango.getWebhookURL();
      told.variables = await nango.getEnvironmentVariables();
      told.locks = [
        await nango.tryAcquireLock({ key: 'k', ttlMs: 60000 }),
        await nango.tryAcquireLock({ key: 'k', ttlMs: 60000 }),
        await nango.releaseLock({ key: 'k' }),
        await nango.releaseLock({ key: 'k' }),
      ];
      await nango.batchSave([{ id: '1', deep: { a: 1, b: 1 } }, { id: 2 }, { id: '3' }], 'Row');
      await nango.batchSave([{ id: '3' }], 'Row');
      await nango.batchUpdate([{ id: '1', deep: { b: 2 } }, { id: 'unknown' }], 'Row');
      await nango.batchDelete([{ id: '2' }], 'Row');
      told.byId = [...(await nango.getRecordsByIds([1, 2, '3', 'none'], 'Row'))].map(([id, { deep, _trellis_metadata: of }]) => [id, deep, of.last_action]);
      told.listed = [];
      for await (const record of nango.listRecords('Row')) told.listed.push([record.id, record._trellis_metadata.last_action]);
      const refusal = (error) => [error.code, error.message];
      told.model = await nango.batchSave([{ id: 1 }], 'Other').catch(refusal);
      told.record = await nango.batchSave([{ id: '' }], 'Row').catch((error) => error.code);
      told.checkpoint = await nango.saveCheckpoint({ deep: { no: 1 } }).catch(refusal);
      told.lock = await nango.tryAcquireLock({ key: '', ttlMs: 1 }).catch((error) => error.code);
      await nango.log(JSON.stringify(told));
    `),
  );
  await bench.connect('ada');
  await bench.one.runner.runDue();
  assert.deepEqual(await outcomes(), [['succeeded', undefined]]);
  const told = JSON.parse((await bench.lines()).at(-1)!);
  assert.deepEqual(told, {
    post: { method: 'POST', url: '/things?x=1', own: 'yes', body: '{"a":1}' },
    missing: [404, '/missing'],
    fetched: 'upstream_unreachable',
    metadata: { a: 1, b: 3 },
    connection: ['ada', 'api', { a: 1, b: 3 }],
    integration: 'api',
    webhook: 'http://localhost:3003/webhook/dev/api',
    variables: [],
    locks: [true, true, true, false],
    byId: [
      [1, { a: 1, b: 2 }, 'UPDATED'],
      ['3', null, 'ADDED'],
    ].map((row) => row.map((value) => value ?? null)),
    listed: [
      ['3', 'ADDED'],
      ['1', 'UPDATED'],
      ['2', 'DELETED'],
    ],
    model: ['invalid_body', 'The function declares no model "Other".'],
    record: 'invalid_record',
    checkpoint: told.checkpoint,
    lock: 'invalid_body',
  });
  assert.equal(told.checkpoint[0], 'invalid_body');
  assert.deepEqual((await bench.runs())[0]?.counts, {
    Row: { added: 3, updated: 1, deleted: 1, unchanged: 1 },
  });
});

test('an outage is tried again after a while, from the checkpoint; what the code throws is not', async () => {
  let isDown = true;
  bench.serve((request, response) => {
    response.statusCode = isDown && request.url === '/down' ? 503 : 200;
    response.end('{}');
  });
  await bench.deploy(
    'rows',
    syncOf(`
      if (await nango.getCheckpoint()) { await nango.get({ endpoint: '/up' }); throw new Error('on purpose'); }
      await nango.saveCheckpoint({ begun: true });
      await nango.get({ endpoint: '/down' });
    `),
  );
  await bench.connect('ada');
  await bench.one.runner.runDue();
  assert.deepEqual(await outcomes(), [['waiting', 'ERR_BAD_RESPONSE']]);
  isDown = false;
  await bench.one.runner.runDue();
  assert.equal((await bench.runs())[0]?.attempt, 1);
  bench.advance(60_000);
  await bench.one.runner.runDue();
  const [run] = await bench.runs();
  assert.deepEqual([run?.state, run?.attempt, run?.error?.message], ['failed', 2, 'on purpose']);
  const [failed, none] = await bench.events('sync.failed');
  assert.deepEqual(
    [failed?.data.error, failed?.data.failures],
    [{ code: 'function_threw', message: 'on purpose' }, 1],
  );
  assert.equal(none, undefined);
});

test('a look that finds nothing to do is one statement', async () => {
  await bench.deploy('rows', syncOf(''));
  await bench.connect('ada');
  await bench.one.runner.runDue();
  const recorder = recordStatements();
  await bench.one.runner.runDue().finally(() => recorder.end());
  assert.equal(recorder.sent.length, 1);
});

test('the third failure in a row of a sync is reported once, and again after a success', async () => {
  let isDown = true;
  bench.serve((_, response) => response.writeHead(isDown ? 400 : 200).end('{}'));
  await bench.deploy('rows', syncOf(`await nango.get({ endpoint: '/rows' });`));
  await bench.connect('ada');
  const run = async (count: number) => {
    for (let n = 0; n < count; n += 1) {
      await bench.one.runner.runDue();
      bench.advance(3_600_000);
    }
    return (await bench.events('sync.failing')).length;
  };
  assert.equal(await run(2), 0);
  assert.equal(await run(3), 1);
  isDown = false;
  assert.equal(await run(1), 1);
  isDown = true;
  assert.equal(await run(2), 1);
  assert.equal(await run(1), 2);
  const [event] = await bench.events('sync.failing');
  assert.equal(event?.data.failures, 3);
});

test('a function does not start without its required scopes: this is reported once, and no run is stored', async () => {
  await bench.deploy('rows', syncOf(`await nango.log('started');`, `scopes: ['wide'],`));
  const { id } = await bench.connect('ada');
  const grant = (scopes: string[]) =>
    bench.db.query('update connection set scopes_granted = $1 where id = $2', [scopes, id]);
  await grant(['narrow']);
  for (let n = 0; n < 3; n += 1) {
    await bench.one.runner.runDue();
    bench.advance(3_600_000);
  }
  assert.deepEqual([await bench.runs(), await bench.lines()], [[], []]);
  const [held, none] = await bench.events('sync.%');
  assert.deepEqual(held?.data.error, {
    code: 'missing_scopes',
    message: 'The connection lacks scopes that the function needs: wide.',
  });
  assert.equal(none, undefined);
  await grant(['wide']);
  await pause(1_100);
  await bench.one.runner.runDue();
  assert.deepEqual([await outcomes(), await bench.lines()], [[['succeeded', undefined]], ['started']]);
  assert.deepEqual(await bench.db.query('select held from sync'), [{ held: null }]);
});
