// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { placeEntries } from '../../test/support/audit.ts';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../test/support/records.ts';
import { startJobs } from '../jobs/jobs.ts';
import { setPolicy } from './retention/policy.ts';
import { recordJobs } from './retention/retention.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

const count = 10_000;

test('another node continues the retention of a killed node, and each record is deleted once', async () => {
  const { db, target } = bench;
  const calls = datasetCalls(db, await bench.connect());
  await calls.save(rows(1, count));
  const { payload_bytes } = await calls.row();
  await db.query(
    `update record
     set
       first_seen_at = (first_seen_at at time zone 'UTC' - interval '9 days') at time zone 'UTC',
       last_modified_at = (last_modified_at at time zone 'UTC' - interval '9 days') at time zone 'UTC'`,
  );
  const [environment] = await db.query<{ id: number }>(
    `select id from environment where name = 'records-test'`,
  );
  await setPolicy(
    db,
    { environmentId: environment?.id as number, integrationKey: undefined },
    { pruneAfterDays: 7, removeTombstonesAfterDays: null, waitForConsumers: true },
  );
  const node = spawn(
    process.execPath,
    [path.join(import.meta.dirname, 'retention-node.fixture.ts'), JSON.stringify(target)],
    { stdio: ['ignore', 'inherit', 'inherit'] },
  );
  const exited = once(node, 'exit');
  const until = async (isSo: () => Promise<boolean>) => {
    while (!(await isSo())) {
      assert.equal(node.exitCode, null, 'the node ended by itself');
      await sleep(20);
    }
  };
  try {
    await until(async () => (await isMade(db)) && (await prunedSoFar(db)) >= 1000);
  } finally {
    node.kill('SIGKILL');
    await exited;
  }
  const before = await prunedSoFar(db);
  assert.ok(before < count, 'it was done before it was killed');

  const jobs = await startJobs(db, {
    onError: (error) => assert.fail(String(error)),
    rhythm: { pollS: 1, heartbeatS: 10, superviseS: 1 },
  });
  try {
    for (const job of recordJobs(db)) await jobs.work(job);
    await jobs.send('records.retention', {});
    // The job is the dead node's as long as that may be alive.
    await sleep(1500);
    assert.equal(await prunedSoFar(db), before);
    // In place of waiting for the heartbeat to grow old.
    await db.query(
      `update pgboss.job set heartbeat_on = heartbeat_on - interval '10 s' where state = 'active'`,
    );
    const states = async () =>
      (
        await db.query<{ state: string }>(
          `select state from pgboss.job where name = 'records.retention' order by created_on`,
        )
      ).map(({ state }) => state);
    for (let look = 0; (await states()).at(-1) !== 'completed'; look += 1) {
      assert.ok(look < 1500, `nobody took over: ${await states()}`);
      await sleep(20);
    }
    assert.deepEqual(await states(), ['failed', 'completed']);
  } finally {
    await jobs.stop();
  }

  const { records, deleted, pruned, payload_bytes: left } = await calls.row();
  assert.deepEqual({ records, deleted, pruned, payload_bytes: left }, await calls.recount());
  assert.deepEqual([pruned, left], [count, 0]);
  const whole = { count, bytes: payload_bytes };
  await placeEntries(db);
  const [receipts] = await db.query(
    `select sum((details ->> 'count')::bigint)::bigint as count, sum((details ->> 'bytes')::bigint)::bigint as bytes
     from audit
     where action = 'records.pruned'`,
  );
  assert.deepEqual(receipts, whole);
  const [reported] = await db.query(
    `select sum((data ->> 'pruned')::bigint)::bigint as count, sum((data ->> 'bytes')::bigint)::bigint as bytes
     from event
     where type = 'records.retention_done'`,
  );
  assert.deepEqual(reported, whole);
});

async function isMade(db: RecordBench['db']): Promise<boolean> {
  const [row] = await db.query<{ made: boolean }>(`select to_regclass('pgboss.job') is not null as made`);
  return row?.made === true;
}

async function prunedSoFar(db: RecordBench['db']): Promise<number> {
  const [row] = await db.query<{ pruned: number }>('select pruned from dataset');
  return row?.pruned ?? 0;
}
