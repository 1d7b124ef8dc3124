import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTestDatabase } from '../../test/support/database.ts';
import { type Db, openDb } from '../db/pool.ts';
import type { Reading } from '../metrics/metrics.ts';
import { createDatabaseReader } from './figures.ts';

let bench: Awaited<ReturnType<typeof openTestDatabase>>;
before(async () => {
  bench = await openTestDatabase();
});
after(() => bench.drop());

const saidOf = (readings: readonly Reading[], name: string) =>
  readings.find(({ gauge }) => gauge.name === name)?.samples[0]?.value;

/** As `db`, and tells how often it was asked. */
function counted(db: Db): Db & { asked: number } {
  const own = {
    ...db,
    asked: 0,
    transaction: ((work, mode) => {
      own.asked += 1;
      return db.transaction(work, mode);
    }) as Db['transaction'],
  };
  return own;
}

test('backlogs are reported and queried once in ten seconds, connections once in five minutes', async () => {
  const db = counted(bench.db);
  let nowMs = 0;
  const read = createDatabaseReader(db, { nowMs: () => nowMs });
  const [first, second] = await Promise.all([read(), read()]);
  assert.deepEqual(first, second);
  assert.equal(db.asked, 2);
  assert.equal(saidOf(first, 'trellis_database_up'), 1);
  for (const name of [
    'trellis_runs_waiting',
    'trellis_runs_oldest_due_seconds',
    'trellis_events_without_position',
  ])
    assert.equal(saidOf(first, name), 0, name);
  nowMs = 9_999;
  await read();
  assert.equal(db.asked, 2);
  nowMs = 10_000;
  await read();
  assert.equal(db.asked, 3);
  nowMs = 300_000;
  await read();
  assert.equal(db.asked, 5);
});

test('an integration with a refused client is reported while it is refused, if it has connections to test with', async () => {
  await bench.db.query(
    `with e as (
       insert into environment (name, data_key) values ('dev', gen_random_uuid()) returning id
     ), i as (
       insert into integration (environment_id, key, provider, display_name, fault, probe_at)
       select e.id, given.key, 'google', 'Google', given.fault::jsonb, given.probe_at::timestamptz
       from e, (values
         ('refused', '{"cause":"client_refused"}', 'infinity'),
         ('off', '{"cause":"api_disabled"}', null),
         ('well', null, null)
       ) as given (key, fault, probe_at)
       returning id, environment_id
     )
     insert into connection (environment_id, integration_id, connection_id, data_key, access_expires_at)
     select environment_id, id, 'ada', gen_random_uuid(), now() from i`,
  );
  const refused = async () =>
    (await createDatabaseReader(bench.db)()).find(
      ({ gauge }) => gauge.name === 'trellis_integrations_refused',
    )?.samples;
  const told = [{ labels: ['google'], value: 1 }];
  assert.deepEqual(await refused(), told);
  for (const [apart, back] of [
    [`status = 'needs_reauth'`, `status = 'active'`],
    ['has_own_client = true', 'has_own_client = false'],
  ] as const) {
    await bench.db.query(`update connection set ${apart}`);
    assert.deepEqual(await refused(), [], apart);
    await bench.db.query(`update connection set ${back}`);
    assert.deepEqual(await refused(), told, back);
  }
  await bench.db.query('update connection set data_key = null, deleted_at = now()');
  assert.deepEqual(await refused(), []);
});

test('if the database is unavailable, that alone is reported, at once', async () => {
  const away = openDb({ url: 'postgres://nobody@127.0.0.1:1/none' });
  try {
    const readings = await createDatabaseReader(away)();
    assert.deepEqual(
      readings.map(({ gauge, samples }) => [gauge.name, samples]),
      [['trellis_database_up', [{ labels: [], value: 0 }]]],
    );
  } finally {
    await away.end();
  }
});

test('a database that hangs delays no request for metrics', async () => {
  const never = new Promise<never>(() => {});
  const hanging = { ...bench.db, transaction: () => never };
  const readings = await createDatabaseReader(hanging, { waitMs: 20 })();
  assert.equal(saidOf(readings, 'trellis_database_up'), 0);
});

test('each statement has its time limit, also the one that follows in the transaction', async () => {
  const limits: string[] = [];
  const db: Db = {
    ...bench.db,
    transaction: (work, mode) =>
      bench.db.transaction(async (tx) => {
        const result = await work(tx);
        const [row] = await tx.query<{ limit: string }>(
          `select current_setting('statement_timeout') as "limit"`,
        );
        limits.push(row!.limit);
        return result;
      }, mode),
  };
  await createDatabaseReader(db)();
  assert.deepEqual(limits, ['1s', '1s']);
  const [after] = await bench.db.query<{ limit: string }>(
    `select current_setting('statement_timeout') as "limit"`,
  );
  assert.equal(after?.limit, '0');
});
