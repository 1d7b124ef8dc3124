// Slow: its functions run in processes of their own.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { claimWaiting } from './claims.ts';
import { openRunsBench, type RunsBench, syncOf } from './runs.fixture.ts';
import { bringNearer, queueDue, setNextTime, startNewSyncs } from './schedule.ts';

let bench: RunsBench;
beforeEach(async () => {
  bench = await openRunsBench();
});
afterEach(() => bench.end());

const hourMs = 3_600_000;
const many = (count: number) =>
  bench.db.query(
    `insert into connection (environment_id, integration_id, connection_id, data_key)
     select $1, $2, 'c' || n, gen_random_uuid()
     from generate_series(1, $3::integer) as n`,
    [bench.environment.id, bench.integration.id, count],
  );
const times = async () =>
  (await bench.db.query<{ at: Date }>('select next_at as at from sync order by id')).map(({ at }) =>
    at.getTime(),
  );
const restart = async () => {
  await bench.db.query('update sync set next_at = null');
  await bench.db.transaction((tx) =>
    startNewSyncs(tx, { environmentId: bench.environment.id, at: bench.now() }),
  );
};

test('the syncs of 10,000 connections are spread over their frequency, and keep their times', async () => {
  await many(10_000);
  const startMs = bench.now().getTime();
  await bench.deploy('rows', syncOf(''));
  const first = await times();
  assert.equal(first.length, 10_000);
  const perMinute = new Map<number, number>();
  for (const at of first) {
    assert.ok(at > startMs && at <= bench.now().getTime() + hourMs);
    const minute = Math.floor((at % hourMs) / 60_000);
    perMinute.set(minute, (perMinute.get(minute) ?? 0) + 1);
  }
  // 167 a minute; of as many thrown at random a minute with twice as many would not be seen in a lifetime.
  assert.equal(perMinute.size, 60);
  for (const [minute, count] of perMinute)
    assert.ok(count > 83 && count < 334, `${count} in minute ${minute}`);
  bench.advance(5 * hourMs + 1_234);
  await restart();
  const later = await times();
  assert.deepEqual(
    later.map((at) => at % hourMs),
    first.map((at) => at % hourMs),
  );
});

test('a due sync is queued once, whichever node looks and however late, and its next time keeps its phase', async () => {
  await many(50);
  await bench.deploy('rows', syncOf(''));
  const before = await times();
  bench.advance(3 * hourMs);
  const due = await Promise.all([1, 2, 3, 4].map(() => queueDue(bench.db, bench.now())));
  assert.equal(
    due.reduce((sum, count) => sum + count, 0),
    50,
  );
  assert.equal((await bench.runs()).length, 50);
  const after = await times();
  for (const [index, at] of after.entries()) {
    assert.equal((at - before[index]!) % hourMs, 0);
    assert.ok(at > bench.now().getTime() && at <= bench.now().getTime() + hourMs);
  }
  // Those that are queued still stand for the next time too.
  bench.advance(hourMs);
  assert.equal(await queueDue(bench.db, bench.now()), 50);
  assert.equal((await bench.runs()).length, 50);
});

test('a new connection is synced at once, then in its phase', async () => {
  await bench.deploy('rows', syncOf(''));
  await bench.connect('ada');
  assert.equal(await queueDue(bench.db, bench.now()), 1);
  assert.equal(await queueDue(bench.db, bench.now()), 0);
  const [next] = await times();
  assert.ok(next! > bench.now().getTime() && next! <= bench.now().getTime() + hourMs);
});

