import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { openTestDatabase } from '../../test/support/database.ts';
import { recordStatements } from '../../test/support/recorder.ts';
import { metrics } from '../metrics/metrics.ts';
import { currentCause } from '../tracing/tracing.ts';
import { isSchemaMissing, startJobs } from './jobs.ts';

let bench: Awaited<ReturnType<typeof openTestDatabase>>;
before(async () => {
  bench = await openTestDatabase();
});
after(() => bench.drop());

const fail = (error: unknown) => {
  throw error;
};

/** A job that tells what it was given, and runs until it may end. */
function heldJob(name: string) {
  const events = new EventTarget();
  let release = () => {};
  const begun = once(events, 'begun');
  return {
    begun,
    release: () => release(),
    job: {
      name,
      async run(_ids: Record<string, number>, signal: AbortSignal) {
        events.dispatchEvent(new Event('begun'));
        await new Promise<void>((resolve) => {
          release = resolve;
          signal.addEventListener('abort', () => resolve());
        });
      },
    },
  };
}

test('a job gets its ids, also one that was sent before anybody worked on it', async () => {
  const jobs = await startJobs(bench.db, { onError: fail });
  try {
    const got = await new Promise((resolve, reject) => {
      const run = async (ids: unknown) => resolve(ids);
      jobs
        .work({ name: 'test.ids', run })
        .then(() => jobs.send('test.ids', { connection: 7, model: 'Row' }))
        .catch(reject);
    });
    assert.deepEqual(got, { connection: 7, model: 'Row' });
  } finally {
    await jobs.stop();
  }
});

test('a job that is sent in a transaction exists exactly if that commits', async () => {
  const jobs = await startJobs(bench.db, { onError: fail });
  const count = async () =>
    (
      await bench.db.query<{ count: number }>(
        `select count(*) as count from pgboss.job where name = 'test.transaction'`,
      )
    )[0]?.count;
  try {
    // The node that works on the queue creates it; no node works on it from here on.
    await jobs.work({ name: 'test.transaction', run: async () => {} });
    await jobs.stop();
    const sender = await startJobs(bench.db, { onError: fail });
    await assert.rejects(
      bench.db.transaction(async (tx) => {
        await sender.send('test.transaction', { id: 1 }, tx);
        throw new Error('changed my mind');
      }),
      /changed my mind/,
    );
    assert.equal(await count(), 0);
    await bench.db.transaction((tx) => sender.send('test.transaction', { id: 1 }, tx));
    assert.equal(await count(), 1);
    // One that waits stands for the next.
    await sender.send('test.transaction', { id: 1 });
    assert.equal(await count(), 1);
    await sender.stop();
  } finally {
    await jobs.stop();
  }
});

test('many nodes start at once on a fresh database, and each schedule exists once', async () => {
  const { db, drop } = await openTestDatabase();
  try {
    const nodes = await Promise.all(Array.from({ length: 5 }, () => startJobs(db, { onError: fail })));
    await Promise.all(
      nodes.map(async (node) => {
        await node.work({ name: 'test.every-minute', run: async () => {} });
        await node.schedule('test.every-minute', '* * * * *');
      }),
    );
    const schedules = await db.query('select name, cron from pgboss.schedule');
    assert.deepEqual(schedules, [{ name: 'test.every-minute', cron: '* * * * *' }]);
    await Promise.all(nodes.map((node) => node.stop()));
  } finally {
    await drop();
  }
});

test('a node finds jobs that another queued, and looks into all queues with one statement', async () => {
  const rhythm = { pollS: 1, heartbeatS: 10, superviseS: 15 };
  const node = await startJobs(bench.db, { onError: fail, rhythm });
  const sender = await startJobs(bench.db, { onError: fail });
  const recorder = recordStatements();
  try {
    const held = heldJob('test.found');
    await node.work(held.job);
    for (const name of ['test.idle-1', 'test.idle-2']) await node.work({ name, run: async () => {} });
    const polls = () => recorder.sent.filter(({ text }) => text.includes(`name = 'test.idle-`)).length;
    const looks = () => recorder.sent.filter(({ text }) => text.startsWith('select distinct name')).length;
    while (polls() < 2) await pause(5);
    const looked = looks();
    while (looks() < looked + 3) await pause(5);
    assert.equal(polls(), 2);
    await sender.send('test.found', { id: 1 });
    await held.begun;
    held.release();
  } finally {
    recorder.end();
    await sender.stop();
    await node.stop();
  }
});

