import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { placeEntries } from '../../../test/support/audit.ts';
import type { WirePage } from '../../../test/support/records.ts';
import { connect, openTrellis, type TestTrellis } from '../../../test/support/trellis.ts';

let trellis: TestTrellis;
let headers: Record<string, string>;
before(async () => {
  trellis = await openTrellis();
  ({ headers } = await connect(trellis));
});
after(() => trellis.close());

const call = async (route: string, body?: unknown) => {
  const [method = '', path = ''] = route.split(' ');
  const answer = await trellis.call(method, path, { headers, ...(body !== undefined && { body }) });
  return [answer.status, answer.body] as [number, Record<string, unknown>];
};
const errorOf = ([status, body]: [number, Record<string, unknown>]) => {
  const error = body.error as { code: string; errors?: { path: string[] }[]; payload?: unknown };
  return [status, error.code, error.errors?.[0]?.path ?? error.payload];
};
const list = async (model: string) =>
  ((await call(`GET /records?model=${model}&limit=1000`))[1] as unknown as WirePage).records;
const many = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, index) => ({ id: from + index, x: 1 }));

test('records are updated and deleted over HTTP, and every id that was left alone is named', async () => {
  await call('POST /records', { model: 'W', records: many(1, 4) });
  const [first] = await list('W');
  await call('PATCH /records/prune', { model: 'W', until_cursor: first?._trellis_metadata.cursor });
  const deleted = await call('POST /records/delete', { model: 'W', ids: [2, '2', 'none'] });
  assert.deepEqual(deleted, [200, { count: 1, already_deleted: [], missing: ['none'] }]);
  const again = await call('POST /records/delete', { model: 'W', ids: ['2'] });
  assert.deepEqual(again, [200, { count: 0, already_deleted: ['2'], missing: [] }]);
  const updated = await call('PATCH /records', {
    model: 'W',
    records: [1, 2, 3, 4, 5].map((id) => ({ id, x: id === 4 ? 1 : 2 })),
  });
  assert.deepEqual(updated, [
    200,
    { counts: { updated: 1, unchanged: 1 }, missing: ['5'], deleted: ['2'], pruned: ['1'] },
  ]);
});

test('delete tracking is held over HTTP with both numbers, shown on the dataset, and continues with an override', async () => {
  await call('POST /records', { model: 'T', records: many(1, 120) });
  assert.deepEqual(await call('POST /records/track-deletes/start', { model: 'T' }), [
    200,
    { resumed: false },
  ]);
  assert.deepEqual(await call('POST /records/track-deletes/start', { model: 'T', variant: 'base' }), [
    200,
    { resumed: true },
  ]);
  await call('POST /records', { model: 'T', records: many(1, 2) });
  const end = (body = {}) => call('POST /records/track-deletes/end', { model: 'T', ...body });
  const tracking = async () => {
    const [, body] = await call('GET /records/datasets');
    const datasets = body.datasets as { model: string; delete_tracking: string | null }[];
    return datasets.find(({ model }) => model === 'T')?.delete_tracking;
  };
  assert.equal(await tracking(), 'open');
  assert.deepEqual(errorOf(await end()), [409, 'mass_delete_held', { would_delete: 118, live: 120 }]);
  assert.equal(await tracking(), 'held');
  assert.equal((await list('T')).length, 120);
  const [, events] = await call('GET /events?limit=1000');
  const reported = (events.events as { type: string; data: Record<string, unknown> }[]).filter(
    ({ type }) => type === 'records.mass_delete_held',
  );
  assert.deepEqual(
    reported.map(({ data }) => data),
    [
      {
        connection_id: headers['connection-id'],
        integration_id: headers['provider-config-key'],
        provider_config_key: headers['provider-config-key'],
        model: 'T',
        variant: 'base',
        would_delete: 118,
        live: 120,
      },
    ],
  );
  const [status, body] = await end({ override: true });
  assert.deepEqual([status, body.count, (body.deleted_keys as string[]).slice(0, 2)], [200, 118, ['3', '4']]);
  assert.equal(await tracking(), null);
  assert.deepEqual(errorOf(await end()), [400, 'no_delete_tracking', undefined]);
});

