import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { countingBlocks } from '../../test/support/blocks.ts';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import type { Queryable } from '../db/pool.ts';
import { type Logged, logAll } from './logging.fixture.ts';
import type { OperationFilter } from './operations.ts';
import { listDays } from './partitions.ts';
import { searchOperations } from './search.ts';
import { countOperations, seriesOf } from './series.ts';

let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
});
afterEach(async () => {
  for (const day of await listDays(database.db)) {
    await database.db.query(`drop table operation_${day}, operation_message_${day}`);
  }
  await database.db.query('truncate operation_count');
});
after(() => database.drop());

const environmentId = 1;

const log = (...entries: Logged[]) => logAll(database.db, entries);

/** The paths of one page, and how it goes on. */
async function page(
  filter: Partial<OperationFilter> = {},
  more: { before?: string | undefined; limit?: number; max?: number } = {},
) {
  const { operations, ...rest } = await searchOperations(database.db, {
    filter: { environmentId, ...filter },
    limit: 10,
    ...more,
  });
  return { paths: operations.map(({ path }) => path), ...rest };
}

/** All pages, and how many there were. */
async function all(filter: Partial<OperationFilter>, more: { limit?: number; max?: number } = {}) {
  const paths: unknown[] = [];
  let before: string | undefined;
  for (let pages = 1; ; pages += 1) {
    const one = await page(filter, { ...more, before });
    paths.push(...one.paths);
    if (one.next === undefined) return { paths, pages };
    assert.ok(before === undefined || one.next < before);
    before = one.next;
  }
}

test('filters find what they name, alone and together, and nothing of another environment', async () => {
  await log(
    { at: '2026-01-31T10:59:59.900Z', integration: 'sheet', connection: 'ada', path: '/v4/Values?a_%=1' },
    { at: '2026-01-31T10:59:59.900Z', environmentId: 2, integration: 'sheet', connection: 'ada', path: '/v4/values' },
    { at: '2026-01-31T11:00:00.000Z', integration: 'sheet', connection: 'bob', path: '/v4/other', status: 'failed', errorCode: 'upstream_timeout' },
    { at: '2026-02-01T00:00:00.000Z', integration: 'drive', connection: 'ada', path: '/drive' },
    { at: '2026-02-01T00:00:01.000Z', integration: 'drive', connection: 'ada', path: 'again', type: 'refresh', status: 'failed', messages: [{ level: 'info', message: 'asked' }, { level: 'error', message: 'The grant of ADA is Gone', details: { error: 'invalid_grant' } }] },
    { at: '2026-02-03T00:00:00.000Z', integration: 'drive', path: 'told', type: 'delivery' },
  ); // biome-ignore format: a line each
  const paths = async (filter: Partial<OperationFilter>) => {
    const found = await page(filter);
    assert.deepEqual([found.next, found.searchedUntil], [undefined, undefined]);
    // The same in many small steps.
    assert.deepEqual((await all(filter, { limit: 1, max: 1 })).paths, found.paths);
    return found.paths;
  };
  const [told, again, drive, other, values] = ['told', 'again', '/drive', '/v4/other', '/v4/Values?a_%=1'];
  assert.deepEqual(await paths({}), [told, again, drive, other, values]);
  assert.deepEqual(await paths({ connection: 'ada' }), [again, drive, values]);
  assert.deepEqual(await paths({ connection: 'none' }), []);
  assert.deepEqual(await paths({ integration: 'sheet' }), [other, values]);
  assert.deepEqual(await paths({ type: 'proxy' }), [drive, other, values]);
  assert.deepEqual(await paths({ type: 'delivery' }), [told]);
  assert.deepEqual(await paths({ type: 'connect' }), []);
  assert.deepEqual(await paths({ status: 'failed' }), [again, other]);
  assert.deepEqual(await paths({ status: 'success' }), [told, drive, values]);
  assert.deepEqual(await paths({ text: 'VALUES' }), [values]);
  assert.deepEqual(await paths({ text: '_%' }), [values]);
  assert.deepEqual(await paths({ text: 'STREAM_time' }), [other]);
  assert.deepEqual(await paths({ text: 'ada IS gone' }), [again]);
  assert.deepEqual(await paths({ text: 'invalid_GRANT' }), [again]);
  assert.deepEqual(await paths({ text: 'aDa' }), [again, drive, values]);
  assert.deepEqual(await paths({ text: 'nowhere' }), []);
  assert.deepEqual(await paths({ integration: 'sheet', status: 'failed' }), [other]);
  assert.deepEqual(await paths({ connection: 'ada', type: 'refresh', status: 'failed', text: 'asked' }), [
    again,
  ]);
  assert.deepEqual(await paths({ connection: 'ada', type: 'proxy', text: 'v' }), [drive, values]);
  assert.deepEqual(await paths({ type: 'refresh', status: 'success' }), []);
  const day = { from: new Date('2026-01-31T11:00:00Z'), to: new Date('2026-02-01') };
  assert.deepEqual(await paths(day), [other]);
  assert.deepEqual(await paths({ ...day, text: 'v4', connection: 'bob' }), [other]);
  assert.deepEqual(await paths({ from: new Date('2026-02-02') }), [told]);
  assert.deepEqual(await paths({ to: new Date('2026-01-31T11:00:00Z') }), [values]);
});

