import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { deployBody, flowConfig } from '../../../test/support/functions.ts';
import { connect, openTrellis, type TestTrellis } from '../../../test/support/trellis.ts';

let trellis: TestTrellis;
let connectionId: string;
let headers: Record<string, string>;
before(async () => {
  trellis = await openTrellis();
  ({ connectionId, headers } = await connect(trellis));
  await trellis.call('POST', '/sync/deploy', {
    body: deployBody([flowConfig({ name: 'rows', code: rows, type: 'sync' })], { reconcile: false }),
  });
});
after(() => trellis.close());

// Its first run makes two records, and each one after it a third.
const rows = `
const { z } = require('zod');
exports.default = {
  type: 'sync', description: 'Rows.', frequency: 'every hour', autoStart: false,
  models: { Row: z.object({ id: z.string() }) },
  async exec(nango) {
    if (nango.variant === 'long') await nango.log('long begins');
    const checkpoint = await nango.getCheckpoint();
    await nango.batchSave(checkpoint ? [{ id: '3' }] : [{ id: '1' }, { id: '2' }], 'Row');
    await nango.saveCheckpoint({ seen: true });
    if (nango.variant === 'long') {
      await new Promise((done) => nango.signal.addEventListener('abort', done));
      throw new Error('told to end');
    }
  },
};`;

type Status = Record<string, unknown> & { status: string; name: string; variant: string };
type Run = Record<string, unknown> & { id: string; state: string };
const place = () => ({ provider_config_key: 'google-sheet', connection_id: connectionId });
const post = (path: string, body: object = {}) =>
  trellis.call('POST', path, { body: { ...place(), ...body } });
const statuses = async (syncs = '*') =>
  (
    await trellis.call(
      'GET',
      `/sync/status?syncs=${syncs}&provider_config_key=google-sheet&connection_id=${connectionId}`,
    )
  ).body.syncs as Status[];
const runs = async (query = '') => (await trellis.call('GET', `/functions/runs${query}`)).body.runs as Run[];
const settled = async () => {
  for (;;) {
    const states = (await runs()).map(({ state }) => state);
    if (!states.includes('waiting') && !states.includes('running')) return;
    await pause(50);
  }
};
const codeOf = ({ status, body }: { status: number; body: Record<string, unknown> }) => [
  status,
  (body.error as { code: string } | undefined)?.code,
];
const ids = async () =>
  ((await trellis.call('GET', '/records?model=Row', { headers })).body.records as { id: string }[]).map(
    ({ id }) => id,
  );

test('a sync is triggered, shown, paused and started, and shows its runs', async () => {
  assert.deepEqual(await statuses(), []);
  assert.deepEqual((await post('/sync/trigger', { syncs: ['rows'] })).body, { success: true });
  await settled();
  const [first] = await statuses('rows');
  const { id, finishedAt, nextScheduledSyncAt, ...told } = first!;
  assert.ok(typeof id === 'string' && Date.parse(finishedAt as string) > 0);
  assert.deepEqual(told, {
    connection_id: connectionId,
    name: 'rows',
    variant: 'base',
    type: 'INCREMENTAL',
    status: 'PAUSED',
    frequency: 'every hour',
    latestExecutionStatus: 'SUCCESS',
    latestResult: { Row: { added: 2, updated: 0, deleted: 0 } },
    recordCount: { Row: 2 },
    checkpoint: { seen: true },
    error: null,
    held: null,
    push: null,
  });
  assert.equal(nextScheduledSyncAt, null);
  await post('/sync/start', { syncs: ['rows'] });
  const [started] = await statuses('rows,none::other');
  assert.equal(started?.status, 'SUCCESS');
  assert.ok(Date.parse(started.nextScheduledSyncAt as string) > Date.now());
  await post('/sync/pause', { syncs: [{ name: 'rows' }] });
  assert.equal((await statuses())[0]?.status, 'PAUSED');

  const [run] = await runs('?function=rows&kind=sync&state=succeeded');
  assert.deepEqual(run?.counts, { Row: { added: 2, updated: 0, deleted: 0, unchanged: 0 } });
  assert.deepEqual([run?.trigger, run?.version, run?.connection_id], ['manual', 1, connectionId]);
  assert.deepEqual((await trellis.call('GET', `/functions/runs/${run?.id}`)).body, run);
  assert.deepEqual((await trellis.call('GET', `/functions/runs/${run?.id}/lines`)).body, {
    lines: [],
    has_more: false,
    next_after: null,
    next_cursor: null,
  });
  assert.deepEqual(await runs(`?cursor=${run?.id}`), []);
  for (;;) {
    const { operations } = (await trellis.call('GET', '/operations?type=run')).body as {
      operations: { path: string; status: string; request_id: string; details: Record<string, unknown> }[];
    };
    const [operation] = operations;
    if (operation === undefined) {
      await pause(50);
      continue;
    }
    const { path, status, request_id, details } = operation;
    assert.deepEqual([path, status, request_id, details.added], ['rows', 'success', run?.id, 2]);
    break;
  }
});

