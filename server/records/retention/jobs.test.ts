// Slow: it fills tables with many rows.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { countingBlocks } from '../../../test/support/blocks.ts';
import { isCluster } from '../../../test/support/citus.ts';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../../test/support/records.ts';
import { destroyConnection } from '../../connections/store/save.ts';
import { startJobs } from '../../jobs/jobs.ts';
import { lookedAtOnce, recordJobs, runRetention } from './retention.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

const fail = (error: unknown) => {
  throw error;
};

test('jobs remove the records that a policy names or that belong to deleted connections, and keep no data of them', async () => {
  const [kept, doomed] = [await bench.connect(), await bench.connect()];
  const calls = datasetCalls(bench.db, kept);
  await calls.save(rows(1, 5));
  await datasetCalls(bench.db, doomed).save(rows(1, 5));
  await bench.db.query(
    `update record set last_modified_at = (last_modified_at at time zone 'UTC' - interval '8 days') at time zone 'UTC'`,
  );
  await bench.db.query(
    `insert into retention (environment_id, prune_after_days, wait_for_consumers)
     select id, 7, true from environment where name = 'records-test'`,
  );
  await bench.db.transaction((tx) => destroyConnection(tx, { id: doomed.id, at: new Date() }));

  const jobs = await startJobs(bench.db, { onError: fail });
  try {
    for (const job of recordJobs(bench.db)) {
      await jobs.work(job);
      await jobs.send(job.name, {});
    }
    const left = () => bench.db.query('select from dataset where connection = $1', [doomed.id]);
    while ((await calls.row()).pruned < 5 || (await left()).length > 0) await nextTurn();
  } finally {
    await jobs.stop();
  }
  const held = await bench.db.query<{ data: object | null }>('select data from pgboss.job');
  assert.ok(held.length >= 2);
  assert.ok(held.every(({ data }) => Object.keys(data ?? {}).length === 0));
});

test('a silent consumer that has taken all changes is looked at again within two days', async () => {
  const calls = datasetCalls(bench.db, await bench.connect());
  await calls.save(rows(1, 1));
  const inDays = (days: number) => new Date(Date.now() + days * 86_400_000);
  const { id } = await calls.row();
  await bench.db.query(
    `insert into consumer (dataset_id, name, seq, acknowledged_at) values ($1, 'app', 1, now())`,
    [id],
  );
  const isStale = async (days: number) => {
    await runRetention(bench.db, { now: inDays(days) });
    const [found] = await bench.db.query<{ isStale: boolean }>(
      `select stale_at is not null as "isStale" from consumer where dataset_id = $1`,
      [id],
    );
    return found?.isStale;
  };
  assert.equal(await isStale(31), false);
  await calls.save(rows(2, 2));
  assert.equal(await isStale(31.9), false);
  assert.equal(await isStale(33.1), true);
});

// On a cluster the blocks are read on other machines.
test('the jobs read what is due, however many datasets and silent consumers there are', {
  skip: isCluster,
}, async () => {
  const { id } = await bench.connect();
  await bench.db.query(
    `insert into dataset (connection, model, variant, last_seq) select $1, 'Idle', n, 1 from generate_series(1, 20000) as n`,
    [id],
  );
  await bench.db.query(
    `insert into record (dataset_id, seq, first_seen_at, last_modified_at, size, hash, external_id)
     select id, 1, now(), now(), 1, '\\x00', 'one' from dataset where model = 'Idle'`,
  );
  await bench.db.query(
    `insert into consumer (dataset_id, name, seq, acknowledged_at, silent_from)
     select id, 'app', 1, now() - interval '40 days', now() - interval '29 days' from dataset where model = 'Idle'`,
  );
  await bench.db.query('delete from retention');
  await bench.db.query('vacuum analyze');
  const { db, reads } = countingBlocks(bench.db);
  const jobs = recordJobs(db);
  const { signal } = new AbortController();
  const blocksOf = async () => {
    reads.length = 0;
    for (const job of jobs) await job.run({}, signal);
    return reads.reduce((sum, { blocks }) => sum + blocks, 0);
  };
  // The first look at datasets that an older node may have left.
  assert.ok((await blocksOf()) > 100);
  const blocks = await blocksOf();
  assert.ok(blocks < 50, reads.map(({ plan }) => plan).join('\n'));
});

test('retention looks at all datasets in turn, and one that is stopped begins at the same again', async () => {
  await bench.db.query(
    `insert into sequencer (name, last_position) select 'retention', max(id) from dataset
     on conflict (name) do update set last_position = excluded.last_position`,
  );
  const { id: idle } = await bench.connect();
  const calls = datasetCalls(bench.db, await bench.connect());
  const addIdle = (model: string) =>
    bench.db.query(
      `insert into dataset_name (connection, model, variant) select $1, $2, n from generate_series(1, ${lookedAtOnce}) as n`,
      [idle, model],
    );
  await addIdle('Before');
  await calls.save(rows(1, 5));
  await addIdle('After');
  await bench.db.query('delete from retention');
  await bench.db.query(
    `insert into retention (environment_id, prune_after_days, wait_for_consumers)
     select id, 7, true from environment where name = 'records-test'`,
  );
  const now = new Date(Date.now() + 8 * 86_400_000);
  assert.equal((await runRetention(bench.db, { now })).payloads, 0);
  assert.equal((await runRetention(bench.db, { now, signal: AbortSignal.abort() })).payloads, 0);
  assert.equal((await runRetention(bench.db, { now })).payloads, 5);
  await calls.save(rows(1, 5, 'again'));
  const counts: number[] = [];
  // What other tests have left comes in between.
  while (counts.at(-1) !== 5) counts.push((await runRetention(bench.db, { now })).payloads);
  assert.ok(counts.length > 2);
});