test('pages follow each other without a gap or a repetition, within a millisecond and across days', async () => {
  const at = ['2026-01-31T23:59:59.999Z', '2026-02-01T00:00:00.000Z', '2026-02-04T00:00:00.000Z'];
  const written = Array.from({ length: 30 }, (_, index) => ({
    at: at[Math.floor(index / 10)]!,
    path: `/${index}`,
  }));
  await log(...written);
  const expected = written.map(({ path }) => path).toReversed();
  for (const [limit, max] of [
    [10, 1000],
    [7, 1000],
    [7, 8],
    [1, 1],
    [100, 5],
  ] as const) {
    assert.deepEqual((await all({}, { limit, max })).paths, expected);
    assert.deepEqual((await all({ text: '/' }, { limit, max })).paths, expected);
  }
});

test('rare entries are searched in parts, and each part returns its position', async () => {
  const written = Array.from({ length: 40 }, (_, index) => ({
    at: `2026-01-31T10:00:${String(index).padStart(2, '0')}Z`,
    path: index === 3 ? '/rare' : '/often',
  }));
  await log(...written);
  const first = await page({ text: 'rare' }, { max: 15 });
  assert.deepEqual(first.paths, []);
  assert.deepEqual(first.searchedUntil, new Date('2026-01-31T10:00:25Z'));
  const second = await page({ text: 'rare' }, { max: 15, before: first.next });
  assert.deepEqual([second.paths, second.searchedUntil], [[], new Date('2026-01-31T10:00:10Z')]);
  const third = await page({ text: 'rare' }, { max: 15, before: second.next });
  assert.deepEqual([third.paths, third.next, third.searchedUntil], [['/rare'], undefined, undefined]);
});

test('no statement of a search or series that finds nothing reads many blocks, and a search reads 20,000 entries', async () => {
  await log({ at: '2026-01-31T00:00:00Z', path: '/old' });
  await database.db.query(
    `insert into operation (id, created_at, environment_id, type, status, integration, connection, actor, method, path)
     select
       (lpad(to_hex(ms), 12, '0') || '70008' || substr(md5(n::text), 1, 15))::uuid, to_timestamp(ms / 1000.0), $1,
       case when n % 3 = 0 then 'run' else 'proxy' end, 'success', 'sheet', 'connection-' || n % 2, 'key:1', 'GET', '/v4/spreadsheets/' || md5(n::text) || '/values'
     from generate_series(1, 25000) as n
     cross join lateral (select (extract(epoch from timestamptz '2026-01-31') * 1000)::bigint + n * 1000 as ms) as at`,
    [environmentId],
  );
  await database.db.query(
    `insert into operation_message (created_at, operation_id, position, level, message, details)
     select created_at, id, 0, 'error', 'The provider did not answer.', '{}' from operation where hashtext(id::text) % 10 = 0`,
  );
  for (const day of await listDays(database.db))
    await database.db.query(`vacuum analyze operation_${day}, operation_message_${day}`);
  const { db, reads } = countingBlocks(database.db);
  for (const more of [{ text: 'nowhere' }, { integration: 'none' }]) {
    const search = { filter: { environmentId, ...more }, limit: 50 };
    const { operations, searchedUntil } = await searchOperations(db, search);
    assert.deepEqual([operations, searchedUntil], [[], new Date('2026-01-31T01:23:21Z')]);
  }
  const range = { from: new Date('2026-01-31'), to: new Date('2026-02-01') };
  const filter = { environmentId, text: 'nowhere', ...range };
  await seriesOf(db, { filter, stepS: 900, kept: { sampleRate: 1, keptDays: 15 }, now: range.to });
  for (const { blocks, plan } of reads) assert.ok(blocks < 150, plan);
});