test('a reset forgets the checkpoint, and with the cache the records', async () => {
  await post('/sync/trigger', { syncs: [] });
  await settled();
  assert.deepEqual(await ids(), ['1', '2', '3']);
  await post('/sync/trigger', { syncs: ['rows'], opts: { emptyCache: true } });
  await settled();
  assert.deepEqual(await ids(), ['1', '2', '3']);
  await post('/sync/trigger', { syncs: ['rows::base'], opts: { reset: true, emptyCache: true } });
  await settled();
  assert.deepEqual(await ids(), ['1', '2']);
  assert.deepEqual((await statuses())[0]?.latestResult, { Row: { added: 2, updated: 0, deleted: 0 } });
  const entries = (await trellis.call('GET', '/audit?action=sync.reset')).body.entries as object[];
  const entry = { actor: 'key:1', target: `google-sheet/${connectionId}` };
  assert.partialDeepStrictEqual(entries, [{ ...entry, details: { syncs: 'rows', records: 'removed' } }]);
  await post('/sync/trigger', { syncs: ['rows'], sync_mode: 'full_refresh' });
  await settled();
  assert.deepEqual((await statuses())[0]?.latestResult, { Row: { added: 0, updated: 0, deleted: 0 } });
});

test('a held mass deletion is allowed for one sync of one connection, listed, and noted in the audit log', async () => {
  const allow = (allowed: object, more: object = {}) =>
    post('/sync/trigger', { syncs: ['rows'], allow_mass_delete: allowed, ...more });
  const listed = async () =>
    (
      (await trellis.call('GET', '/functions/syncs?function=rows')).body.syncs as { held_deletes: object[] }[]
    )[0]?.held_deletes;
  assert.deepEqual(codeOf(await allow({ Row: 1 })), [400, 'no_delete_tracking']);
  assert.deepEqual(codeOf(await allow({ Other: 1 })), [400, 'invalid_body']);
  for (const bad of [{}, { Row: 0 }, { Row: 1.5 }, { Row: '1' }])
    assert.deepEqual(codeOf(await allow(bad)), [400, 'invalid_body'], JSON.stringify(bad));
  for (const more of [{ syncs: [] }, { connection_id: undefined }, { opts: { reset: true } }])
    assert.deepEqual(codeOf(await allow({ Row: 1 }, more)), [400, 'invalid_body'], JSON.stringify(more));
  assert.equal(await listed(), undefined);

  const calls = (path: string, body: object) => trellis.call('POST', path, { headers, body });
  await trellis.call('PATCH', '/records/datasets', {
    headers,
    body: { model: 'Row', mass_delete: { share: 0, number: 0 } },
  });
  await calls('/records/track-deletes/start', { model: 'Row' });
  const refused = await calls('/records/track-deletes/end', { model: 'Row' });
  assert.deepEqual(codeOf(refused), [409, 'mass_delete_held']);
  const { would_delete: count, live } = (
    refused.body.error as { payload: { would_delete: number; live: number } }
  ).payload;
  assert.deepEqual(await listed(), [{ model: 'Row', would_delete: count, live, allowed: null }]);
  const tooMany = await allow({ Row: count + 1 });
  assert.deepEqual(codeOf(tooMany), [400, 'invalid_body']);
  const { message } = tooMany.body.error as { message: string };
  assert.ok(message.includes(`is of ${count} records of "Row"`), message);
  assert.deepEqual((await allow({ Row: count })).body, { success: true });
  await settled();
  assert.deepEqual(await listed(), [{ model: 'Row', would_delete: count, live: live + 1, allowed: count }]);
  const entries = (await trellis.call('GET', '/audit?action=sync.mass_delete_allowed')).body
    .entries as object[];
  assert.partialDeepStrictEqual(entries, [
    {
      actor: 'key:1',
      target: `google-sheet/${connectionId}`,
      details: { syncs: 'rows', models: `Row: ${count}` },
    },
  ]);
  await post('/sync/trigger', { syncs: ['rows'], opts: { reset: true, emptyCache: true } });
  await settled();
  assert.equal(await listed(), undefined);
});

