import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { type Logged, logAll } from './logging.fixture.ts';
import type { OperationFilter } from './operations.ts';
import { countSteps, seriesOf } from './series.ts';

const environmentId = 1;
let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
  await database.db.query(
    `insert into environment (id, name, data_key) overriding system value values ($1, 'dev', gen_random_uuid())`,
    [environmentId],
  );
  // Counts are complete from later on, so these are answered from entries.
  await database.db.query(
    `insert into operation_count_start (environment_id, at) values ($1, '2027-01-01')
     on conflict (environment_id) do update set at = excluded.at`,
    [environmentId],
  );
});
beforeEach(() => database.db.query('truncate operation, operation_message, operation_count'));
after(() => database.drop());

const log = (entries: Logged[]) => logAll(database.db, entries);

/** One line a step: `10:00 count/failed p50 p95`, with `~` where it is sampled. */
async function series(
  more: Omit<Partial<OperationFilter>, 'from' | 'to'> & { from: string; to: string },
  { stepS = 3600, max }: { stepS?: number; max?: number } = {},
): Promise<string[]> {
  const { from, to, ...filter } = more;
  const points = await seriesOf(database.db, {
    filter: { environmentId, ...filter, from: new Date(from), to: new Date(to) },
    stepS,
    kept: { sampleRate: 1, keptDays: 15 },
    now: new Date(to),
    ...(max !== undefined && { max }),
  });
  return points.map(
    ({ at, count, failed, p50Ms, p95Ms, isSampled }) =>
      `${at.toISOString().slice(11, 16)} ${isSampled ? '~' : ''}${count}/${failed} ${p50Ms} ${p95Ms}`,
  );
}

test('each step has its count, its failures and its times, and steps without any are there', async () => {
  const at = (minute: number) => `2026-01-31T10:${String(minute).padStart(2, '0')}:00Z`;
  await log([
    ...Array.from({ length: 21 }, (_, index) => ({ at: at(index), durationMs: index * 10 })),
    { at: at(30), status: 'failed' as const },
    { at: at(31), environmentId: 2, durationMs: 9_999 },
    { at: '2026-01-31T12:00:00Z', durationMs: 7 },
    { at: '2026-01-31T12:01:00Z', type: 'connect' as const, durationMs: 50_000 },
    { at: '2026-01-31T13:00:00Z', durationMs: 8 },
  ]);
  const range = { from: '2026-01-31T10:00:00Z', to: '2026-01-31T13:00:00Z' };
  assert.deepEqual(await series(range), ['10:00 22/1 100 190', '11:00 0/0 null null', '12:00 2/0 7 7']);
  // The user was at the provider for these 50 seconds.
  assert.deepEqual((await series({ ...range, type: 'connect' })).at(-1), '12:00 1/0 50000 50000');
  const quarter = { from: '2026-01-31T10:05:00Z', to: '2026-01-31T10:20:00Z' };
  // Steps begin at their multiples; what lies outside the time is not counted.
  assert.deepEqual(await series(quarter, { stepS: 900 }), ['10:00 10/0 95 135.5', '10:15 5/0 170 188']);
});

test('the filters of a search select the counted entries, whichever index they use', async () => {
  await log([
    { at: '2026-01-31T23:59:59.999Z', connection: 'ada', integration: 'sheet', path: '/v4/a', durationMs: 1 },
    { at: '2026-02-01T00:00:00.000Z', connection: 'ada', integration: 'drive', status: 'failed', durationMs: 2 },
    { at: '2026-02-01T00:10:00.000Z', connection: 'bob', type: 'refresh', durationMs: 4, messages: [{ level: 'error', message: 'The grant is gone' }] },
  ]); // biome-ignore format: a line each
  const range = { from: '2026-01-31T23:00:00Z', to: '2026-02-01T01:00:00Z' };
  assert.deepEqual(await series(range), ['23:00 1/0 1 1', '00:00 2/1 3 3.9']);
  assert.deepEqual(await series({ ...range, connection: 'ada' }), ['23:00 1/0 1 1', '00:00 1/1 2 2']);
  assert.deepEqual(await series({ ...range, type: 'refresh' }), ['23:00 0/0 null null', '00:00 1/0 4 4']);
  assert.deepEqual(await series({ ...range, type: 'proxy' }), ['23:00 1/0 1 1', '00:00 1/1 2 2']);
  assert.deepEqual(await series({ ...range, status: 'failed' }), ['23:00 0/0 null null', '00:00 1/1 2 2']);
  assert.deepEqual(await series({ ...range, integration: 'sheet' }), [
    '23:00 1/0 1 1',
    '00:00 0/0 null null',
  ]);
  assert.deepEqual(await series({ ...range, text: 'grant' }), ['23:00 0/0 null null', '00:00 1/0 4 4']);
  assert.deepEqual(await series({ ...range, connection: 'ada', status: 'success' }), [
    '23:00 1/0 1 1',
    '00:00 0/0 null null',
  ]);
});

test('a step with many entries is sampled by its newest entries, and is marked as sampled', async () => {
  const second = (n: number) => `2026-01-31T10:00:${String(n).padStart(2, '0')}Z`;
  await log([
    ...Array.from({ length: 20 }, (_, n) => ({
      at: second(n),
      durationMs: n < 15 ? 1_000 : 10,
      connection: n === 0 ? 'ada' : 'bob',
    })),
    { at: '2026-01-31T11:00:00Z', durationMs: 5 },
  ]);
  const range = { from: '2026-01-31T10:00:00Z', to: '2026-01-31T12:00:00Z' };
  assert.deepEqual(await series(range, { max: 10 }), ['10:00 ~5/0 10 10', '11:00 1/0 5 5']);
  // By its index what is rare is found all the same.
  const ofAda = await series({ ...range, connection: 'ada' }, { max: 10 });
  assert.deepEqual(ofAda, ['10:00 1/0 1000 1000', '11:00 0/0 null null']);
});

test('steps are counted as they are cut', () => {
  const at = (from: string, to: string) => ({ from: new Date(from), to: new Date(to) });
  assert.equal(countSteps(at('2026-01-31T10:00:00Z', '2026-01-31T12:00:00Z'), 3600), 2);
  assert.equal(countSteps(at('2026-01-31T10:59:59Z', '2026-01-31T12:00:01Z'), 3600), 3);
  assert.equal(countSteps(at('2026-01-31T12:00:00Z', '2026-01-31T10:00:00Z'), 3600), 0);
});

test('a time that ends before it begins has no steps', async () => {
  assert.deepEqual(await series({ from: '2026-01-31T12:00:00Z', to: '2026-01-31T10:00:00Z' }), []);
});