test('entries that come while it looks push none out of the page', async () => {
  const at = (second: number) => `2026-01-31T10:00:${String(second).padStart(2, '0')}Z`;
  const ways = [
    { more: { status: 'failed' }, max: 9 },
    { more: { connection: 'ada' }, max: 9 },
    { more: {}, max: 3 },
  ] as const;
  for (const { more, max } of ways) {
    await log(...[1, 2, 3, 4, 5].map((n) => ({ at: at(n), path: `/${n}`, ...more })));
    const { db } = database;
    let statements = 0;
    const busy: Queryable = {
      database: db.database,
      query: (text, values) => db.query(text, values),
      async run(built) {
        const rows = await db.run(built);
        statements += 1;
        if (statements === 1) await log({ at: at(9), path: '/9', ...more });
        return rows;
      },
    };
    const search = { filter: { environmentId, ...more, text: '/' }, limit: 10, max };
    const first = await searchOperations(busy, search);
    assert.ok(first.next !== undefined);
    const second = await searchOperations(db, { ...search, before: first.next });
    const paths = [...first.operations, ...second.operations].map(({ path }) => path);
    assert.deepEqual(paths, ['/9', '/5', '/4', '/3', '/2', '/1']);
    await db.query('truncate operation, operation_message, operation_count');
  }
});

test('days without any entry are passed, however many there are', async () => {
  const days = ['2026-01-01', '2026-02-01', '2026-03-01', '2026-04-01', '2026-05-01'];
  await log(...days.map((day) => ({ at: `${day}T00:00:00Z`, path: day, connection: day })));
  for (const day of days) assert.deepEqual((await all({ connection: day }, { max: 301 })).paths, [day]);
  const none = await page({ connection: 'none' }, { max: 900 });
  assert.deepEqual([none.paths, none.searchedUntil], [[], new Date('2026-03-01')]);
  assert.deepEqual((await all({ connection: 'none' }, { max: 900 })).pages, 2);
});

test('the ends of time are times like any other', async () => {
  await log({ at: '2026-01-31T10:00:00Z', path: '/here' });
  const times = [
    '0001-01-01T00:00:00Z',
    '1969-12-31T23:59:59Z',
    '2026-01-31T10:00:00Z',
    '9999-12-31T23:59:59Z',
  ];
  for (const from of times) {
    for (const to of times) {
      const { paths } = await page({ from: new Date(from), to: new Date(to), text: 'here' });
      assert.deepEqual(paths, from <= times[2]! && to > times[2]! ? ['/here'] : [], `${from} ${to}`);
    }
  }
  const last = await page({}, { before: 'ffffffff-ffff-7fff-bfff-ffffffffffff' });
  assert.deepEqual(last.paths, ['/here']);
  assert.deepEqual((await page({}, { before: '00000000-0000-0000-0000-000000000000' })).paths, []);
});

test('hours are counted by status, of what the filter names', async () => {
  await log(
    { at: '2026-01-31T10:59:59.900Z', connection: 'ada' },
    { at: '2026-01-31T10:00:00.000Z', environmentId: 2 },
    { at: '2026-01-31T11:00:00.000Z', status: 'failed' },
    { at: '2026-01-31T11:30:00.000Z', status: 'failed' },
    { at: '2026-02-01T00:00:00.000Z' },
  );
  const range = { environmentId, from: new Date('2026-01-31'), to: new Date('2026-02-02') };
  const counted = async (filter: { connection?: string; to?: Date } = {}) =>
    (
      await countOperations(database.db, {
        filter: { ...range, ...filter },
        kept: { sampleRate: 1, keptDays: 15 },
        now: range.to,
      })
    ).hours.map(({ hour, status, count }) => `${hour.toISOString()} ${status} ${count}`);
  const ada = '2026-01-31T10:00:00.000Z success 1';
  assert.deepEqual(await counted(), [
    ada,
    '2026-01-31T11:00:00.000Z failed 2',
    '2026-02-01T00:00:00.000Z success 1',
  ]);
  assert.deepEqual(await counted({ connection: 'ada' }), [ada]);
  assert.deepEqual(await counted({ to: new Date('2026-01-31T11:00:00Z') }), [ada]);
});
