import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { WirePage } from '../../../test/support/records.ts';
import { connect, openTrellis, type TestTrellis } from '../../../test/support/trellis.ts';

let trellis: TestTrellis;
let headers: Record<string, string>;
before(async () => {
  trellis = await openTrellis();
  ({ headers } = await connect(trellis));
});
after(() => trellis.close());

const save = (body: unknown) => trellis.call('POST', '/records', { headers, body });
const prune = (body: unknown) => trellis.call('PATCH', '/records/prune', { headers, body });
const list = async (query: string) => {
  const answer = await trellis.call('GET', `/records?${query}`, { headers });
  assert.equal(answer.status, 200, answer.text);
  return answer.body as unknown as WirePage;
};
const three = ['a', 'b', 'c'].map((id) => ({ id, x: 1 }));

test('records are saved, listed, pruned and restored over HTTP', async () => {
  const saved = await save({ model: 'Journey', records: [...three, { id: 'c', x: 2 }] });
  assert.deepEqual(
    [saved.status, saved.body],
    [
      200,
      {
        counts: { added: 3, updated: 0, unchanged: 0, restored: 0 },
        keys: { added: ['a', 'b', 'c'], updated: [], restored: [] },
        duplicates: ['c'],
      },
    ],
  );
  const page = await list('model=Journey&variant=base&limit=2');
  assert.equal(page.next_cursor, page.records[1]?._trellis_metadata.cursor);
  const pruned = await prune({ model: 'Journey', until_cursor: page.next_cursor, limit: 1 });
  assert.deepEqual([pruned.status, pruned.body], [200, { count: 1, has_more: true }]);
  const again = await prune({ model: 'Journey', until_cursor: page.next_cursor });
  assert.deepEqual(again.body, { count: 1, has_more: false });
  const after = await list('model=Journey');
  assert.deepEqual(
    after.records.map((record) => Object.keys(record).length),
    [2, 2, 3],
  );
  const restored = await save({ model: 'Journey', records: three.slice(0, 2) });
  assert.deepEqual(restored.body.counts, { added: 0, updated: 0, unchanged: 2, restored: 2 });
  assert.deepEqual((await list('model=Journey&limit=2')).records, page.records);
});

test('a prune body that does not fit is refused, names the field, and prunes nothing', async () => {
  await save({ model: 'Bad', records: three });
  const until_cursor = (await list('model=Bad')).records[2]?._trellis_metadata.cursor;
  const good = { model: 'Bad', until_cursor };
  const cases: [body: Record<string, unknown>, field: string][] = [
    ...[0, 10_001, -1, 1.5, '10', true, null, [], {}].map((limit): [Record<string, unknown>, string] => [
      { ...good, limit },
      'limit',
    ]),
    ...['', null, 5, true, 'a b', '-a', 'x'.repeat(256), 'a\0', undefined].map(
      (model): [Record<string, unknown>, string] => [{ ...good, model }, 'model'],
    ),
    ...['', null, 5, 'a\0b', '\ud800', 'x'.repeat(256)].map((variant): [Record<string, unknown>, string] => [
      { ...good, variant },
      'variant',
    ]),
    ...['', null, 5, undefined].map((cursor): [Record<string, unknown>, string] => [
      { ...good, until_cursor: cursor },
      'until_cursor',
    ]),
  ];
  for (const [body, field] of cases) {
    const { status, body: answer } = await prune(body);
    const { code, errors } = answer.error as { code: string; errors: { path: string[] }[] };
    assert.deepEqual([status, code, errors[0]?.path], [400, 'invalid_body', [field]], JSON.stringify(body));
  }
  const unknown = await prune({ ...good, dry_run: true });
  assert.equal(unknown.status, 400);
  assert.match(unknown.text, /dry_run/);
  for (const cursor of ['nonsense', `${until_cursor}A`, `${until_cursor}=`, `${until_cursor}`.slice(1)]) {
    const { status, body } = await prune({ ...good, until_cursor: cursor });
    assert.deepEqual([status, (body.error as { code: string }).code], [400, 'invalid_cursor']);
  }
  assert.ok((await list('model=Bad')).records.every((record) => record.x === 1));
});

test('a query that does not fit is refused and names the parameter', async () => {
  const cases = {
    model: ['', 'model=', 'model=a%20b', 'model=A&model=B', 'model=%00'],
    variant: ['model=A&variant=', 'model=A&variant=%00'],
    limit: ['0', '10001', '1.5', '0x5', '', 'ten', '-1', '1e3', '%201', '5&limit=6'].map(
      (limit) => `model=A&limit=${limit}`,
    ),
    filter: ['model=A&filter=', 'model=A&filter=added,gone', 'model=A&filter=added,'],
    ids: ['model=A&ids=', 'model=A&ids=a%00', `model=A${'&ids=x'.repeat(101)}`],
    modified_after: ['', 'yesterday', '2026-02-30', '2026-11-21T25:00:00Z', '1700000000', '2026'].map(
      (time) => `model=A&modified_after=${time}`,
    ),
    cursor: ['model=A&cursor='],
    changes: ['', '1', 'yes', 'TRUE', 'true&changes=true'].map((changes) => `model=A&changes=${changes}`),
  };
  for (const [field, queries] of Object.entries(cases)) {
    for (const query of queries) {
      const { status, body } = await trellis.call('GET', `/records?${query}`, { headers });
      const error = body.error as { code: string; errors: { path: string[] }[] };
      assert.deepEqual(
        [status, error.code, error.errors[0]?.path[0]],
        [400, 'invalid_query_params', field],
        query,
      );
    }
  }
  const { status, body } = await trellis.call('GET', '/records?model=A&cursor=nonsense', { headers });
  assert.deepEqual([status, (body.error as { code: string }).code], [400, 'invalid_cursor']);
});

