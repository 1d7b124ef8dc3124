import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../../test/support/records.ts';
import { destroyConnection } from '../../connections/store/save.ts';
import { startJobs } from '../../jobs/jobs.ts';
import { recordJobs } from './retention.ts';

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
  await bench.db.query(`update record set last_modified_at = last_modified_at - interval '8 days'`);
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
