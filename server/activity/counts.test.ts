// Slow: its tests take seconds each.

import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import fc from 'fast-check';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { type Db, openDb } from '../db/pool.ts';
import { createLog } from '../log.ts';
import { countedSince, type Grouping, groupsOf, sweepCounts } from './counts.ts';
import type { Operation, OperationFilter } from './operations.ts';
import { countOperations, type Kept, seriesOf } from './series.ts';
import { bucketOf, quantileOf } from './tally.ts';
import { type Activity, type ActivitySettings, createActivity } from './writer.ts';

const environmentId = 1;
const now = new Date('2026-02-10T12:00:00Z');
const kept: Kept = { sampleRate: 1, keptDays: 15 };
const integrations = ['sheet', 'drive'];
let database: TestDatabase;

before(async () => {
  database = await openTestDatabase();
  await database.db.query(
    `insert into environment (id, name, data_key) overriding system value values ($1, 'dev', gen_random_uuid())`,
    [environmentId],
  );
  for (const key of integrations) {
    await database.db.query(
      `insert into integration (environment_id, key, provider, display_name, created_at)
       values ($1, $2, 'google-sheet', $2, '2025-01-01')`,
      [environmentId, key],
    );
  }
});
beforeEach(async () => {
  await database.db.query(`delete from integration where key = 'later'`);
  await database.db.query('truncate operation, operation_message, operation_count, operation_count_start');
});
after(() => database.drop());

type Logged = Partial<Operation> & { at: Date };

/** A writer whose clock stands at what is logged. */
function open(db: Db, settings: ActivitySettings = { sampleRate: 1 }) {
  let atMs = 0;
  const activity = createActivity({
    db,
    log: createLog({ level: 'silent', format: 'json' }),
    settings,
    nowMs: () => atMs,
    random: () => 0.5,
  });
  return {
    activity,
    log({ at, ...more }: Logged) {
      atMs = at.getTime();
      activity.log({ environmentId, type: 'proxy', status: 'success', ...more });
    },
  };
}