test('settings are set, kept and shown; a save names its changed fields', async () => {
  const [status, made] = await call('PATCH /records/datasets', {
    model: 'S',
    ignore_fields: ['at'],
    mass_delete: { share: 0.1 },
  });
  assert.deepEqual(
    [status, made],
    [
      200,
      {
        model: 'S',
        variant: 'base',
        records: 0,
        deleted: 0,
        pruned: 0,
        payload_bytes: 0,
        first_cursor: null,
        last_cursor: null,
        last_modified_at: null,
        ignore_fields: ['at'],
        keep_previous: false,
        mass_delete: { share: 0.1, number: 100 },
        delete_tracking: null,
      },
    ],
  );
  await call('POST /records', { model: 'S', records: [{ id: 'constructor', x: 1, at: 1 }] });
  const [, saved] = await call('POST /records', {
    model: 'S',
    records: [{ id: 'constructor', x: 2, at: 2 }, { id: '__proto__' }],
    changed_fields: true,
  });
  assert.deepEqual(saved.changed_fields, { constructor: ['x'] });
  const [, proto] = await call('POST /records', {
    model: 'S',
    records: [{ id: '__proto__', x: 1 }],
    changed_fields: true,
  });
  assert.equal(JSON.stringify(proto.changed_fields), '{"__proto__":["x"]}');
  const [, plain] = await call('POST /records', {
    model: 'S',
    records: [{ id: 'constructor', x: 2, at: 3 }],
    ignore_fields: [],
  });
  assert.deepEqual((plain.counts as { updated: number }).updated, 1);
  assert.equal('changed_fields' in plain, false);
  const [, { datasets }] = await call('GET /records/datasets');
  const shown = (datasets as { model: string; last_modified_at: string; last_cursor: string }[]).find(
    ({ model }) => model === 'S',
  );
  const last = (await list('S')).at(-1)?._trellis_metadata;
  assert.deepEqual([shown?.last_cursor, shown?.last_modified_at], [last?.cursor, last?.last_modified_at]);
});

test('a dataset shows that it keeps former payloads, and a list has former values on request', async () => {
  const [, set] = await call('PATCH /records/datasets', { model: 'K', keep_previous: true });
  assert.equal(set.keep_previous, true);
  const [, { datasets }] = await call('GET /records/datasets');
  const shown = (datasets as { model: string; keep_previous: boolean }[]).find(({ model }) => model === 'K');
  assert.equal(shown?.keep_previous, true);
  await call('POST /records', {
    model: 'K',
    records: [{ id: 'a', city: 'Oslo', pets: ['cat'] }, { id: 'b' }],
  });
  await call('POST /records', { model: 'K', records: [{ id: 'a', city: 'Rome', zip: 1, pets: ['cat'] }] });
  await placeEntries(trellis.db);
  const [audited] = await trellis.db.query<{ details: Record<string, unknown> }>(
    `select details from audit where action = 'dataset.changed' order by id desc limit 1`,
  );
  assert.equal(audited?.details.keep_previous, true);
  const page = async (query: string) =>
    (await call(`GET /records?model=K${query}`))[1] as unknown as WirePage;
  assert.deepEqual(
    (await page('&changes=true')).records.map(({ id, _trellis_metadata: { changes } }) => [id, changes]),
    [
      ['b', null],
      ['a', { fields: ['city', 'zip'], previous: { city: 'Oslo' } }],
    ],
  );
  const plain = await page('');
  assert.deepEqual(await page('&changes=false'), plain);
  assert.ok(plain.records.every(({ _trellis_metadata: metadata }) => !('changes' in metadata)));
  await call('PATCH /records/prune', {
    model: 'K',
    until_cursor: plain.records[1]?._trellis_metadata.cursor,
  });
  const pruned = (await page('&changes=true')).records[1];
  assert.deepEqual([pruned?.city, pruned?._trellis_metadata.changes], [undefined, null]);
});