test('a function that is off, a deleted connection and a paused sync queue nothing; a frequency of its own counts', async () => {
  await bench.deploy('rows', syncOf(''));
  await many(3);
  await restart();
  const [off, gone, own] = (await bench.db.query<{ id: number }>('select id from sync order by id')).map(
    ({ id }) => id,
  );
  await bench.db.query(
    `update connection set deleted_at = now(), data_key = null where connection_id = 'c2'`,
  );
  await bench.db.query(`update sync set frequency_s = 60 where id = $1`, [own]);
  await bench.db.query(`update sync set state = 'paused', next_at = null where id = $1`, [off]);
  // Its phase is anywhere in the hour, so also in the first minute.
  await bench.db.query('update sync set next_at = $2 where id = $1', [
    gone,
    new Date(bench.now().getTime() + hourMs / 2),
  ]);
  await setNextTime(bench.db, { syncIds: [own!], at: bench.now() });
  bench.advance(60_000);
  assert.equal(await queueDue(bench.db, bench.now()), 1);
  bench.advance(hourMs);
  assert.equal(await queueDue(bench.db, bench.now()), 2);
  const runs = await bench.db.query<{ id: number }>('select sync_id as id from run');
  assert.deepEqual(
    runs.map(({ id }) => id),
    [own],
  );
  assert.deepEqual(
    await bench.db.query('select id from sync where next_at is null order by id'),
    [off, gone].map((id) => ({ id })),
  );
  await bench.db.query('update function set is_enabled = false');
  await bench.db.query(`update run set state = 'cancelled', ended_at = now()`);
  bench.advance(60_000);
  assert.equal(await queueDue(bench.db, bench.now()), 1);
  const { claims } = await claimWaiting(bench.db, { now: bench.now(), max: 10, after: 0 });
  assert.deepEqual(claims, []);
  await bench.db.query('update function set is_enabled = true');
  bench.advance(60_000);
  assert.equal(await queueDue(bench.db, bench.now()), 1);
  assert.equal((await claimWaiting(bench.db, { now: bench.now(), max: 10, after: 0 })).claims.length, 1);
});

test('a version that is to run more often moves its syncs nearer', async () => {
  await many(20);
  await bench.deploy('rows', syncOf(''));
  const beforeMs = bench.now().getTime();
  await bench.deploy('rows', syncOf('').replace('every hour', 'every minute'));
  const afterMs = bench.now().getTime();
  for (const at of await times()) assert.ok(at >= beforeMs && at <= afterMs + 60_000);
});

test('a node whose clock was a day ahead leaves no sync that waits for the day after', async () => {
  await many(3);
  await bench.deploy('rows', syncOf(''));
  const before = await times();
  await queueDue(bench.db, new Date(bench.now().getTime() + 24 * hourMs));
  assert.ok((await times()).every((at) => at > bench.now().getTime() + 23 * hourMs));
  // The node itself sees nothing wrong, as long as its clock is.
  await bringNearer(bench.db, new Date(bench.now().getTime() + 24 * hourMs));
  assert.ok((await times()).every((at) => at > bench.now().getTime() + 23 * hourMs));
  await bringNearer(bench.db, bench.now());
  const after = await times();
  assert.ok(after.every((at) => at > bench.now().getTime() && at <= bench.now().getTime() + hourMs));
  assert.deepEqual(
    after.map((at) => at % hourMs),
    before.map((at) => at % hourMs),
  );
  // One whose clock is behind moves none that is as it should be.
  await bringNearer(bench.db, new Date(bench.now().getTime() - 24 * hourMs));
  assert.deepEqual(await times(), after);
});

test('a run that a node put off while its clock was a day ahead has its turn all the same', async () => {
  await many(2);
  await bench.deploy('rows', syncOf(''));
  await bench.db.query('update sync set next_at = $1', [bench.now()]);
  await queueDue(bench.db, bench.now());
  const putOff = (ms: number) =>
    bench.db.query('update run set not_before = $1', [new Date(bench.now().getTime() + ms)]);
  const claimed = async () =>
    (await claimWaiting(bench.db, { now: bench.now(), max: 10, after: 0 })).claims.length;
  // What was put off for a while waits.
  await putOff(10 * 60_000);
  await bringNearer(bench.db, bench.now());
  assert.equal(await claimed(), 0);
  await putOff(24 * hourMs);
  await bringNearer(bench.db, bench.now());
  assert.equal(await claimed(), 2);
});