/** Waits until so many are in the log or discarded; then stops the writers, which gives up after a second. */
async function settle(writers: Activity[], count: number): Promise<void> {
  for (;;) {
    const dropped = writers.reduce((sum, activity) => sum + activity.dropped, 0);
    const [row] = await database.db.query<{ count: number }>('select count(*) as count from operation');
    if (row!.count + dropped >= count) break;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await Promise.all(writers.map((activity) => activity.stop()));
}

async function log(entries: Logged[]): Promise<void> {
  const writer = open(database.db);
  for (const entry of entries) writer.log(entry);
  await settle([writer.activity], entries.length);
  assert.equal(writer.activity.dropped, 0);
}

type Filter = Omit<Partial<OperationFilter>, 'from' | 'to'> & { from: Date; to: Date };

function series(filter: Filter, stepS: number, at: Date = now) {
  return seriesOf(database.db, { filter: { environmentId, ...filter }, stepS, kept, now: at });
}

async function total(filter: Filter, stepS: number, at?: Date) {
  const points = await series(filter, stepS, at);
  return {
    count: points.reduce((sum, { count }) => sum + count, 0),
    failed: points.reduce((sum, { failed }) => sum + failed, 0),
    isAtLeast: points.some(({ isAtLeast }) => isAtLeast),
  };
}

async function hoursOf(filter: Filter, more: { kept?: Kept; now?: Date } = {}) {
  const { hours, isAtLeast } = await countOperations(database.db, {
    filter: { environmentId, ...filter },
    kept,
    now,
    ...more,
  });
  return { count: hours.reduce((sum, hour) => sum + hour.count, 0), isAtLeast };
}

/** A count over rows, by the filter's plain conditions. */
async function countRows({ from, to, type, status, integration, endpoint, sync, variant }: Filter) {
  const [row] = await database.db.query<{ count: number; failed: number }>(
    `select count(*) as count, count(*) filter (where status = 'failed') as failed
     from operation
     where environment_id = $1 and created_at >= $2 and created_at < $3
       and ($4::text is null or type = $4)
       and ($5::text is null or status = $5)
       and ($6::text is null or integration = $6)
       and ($7::text is null or type = 'delivery' and details ->> 'endpoint' = $7)
       and ($8::text is null or details ->> 'kind' = 'sync' and details ->> 'function' = $8)
       and ($9::text is null or details ->> 'variant' = $9)`,
    [
      environmentId,
      from,
      to,
      type ?? null,
      status ?? null,
      integration ?? null,
      endpoint === undefined ? null : String(endpoint),
      sync ?? null,
      variant ?? null,
    ],
  );
  return row!;
}

const minuteMs = 60_000;
const firstMs = Date.parse('2026-02-08T21:30:00Z');
/** Over two days and a half, so that each span is among the counts. */
const lengthMs = 60 * 60 * minuteMs;

const entry: fc.Arbitrary<Logged> = fc
  .record({
    at: fc.integer({ min: 0, max: lengthMs - 1 }).map((ms) => new Date(firstMs + ms)),
    status: fc.constantFrom('success' as const, 'failed' as const),
    integration: fc.constantFrom('sheet', 'drive', undefined),
    durationMs: fc.option(fc.double({ min: 0, max: 700_000, noNaN: true }), { nil: undefined }),
    of: fc.oneof(
      fc.constantFrom('proxy' as const, 'refresh' as const).map((type) => ({ type })),
      fc
        .integer({ min: 1, max: 3 })
        .map((endpoint) => ({ type: 'delivery' as const, details: { endpoint } })),
      fc
        .record({
          kind: fc.constantFrom('sync', 'action'),
          function: fc.constantFrom('rows', 'files'),
          variant: fc.constantFrom('base', 'other'),
        })
        .map((details) => ({ type: 'run' as const, details })),
    ),
  })
  .map(({ of, ...rest }) => ({ ...rest, ...of }));

const minutes = (from: number, to: number) => ({
  from: new Date(firstMs + from * minuteMs),
  to: new Date(firstMs + to * minuteMs),
});
const filter: fc.Arbitrary<Filter> = fc
  .record({
    range: fc
      .tuple(fc.integer({ min: -90, max: 3600 }), fc.integer({ min: 0, max: 3690 }))
      .map(([a, b]) => minutes(Math.min(a, b), Math.max(a, b))),
    of: fc.constantFrom<Omit<Filter, 'from' | 'to'>>(
      {},
      { type: 'proxy' as const },
      { status: 'failed' as const },
      { integration: 'sheet' },
      { type: 'delivery' as const, endpoint: 2 },
      { type: 'run' as const, sync: 'rows' },
      { type: 'run' as const, sync: 'rows', variant: 'other', status: 'failed' as const },
    ),
  })
  .map(({ range, of }) => ({ ...range, ...of }));

test('counts are what a count over rows gives, however many nodes write and however the time is cut', async () => {
  const nodes = Array.from({ length: 4 }, () => openDb(database.target, { maxConnections: 2 }));
  try {
    const property = fc.asyncProperty(
      fc.array(fc.array(entry, { minLength: 1, maxLength: 25 }), { minLength: 20, maxLength: 20 }),
      fc.array(filter, { minLength: 6, maxLength: 6 }),
      async (batches, filters) => {
        await database.db.query('truncate operation, operation_message, operation_count');
        // A writer a batch: all are written at once.
        const writers = batches.map((batch, index) => {
          const writer = open(nodes[index % nodes.length]!);
          for (const one of batch) writer.log(one);
          return writer.activity;
        });
        await settle(writers, batches.flat().length);
        assert.ok(writers.every(({ dropped }) => dropped === 0));
        for (const one of filters) {
          const { count, failed } = await countRows(one);
          for (const stepS of [900, 3600, 21_600, 86_400]) {
            assert.deepEqual(await total(one, stepS), { count, failed, isAtLeast: false }, `${stepS}`);
          }
          assert.deepEqual(await hoursOf(one), { count, isAtLeast: false });
        }
      },
    );
    // A smaller example takes as long again each time.
    await fc.assert(property, { numRuns: 12, endOnFailure: true });
  } finally {
    await Promise.all(nodes.map((db) => db.end()));
  }
});

test('batches of connections that are killed count as often as they are in the log', async () => {
  const db = openDb(database.target, { maxConnections: 4, onIdleError() {} });
  const admin = openDb(database.target, { maxConnections: 1 });
  const range = minutes(0, 60);
  try {
    const writers = Array.from({ length: 20 }, (_, index) => {
      const writer = open(db);
      for (let n = 0; n < 200; n += 1) {
        writer.log({
          at: range.from,
          status: n % 3 === 0 ? 'failed' : 'success',
          integration: 'sheet',
          requestId: `${index}`,
        });
      }
      return writer.activity;
    });
    let isOver = false;
    const killing = (async () => {
      while (!isOver) {
        await admin.query(
          `select pg_terminate_backend(pid)
           from pg_stat_activity
           where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
             and query like '%operation%'
           order by random()
           limit 1`,
        );
      }
    })();
    await new Promise((resolve) => setTimeout(resolve, 600));
    isOver = true;
    await killing;
    await settle(writers, 4_000);
    const rows = await countRows(range);
    assert.deepEqual(await total(range, 60), { ...rows, isAtLeast: false });
    // What is in the log is not reported as lost.
    const dropped = writers.reduce((sum, activity) => sum + activity.dropped, 0);
    assert.equal(rows.count + dropped, 4_000);
  } finally {
    await db.end();
    await admin.end();
  }
});

test('calls that are not kept are counted', async () => {
  const at = new Date(firstMs);
  const ok = { at, integration: 'sheet', durationMs: 10 };
  const { activity, log: add } = open(database.db, { sampleRate: 0.25 });
  for (let n = 0; n < 7; n += 1) add(ok);
  add({ ...ok, status: 'failed' });
  await settle([activity], 1);
  const range = minutes(0, 1);
  assert.deepEqual(await countRows(range), { count: 1, failed: 1 });
  assert.deepEqual(await total({ ...range, integration: 'sheet' }, 60), {
    count: 8,
    failed: 1,
    isAtLeast: false,
  });
});

test('calls are counted where those that are kept are, also after the clock was set back', async () => {
  const at = new Date(firstMs);
  const { activity, log: add } = open(database.db, { sampleRate: 0.25 });
  add({ at, status: 'failed' });
  const back = new Date(firstMs - 60 * minuteMs);
  add({ at: back });
  add({ at: back, status: 'failed' });
  await settle([activity], 2);
  const range = minutes(0, 1);
  assert.deepEqual(await countRows(range), { count: 2, failed: 2 });
  assert.deepEqual(await total(range, 60), { count: 3, failed: 2, isAtLeast: false });
});

test('durations omit connect flows, which wait for the user, unless they are selected', async () => {
  const at = new Date(firstMs);
  await log([
    { at, durationMs: 10 },
    { at, type: 'connect', durationMs: 50_000 },
  ]);
  const [all] = await series(minutes(0, 1), 60);
  assert.equal(all?.count, 2);
  assert.ok(all.p95Ms! < 20, String(all.p95Ms));
  const [connects] = await series({ ...minutes(0, 1), type: 'connect' }, 60);
  assert.ok(connects!.p95Ms! > 40_000, String(connects!.p95Ms));
});

test('the median and the 95th percentile are within the stated error', () => {
  const durations = fc.array(fc.double({ min: 0, max: 600_000, noNaN: true }), {
    minLength: 1,
    maxLength: 200,
  });
  fc.assert(
    fc.property(durations, fc.constantFrom(0.5, 0.95), (times, part) => {
      const histogram = new Array<number>(62).fill(0);
      for (const ms of times) histogram[bucketOf(ms)]! += 1;
      const exact = times.toSorted((a, b) => a - b)[Math.ceil(part * times.length) - 1]!;
      const said = quantileOf(histogram, part)!;
      // Rounded to a hundredth.
      const error = exact < 1 ? 1 : exact * (Math.sqrt(1.25) - 1 + 1e-9) + 0.005;
      assert.ok(Math.abs(said - exact) <= error, `${said} for ${exact}`);
    }),
  );
  assert.equal(quantileOf([], 0.5), null);
  assert.equal(bucketOf(Number.NaN), 0);
  assert.ok(quantileOf(Object.assign(new Array<number>(62).fill(0), { 61: 1 }), 0.5)! >= 600_000);
});

test('invented names fill no table, and hide no call', async () => {
  const at = new Date(firstMs);
  const invented = Array.from({ length: 3_000 }, (_, n) => ({
    at,
    status: 'failed' as const,
    integration: `no-${n}\0`,
  }));
  const runs = Array.from({ length: 3_000 }, (_, n) => ({
    at,
    type: 'run' as const,
    integration: 'sheet',
    details: { kind: 'sync', function: 'rows', variant: `v-${n}` },
  }));
  await log([...invented, ...runs]);
  const [rows] = await database.db.query<{ count: number }>(
    'select count(*) as count from operation_count where span_s = 60',
  );
  assert.ok(rows!.count <= 1_002, `${rows!.count} rows`);
  const range = minutes(0, 1);
  assert.deepEqual(await total(range, 60), { count: 6_000, failed: 3_000, isAtLeast: false });
  assert.deepEqual(await total({ ...range, type: 'run' }, 60), { count: 3_000, failed: 0, isAtLeast: false });
  // Some of its variants are beyond `maxNames` and have no count of their own, and the answer says so.
  const some = await total({ ...range, type: 'run', sync: 'rows' }, 60);
  assert.deepEqual([some.count, some.isAtLeast], [1_000, true]);
  const named = { type: 'run', sync: 'rows' } as const;
  assert.deepEqual(await hoursOf({ ...range, ...named }), { count: 1_000, isAtLeast: true });
  assert.deepEqual(await hoursOf(range), { count: 6_000, isAtLeast: false });
  const { isAtLeast } = await groupsOf(database.db, {
    by: 'function',
    now,
    filter: { environmentId, type: 'run', sync: 'rows', ...range },
  });
  assert.equal(isAtLeast, true);
});

test('a variant alone chooses runs, not the operations that have no variant', async () => {
  const at = new Date(firstMs);
  const run = (variant: string) => ({
    at,
    type: 'run' as const,
    integration: 'sheet',
    details: { kind: 'sync', function: 'rows', variant },
  });
  await log([run('eu'), run('eu'), run('us'), { at }, { at, type: 'refresh' }]);
  const filter = { environmentId, variant: 'eu', ...minutes(0, 1) };
  assert.deepEqual(await total(filter, 60), { count: 2, failed: 0, isAtLeast: false });
});

test('an integration is answered by its entries where there was none of its name', async () => {
  const at = new Date(firstMs);
  await log([{ at, integration: 'later', status: 'failed' }]);
  const range = minutes(0, 1);
  const filter = { environmentId, integration: 'later', ...range };
  assert.equal(await countedSince(database.db, filter), Number.POSITIVE_INFINITY);
  assert.deepEqual(await total(filter, 60), { count: 1, failed: 1, isAtLeast: false });
  await database.db.query(
    `insert into integration (environment_id, key, provider, display_name, created_at)
     values ($1, 'later', 'google-sheet', 'later', $2)`,
    [environmentId, new Date(firstMs + 30 * minuteMs)],
  );
  assert.deepEqual(await total(filter, 60), { count: 1, failed: 1, isAtLeast: false });
});

test('groups follow the requested field, the most failures first', async () => {
  const at = new Date(firstMs);
  await log([
    { at, integration: 'sheet' },
    { at, integration: 'sheet' },
    { at, integration: 'drive', status: 'failed', durationMs: 100 },
    { at, type: 'delivery', details: { endpoint: 7 } },
    { at, type: 'delivery', details: { endpoint: 8 }, status: 'failed' },
    { at, type: 'run', details: { kind: 'sync', function: 'rows', variant: 'base' }, integration: 'sheet' },
  ]);
  const by = async (by: Grouping, range = minutes(0, 60)) => {
    const { groups, isAtLeast } = await groupsOf(database.db, {
      filter: { environmentId, ...range },
      by,
      now,
    });
    assert.equal(isAtLeast, false);
    return groups.map(({ integration, target, type, variant, count, failed }) =>
      [integration, type, target, variant, `${count}/${failed}`].filter((one) => one !== null).join(' '),
    );
  };
  assert.deepEqual(await by('integration'), [' 2/1', 'drive 1/1', 'sheet 3/0']);
  assert.deepEqual(await by('type'), ['proxy 3/1', 'delivery 2/1', 'run 1/0']);
  assert.deepEqual(await by('endpoint'), ['delivery 8 1/1', 'delivery 7 1/0']);
  assert.deepEqual(await by('function'), ['sheet run sync/rows base 1/0']);
  assert.deepEqual(await by('type', minutes(60, 120)), []);
});

test('with a connection or a text, rows are counted up to a bound, and the response has the bound', async () => {
  const at = (n: number) => new Date(firstMs + n * 100);
  await log(
    Array.from({ length: 30 }, (_, n) => ({
      at: at(n),
      connection: 'ada',
      status: n < 13 ? ('failed' as const) : ('success' as const),
    })),
  );
  const filter = { environmentId, connection: 'ada', ...minutes(0, 1) };
  const [bounded] = await seriesOf(database.db, { filter, stepS: 60, kept, now, max: 20 });
  assert.deepEqual(
    [bounded!.count, bounded!.failed, bounded!.isSampled, bounded!.isAtLeast],
    [20, 3, true, true],
  );
  const [whole] = await seriesOf(database.db, { filter, stepS: 60, kept, now });
  assert.deepEqual([whole!.count, whole!.failed, whole!.isAtLeast], [30, 13, false]);
  // Without one they are exact, whatever the bound.
  const { connection: _, ...all } = filter;
  const [counted] = await seriesOf(database.db, { filter: all, stepS: 60, kept, now, max: 20 });
  assert.deepEqual(
    [counted!.count, counted!.failed, counted!.isSampled, counted!.isAtLeast],
    [30, 13, false, false],
  );
  // Entries are a sample, or gone.
  const thinned = await seriesOf(database.db, {
    filter,
    stepS: 60,
    kept: { sampleRate: 0.1, keptDays: 15 },
    now,
  });
  assert.equal(thinned[0]!.isAtLeast, true);
  const later = new Date(now.getTime() + 20 * 86_400_000);
  const gone = await seriesOf(database.db, { filter, stepS: 60, kept, now: later });
  assert.equal(gone[0]!.isAtLeast, true);
  // Hours count all entries that there are.
  const ofAda = { connection: 'ada', ...minutes(0, 1) };
  assert.deepEqual(await hoursOf(ofAda), { count: 30, isAtLeast: false });
  assert.deepEqual(await hoursOf(ofAda, { kept: { sampleRate: 0.1, keptDays: 15 } }), {
    count: 30,
    isAtLeast: true,
  });
  assert.deepEqual(await hoursOf(ofAda, { now: later }), { count: 30, isAtLeast: true });
});

test('minutes are kept for 14 days, hours for 32 and days for 400', async () => {
  const ago = (days: number) => new Date(now.getTime() - days * 86_400_000);
  await log([402, 401, 34, 31, 15, 13, 0].map((days) => ({ at: ago(days), status: 'failed' })));
  await database.db.query(
    `insert into operation_count (environment_id, span_s, begins_at, type, status, integration, target, variant, count, histogram)
    select 999999, 86400, $1::timestamptz - n * interval '1 day', 'proxy', 'failed', '', '', '', 1, '{}' from generate_series(1, 12000) as n`,
    [now],
  );
  const { signal } = new AbortController();
  await sweepCounts(database.db, { now, hasOlderNodes: false, signal });
  const left = await database.db.query<{ days: number[] }>(
    `select array_agg(floor(extract(epoch from $1::timestamptz - begins_at) / 86400)::int order by begins_at) as days
     from operation_count
     group by environment_id, span_s
     order by environment_id, span_s`,
    [now],
  );
  assert.deepEqual(
    left.map(({ days }) => days),
    [
      [13, 0],
      [31, 15, 13, 0],
      [34, 31, 15, 13, 0],
    ],
  );
  assert.deepEqual((await total({ from: ago(399), to: now }, 86_400)).failed, 4);
});

test('counts are complete from two minutes after the last node that does not count', async () => {
  const { signal } = new AbortController();
  assert.equal(await countedSince(database.db, { environmentId }), 0);
  await sweepCounts(database.db, { now, hasOlderNodes: true, signal });
  const since = await countedSince(database.db, { environmentId });
  assert.ok(since > Date.now() && since < Date.now() + 121_000);
  await sweepCounts(database.db, { now, hasOlderNodes: false, signal });
  assert.equal(await countedSince(database.db, { environmentId }), since);
});