test('a save that does not fit is refused, names index and field, and saves nothing', async () => {
  const bodies: [body: unknown, code: string, path: string[]][] = [
    [{ model: 'Refused', records: [{ id: 'a' }, { id: 2 ** 53 }] }, 'invalid_record', ['records', '1', 'id']],
    [
      { model: 'Refused', records: [{ id: 'a', n: [2 ** 60] }] },
      'invalid_record',
      ['records', '0', 'n', '0'],
    ],
    [{ model: 'Refused', records: {} }, 'invalid_body', ['records']],
    [{ model: 'Refused' }, 'invalid_body', ['records']],
    [{ model: 'Refused', records: three, restore: 'never' }, 'invalid_body', ['restore']],
    [{ records: three }, 'invalid_body', ['model']],
  ];
  for (const [body, code, path] of bodies) {
    const answer = await save(body);
    const error = answer.body.error as { code: string; errors: { path: string[] }[] };
    assert.deepEqual([answer.status, error.code, error.errors[0]?.path], [400, code, path]);
  }
  assert.deepEqual(await list('model=Refused'), { records: [], next_cursor: null });
});

test('a save of more than 32 MB is refused as too large', async () => {
  const { status, body } = await save(`{"model":"Large","records":[${' '.repeat(32 * 1024 * 1024)}]}`);
  assert.deepEqual([status, (body.error as { code: string }).code], [413, 'body_too_large']);
});

test('filters in any case, repeated ids and any ISO 8601 time are understood, our own included', async () => {
  await save({ model: 'Filters', records: three });
  await save({ model: 'Filters', records: [{ id: 'a', x: 2 }] });
  const idsOf = async (query: string) => (await list(`model=Filters&${query}`)).records.map(({ id }) => id);
  assert.deepEqual(await idsOf('filter=ADDED'), ['b', 'c']);
  assert.deepEqual(await idsOf('filter=updated,%20Added'), ['b', 'c', 'a']);
  assert.deepEqual(await idsOf('ids=c&ids=b&ids=none'), ['b', 'c']);
  assert.deepEqual(await idsOf('ids=c'), ['c']);
  const time = (await list('model=Filters')).records[2]?._trellis_metadata.last_modified_at ?? '';
  for (const spelled of [time, encodeURIComponent(time), time.replace('+00:00', 'Z')]) {
    assert.deepEqual(await idsOf(`modified_after=${spelled}`), ['a'], spelled);
  }
  for (const early of ['2020-01-01', '2020-01-01T00:00:00', '2020-01-01T00:00:00%2B05:30', '-000001-01-01']) {
    assert.equal((await idsOf(`modified_after=${early}`)).length, 3, early);
  }
  assert.deepEqual(await idsOf('modified_after=2999-01-01T00:00Z'), []);
});

test('a call without the headers of a connection, or for an unknown one, is refused on every route', async () => {
  const routes: [string, string, unknown?][] = [
    ['GET', '/records?model=A'],
    ['POST', '/records', { model: 'A', records: [] }],
    ['PATCH', '/records', { model: 'A', records: [] }],
    ['POST', '/records/delete', { model: 'A', ids: [] }],
    ['POST', '/records/track-deletes/start', { model: 'A' }],
    ['POST', '/records/track-deletes/end', { model: 'A' }],
    ['GET', '/records/datasets'],
    ['PATCH', '/records/datasets', { model: 'A' }],
    ['POST', '/records/prune/estimate', { model: 'A', until_cursor: 'x' }],
    ['PATCH', '/records/prune', { model: 'A', until_cursor: 'x' }],
  ];
  for (const [method, path, body] of routes) {
    const withHeaders = async (given: Record<string, string>) => {
      const answer = await trellis.call(method, path, {
        headers: given,
        ...(body !== undefined && { body }),
      });
      return [answer.status, (answer.body.error as { code: string }).code];
    };
    for (const name of Object.keys(headers)) {
      const { [name]: _, ...rest } = headers;
      assert.deepEqual(await withHeaders(rest), [400, 'invalid_headers'], `${method} without ${name}`);
    }
    assert.deepEqual(await withHeaders({ ...headers, 'connection-id': 'none' }), [400, 'unknown_connection']);
    assert.deepEqual(await withHeaders({ ...headers, 'provider-config-key': 'none' }), [
      400,
      'unknown_connection',
    ]);
  }
});