test('an estimate over HTTP is what the prune removes', async () => {
  await call('POST /records', { model: 'E', records: many(1, 10) });
  const until_cursor = (await list('E'))[6]?._trellis_metadata.cursor;
  const [status, { count, bytes }] = await call('POST /records/prune/estimate', { model: 'E', until_cursor });
  assert.deepEqual([status, count, Number(bytes) > 0], [200, 7, true]);
  const wrong = await call('POST /records/prune/estimate', { model: 'E', until_cursor: 'x' });
  assert.deepEqual(errorOf(wrong), [400, 'invalid_cursor', undefined]);
});

test('a body that does not fit is refused, names the field, and changes nothing', async () => {
  await call('POST /records', { model: 'B', records: many(1, 3) });
  const before = await list('B');
  const cases: [route: string, body: object, path: string[], code?: string][] = [
    ...[[''], [1.5], [null], ['a\0'], ['x'.repeat(256)], [{}], ['\ud800'], [2 ** 53]].map(
      (ids): [string, object, string[]] => ['POST /records/delete', { ids }, ['ids', '0']],
    ),
    ['POST /records/delete', { ids: '1' }, ['ids']],
    ['POST /records/delete', {}, ['ids']],
    ['POST /records/delete', { ids: Array(10_001).fill('a') }, ['ids']],
    ['PATCH /records', { records: {} }, ['records']],
    ['PATCH /records', { records: Array(10_001).fill({ id: 1 }) }, ['records']],
    ['PATCH /records', { records: [{ id: 1, x: 2 }, { x: 2 }] }, ['records', '1', 'id'], 'invalid_record'],
    ['PATCH /records', { records: [], ignore_fields: [] }, []],
    ['POST /records/track-deletes/start', { override: true }, []],
    ['POST /records/track-deletes/end', { override: 'yes' }, ['override']],
    ['POST /records', { records: [], ignore_fields: 'at' }, ['ignore_fields']],
    ['POST /records', { records: [], ignore_fields: [7] }, ['ignore_fields', '0']],
    ['POST /records', { records: [], changed_fields: 1 }, ['changed_fields']],
    ['PATCH /records/datasets', { ignore_fields: ['a\0'] }, ['ignore_fields', '0']],
    ['PATCH /records/datasets', { keep_previous: 'yes' }, ['keep_previous']],
    ...[-0.1, 1.1, '0.5', null].map((share): [string, object, string[]] => [
      'PATCH /records/datasets',
      { mass_delete: { share } },
      ['mass_delete', 'share'],
    ]),
    ...[-1, 1.5, 2 ** 53].map((number): [string, object, string[]] => [
      'PATCH /records/datasets',
      { mass_delete: { number } },
      ['mass_delete', 'number'],
    ]),
    ['POST /records/prune/estimate', { until_cursor: '' }, ['until_cursor']],
    ['POST /records/prune/estimate', { until_cursor: 'x', limit: 1 }, []],
  ];
  for (const [route, body, path, code = 'invalid_body'] of cases) {
    const answer = await call(route, { model: 'B', ...body });
    const [status, given, where] = errorOf(answer);
    assert.deepEqual([status, given], [400, code], `${route} ${JSON.stringify(body).slice(0, 80)}`);
    if (path.length > 0) assert.deepEqual(where, path, `${route} ${JSON.stringify(body).slice(0, 80)}`);
  }
  for (const route of [
    'PATCH /records',
    'POST /records/delete',
    'POST /records/track-deletes/start',
    'POST /records/track-deletes/end',
    'PATCH /records/datasets',
    'POST /records/prune/estimate',
  ]) {
    const [status, body] = await call(route, { model: 'a b' });
    assert.equal(status, 400, route);
    assert.match(JSON.stringify(body), /"model"/, route);
  }
  assert.deepEqual(await list('B'), before);
});