test('a stop signals the running job and waits for it, and the next start continues', async () => {
  const jobs = await startJobs(bench.db, { onError: fail });
  const held = heldJob('test.stop');
  await jobs.work(held.job);
  await jobs.send('test.stop', { id: 1 });
  await held.begun;
  await jobs.stop();
  const [job] = await bench.db.query(`select state from pgboss.job where name = 'test.stop'`);
  assert.equal(job?.state, 'completed');
  const again = await startJobs(bench.db, { onError: fail });
  const next = heldJob('test.stop');
  await again.work(next.job);
  await again.send('test.stop', { id: 2 });
  await next.begun;
  next.release();
  await again.stop();
});

test('a failed job is logged without its input, and does not end other jobs', async () => {
  const reported: unknown[] = [];
  const jobs = await startJobs(bench.db, { onError: (error) => reported.push(error) });
  const done = heldJob('test.good');
  await jobs.work({
    name: 'test.bad',
    run: async () => {
      throw new Error('secret sauce');
    },
  });
  await jobs.work(done.job);
  await jobs.send('test.bad', { id: 1 });
  await jobs.send('test.good', { id: 1 });
  await done.begun;
  done.release();
  while (reported.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  await jobs.stop();
  assert.match(String(reported[0]), /the job test\.bad failed/);
  const rows = await bench.db.query(`select output::text as output from pgboss.job where name = 'test.bad'`);
  assert.ok(rows.every(({ output }) => !String(output).includes('sauce')));
});

test('the error for a role that may not create schemas names the commands for the database owner', async () => {
  const role = `jobs_${randomBytes(6).toString('hex')}`;
  await bench.db.query(`create role ${role}`);
  const { db, drop } = await openTestDatabase();
  const asRole = () =>
    db.transaction(async (tx) => {
      await tx.query(`set local role ${role}`);
      return isSchemaMissing(tx);
    });
  try {
    await assert.rejects(asRole(), (error: Error) => {
      assert.match(error.message, new RegExp(`role "${role}" may not create schemas in the database`));
      assert.match(error.message, /create schema if not exists pgboss; grant all on schema pgboss to/);
      return true;
    });
    await db.query('create schema pgboss');
    await assert.rejects(asRole(), /may not create tables in the schema "pgboss"/);
    await db.query(`grant all on schema pgboss to ${role}`);
    assert.equal(await asRole(), false);
  } finally {
    await drop();
    await bench.db.query(`drop role ${role}`);
  }
});

test('what a job causes names it, and it is counted by its end', async () => {
  const reported: unknown[] = [];
  const jobs = await startJobs(bench.db, { onError: () => reported.push(currentCause()) });
  const countOf = (outcome: string) => metrics.jobs.of(['test.cause', outcome]).value;
  try {
    let turn = 0;
    await jobs.work({
      name: 'test.cause',
      async run() {
        reported.push(currentCause());
        if (++turn === 2) throw new Error('no');
      },
    });
    await jobs.send('test.cause', {});
    while (countOf('done') === 0) await pause(10);
    await jobs.send('test.cause', {});
    while (countOf('failed') === 0 || reported.length < 3) await pause(10);
    assert.deepEqual(
      reported.map((cause) => (cause as { job?: string } | undefined)?.job),
      Array(3).fill('test.cause'),
    );
    assert.deepEqual([countOf('done'), countOf('failed')], [1, 1]);
  } finally {
    await jobs.stop();
  }
});