test('a variant has records, a checkpoint and a frequency of its own; what runs of it can be cancelled', async () => {
  const variant = '/sync/rows/variant/long';
  const made = await post(variant);
  assert.deepEqual([made.status, made.body.name, made.body.variant], [200, 'rows', 'long']);
  assert.deepEqual(codeOf(await post(variant)), [400, 'sync_variant_already_exists']);
  assert.deepEqual(codeOf(await post('/sync/rows/variant/base')), [400, 'invalid_variant']);
  const change = (frequency: string | null) =>
    trellis.call('PUT', '/sync/update-connection-frequency', {
      body: { ...place(), sync_name: 'rows', sync_variant: 'long', frequency },
    });
  assert.deepEqual((await change('every 2 hours')).body, { frequency: '2 hours' });
  assert.deepEqual(codeOf(await change('every 3 seconds')), [400, 'invalid_body']);
  assert.deepEqual((await change(null)).body, { frequency: 'every hour' });
  await post('/sync/trigger', { syncs: [{ name: 'rows', variant: 'long' }] });
  for (;;) {
    const [status] = await statuses('rows::long');
    const [run] = await runs('?state=running');
    if (
      status?.status === 'RUNNING' &&
      run &&
      status.recordCount &&
      (status.recordCount as { Row?: number }).Row === 2
    ) {
      const cancelled = await trellis.call('POST', `/functions/runs/${run.id}/cancel`);
      assert.equal(cancelled.body.cancel_requested, true);
      break;
    }
    await pause(50);
  }
  await settled();
  const [run] = await runs();
  assert.deepEqual([run?.state, run?.variant], ['cancelled', 'long']);
  const { lines } = (await trellis.call('GET', `/functions/runs/${run?.id}/lines`)).body as {
    lines: { message: string }[];
  };
  assert.deepEqual(
    lines.map(({ message }) => message),
    ['long begins'],
  );
  assert.deepEqual((await trellis.call('DELETE', variant, { body: place() })).body, { success: true });
  assert.deepEqual(codeOf(await trellis.call('DELETE', variant, { body: place() })), [400, 'unknown_sync']);
  const kept = await trellis.call('GET', '/records?model=Row&variant=long', { headers });
  assert.equal((kept.body.records as []).length, 2);
});

test('a missing item is named', async () => {
  const trigger = (body: object) => trellis.call('POST', '/sync/trigger', { body });
  const key = 'google-sheet';
  assert.deepEqual(codeOf(await trigger({ syncs: ['rows'] })), [400, 'missing_provider_config_key']);
  assert.deepEqual(codeOf(await trigger({ syncs: [], provider_config_key: 'none' })), [
    400,
    'unknown_provider_config',
  ]);
  assert.deepEqual(codeOf(await trigger({ syncs: ['none'], provider_config_key: key })), [
    400,
    'no_syncs_found',
  ]);
  const unknown = { syncs: ['rows'], provider_config_key: key, connection_id: 'none' };
  assert.deepEqual(codeOf(await trigger(unknown)), [404, 'unknown_connection']);
  for (const [syncs, code] of [
    [['rows::none'], 'no_syncs_found'],
    [['rows::a::b'], 'invalid_body'],
    [[{ name: 'rows', variant: 'none' }], 'no_syncs_found'],
  ] as const)
    assert.deepEqual(codeOf(await trigger({ ...place(), syncs })), [400, code]);
  const both = { syncs: ['rows'], provider_config_key: key, opts: {}, full_resync: true };
  assert.deepEqual(codeOf(await trigger(both)), [400, 'invalid_body']);
  assert.deepEqual(await statuses('none'), []);
  const other = await trellis.call('GET', '/functions/runs', { key: trellis.keys.prod });
  assert.deepEqual(other.body.runs, []);
  const [run] = await runs();
  const after = await trellis.call('GET', `/functions/runs/${run!.id}/lines?after=99999999999`);
  assert.deepEqual(codeOf(after), [400, 'invalid_query_params']);
});
