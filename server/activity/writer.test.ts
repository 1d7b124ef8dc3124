import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { PassThrough } from 'node:stream';
import { after, afterEach, before, type TestContext, test } from 'node:test';
import pg from 'pg';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { type Db, openDb } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { createLog } from '../log.ts';
import { openVault } from '../vault.ts';
import { getOperation, type Operation } from './operations.ts';
import { dayOf, ensureDay, keepDays } from './partitions.ts';
import { searchOperations } from './search.ts';
import { type Activity, createActivity } from './writer.ts';

let database: TestDatabase;
const opened: Activity[] = [];
before(async () => {
  database = await openTestDatabase();
});
afterEach(async () => {
  for (const activity of opened.splice(0)) await activity.stop();
  await database.db.query('truncate operation, operation_message, operation_count');
});
after(() => database.drop());

const environmentId = 1;
const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
const operation = (more: Partial<Operation> = {}): Operation => ({
  environmentId,
  type: 'proxy',
  status: 'success',
  ...more,
});

function open(more: Partial<Parameters<typeof createActivity>[0]> = {}) {
  const lines: Record<string, unknown>[] = [];
  const out = new PassThrough();
  out.on('data', (line: Buffer) => lines.push(JSON.parse(line.toString())));
  const log = createLog({ level: 'warn', format: 'json' }, out);
  const activity = createActivity({ db: database.db, log, settings: { sampleRate: 1 }, ...more });
  opened.push(activity);
  return { activity, lines };
}

/** Looks until there are so many; the file's time limit is the only one. */
async function listed(count: number) {
  for (;;) {
    const { operations } = await searchOperations(database.db, {
      filter: { environmentId },
      limit: 20_000,
      max: 100_000,
    });
    if (operations.length >= count) return operations;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

test('an entry is read back complete, with its messages in order', async () => {
  const { activity } = open();
  const given = operation({
    status: 'failed',
    integration: 'google-sheet',
    connection: 'ada',
    actor: 'key:7',
    requestId: 'r-1',
    durationMs: 12.5,
    method: 'POST',
    path: '/v4/ß?q=1',
    httpStatus: 502,
    errorCode: 'upstream_unreachable',
    requests: 2,
    retries: 1,
    requestBytes: 2 ** 40,
    answerBytes: 0,
    credentialsMs: 0.01,
    quotaMs: 1e-9,
    connectMs: 0,
    firstByteMs: 12,
    bodyMs: 0.25,
    details: { requests: 2, note: 'a "b" \\u0000' },
    messages: [
      { level: 'warn', message: 'first' },
      { level: 'error', message: 'second\0 \ud800', details: { at: 1, text: 'nul \0 and lone \ud800' } },
    ],
  });
  activity.log(given);
  const [found] = await listed(1);
  assert.ok(Math.abs(found!.created_at.getTime() - Date.now()) < 60_000);
  const {
    id,
    created_at: createdAt,
    messages,
    ...rest
  } = await getOperation(database.db, { environmentId, id: found!.id, vault });
  assert.deepEqual([id, createdAt], [found!.id, found!.created_at]);
  assert.deepEqual(rest, {
    type: 'proxy',
    status: 'failed',
    integration: 'google-sheet',
    connection: 'ada',
    actor: 'key:7',
    request_id: 'r-1',
    duration_ms: 12.5,
    method: 'POST',
    path: '/v4/ß?q=1',
    http_status: 502,
    error_code: 'upstream_unreachable',
    requests: 2,
    retries: 1,
    request_bytes: 2 ** 40,
    answer_bytes: 0,
    credentials_ms: 0.01,
    quota_ms: 1e-9,
    connect_ms: 0,
    first_byte_ms: 12,
    body_ms: 0.25,
    details: { requests: 2, note: 'a "b" \\u0000' },
  });
  assert.deepEqual(messages, [
    { level: 'warn', message: 'first', details: {}, isDeleted: false },
    {
      level: 'error',
      message: 'second \ufffd',
      details: { at: 1, text: 'nul  and lone \ufffd' },
      isDeleted: false,
    },
  ]);
  await assert.rejects(getOperation(database.db, { environmentId: 2, id, vault }), { code: 'not_found' });
});

test('the order is kept, across batches and within a millisecond', async () => {
  const at = new Date();
  const { activity } = open({ nowMs: () => at.getTime() });
  const paths = Array.from({ length: 8_000 }, (_, index) => `/${index}`);
  for (const path of paths) activity.log(operation({ path }));
  const found = await listed(paths.length);
  assert.deepEqual(
    found.map(({ path }) => path),
    paths.toReversed(),
  );
  assert.equal(activity.dropped, 0);
});

test('an entry is written automatically, also when no other follows', async () => {
  const { activity } = open();
  activity.log(operation());
  assert.equal((await listed(1)).length, 1);
});

test('a full queue drops new operations, counts them, reports it once, and delays no caller', async () => {
  const { activity, lines } = open({ capacity: 100 });
  await ensureDay(database.db, Date.now());
  const other = openDb(database.target, { maxConnections: 1 });
  const released = Promise.withResolvers<void>();
  const locked = Promise.withResolvers<void>();
  const holding = other.transaction(async (tx) => {
    await tx.query('lock table operation in access exclusive mode');
    locked.resolve();
    await released.promise;
  });
  await locked.promise;
  for (let index = 0; index < 250; index++) activity.log(operation({ path: `/${index}` }));
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(activity.dropped, 150);
  assert.deepEqual(
    lines.map(({ dropped }) => dropped),
    [1],
  );
  released.resolve();
  await holding;
  await other.end();
  assert.deepEqual(
    (await listed(100)).map(({ path }) => path).sort(),
    Array.from({ length: 100 }, (_, index) => `/${index}`).sort(),
  );
  await activity.stop();
  assert.deepEqual(
    lines.map(({ dropped }) => dropped),
    [1, 149],
  );
});

test('calls that the sample leaves out are counted as discarded when the queue is full', () => {
  const { activity } = open({ capacity: 0, settings: { sampleRate: 0 } });
  activity.log(operation({ type: 'proxy', status: 'success' }));
  assert.equal(activity.dropped, 1);
});

test('operations dropped within a minute are reported at its end, even if no more are dropped', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { activity, lines } = open({ capacity: 0 });
  const told = () => lines.map(({ dropped }) => dropped);
  for (let index = 0; index < 3; index++) activity.log(operation());
  t.mock.timers.tick(59_999);
  assert.deepEqual(told(), [1]);
  t.mock.timers.tick(1);
  assert.deepEqual(told(), [1, 2]);
  t.mock.timers.tick(600_000);
  activity.log(operation());
  assert.deepEqual([told(), activity.dropped], [[1, 2, 1], 4]);
  // What follows clears timers of the pool, which keep the process for half a minute where that is not done in earnest.
  t.mock.timers.reset();
});

test('a stop writes queued entries, and does not wait for a database that does not answer', async () => {
  const { activity } = open();
  for (let index = 0; index < 3_000; index++) activity.log(operation());
  await activity.stop();
  assert.equal((await listed(3_000)).length, 3_000);

  const blocked = open();
  const released = Promise.withResolvers<void>();
  const locked = Promise.withResolvers<void>();
  const other = openDb(database.target, { maxConnections: 1 });
  const holding = other.transaction(async (tx) => {
    await tx.query('lock table operation in access exclusive mode');
    locked.resolve();
    await released.promise;
  });
  await locked.promise;
  blocked.activity.log(operation());
  await blocked.activity.stop();
  assert.equal(blocked.activity.dropped, 0);
  blocked.activity.log(operation());
  assert.equal(blocked.activity.dropped, 1);
  released.resolve();
  await holding;
  await other.end();
  // What was being written is not lost.
  await listed(3_001);
  assert.equal(blocked.activity.dropped, 1);
});

for (const ends of ['succeeds', 'fails'] as const) {
  test(`a batch that a stop leaves while it is written is discarded only where that fails: it ${ends}`, async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const written = Promise.withResolvers<never>();
    const { activity, lines } = open({ db: { ...database.db, transaction: () => written.promise } });
    activity.log(operation());
    t.mock.timers.tick(200);
    for (let n = 0; n < 2; n += 1) activity.log(operation());
    const stopping = activity.stop();
    t.mock.timers.tick(1_000);
    await stopping;
    assert.equal(activity.dropped, 2);
    if (ends === 'fails') written.reject(away());
    else written.resolve(undefined as never);
    await new Promise((resolve) => setImmediate(resolve));
    t.mock.timers.reset();
    const told = lines.map(({ dropped }) => dropped);
    assert.deepEqual([activity.dropped, told], ends === 'fails' ? [3, [2, 1]] : [2, [2]]);
  });
}

test('a database that is away is waited for', async () => {
  const { target } = database;
  const url = 'url' in target ? new URL(target.url) : undefined;
  const there = { port: Number(url?.port || 5432), host: url?.hostname ?? '' };
  const way = createServer((socket) => {
    const to = 'url' in target ? connect(there) : connect(`${target.host}/.s.PGSQL.${target.port}`);
    to.on('error', () => socket.destroy());
    socket.on('error', () => to.destroy());
    socket.pipe(to).pipe(socket);
  });
  await once(way.listen(0, '127.0.0.1'), 'listening');
  const { port } = way.address() as AddressInfo;
  way.close();
  await once(way, 'close');
  const db = openDb(
    'url' in target
      ? { url: Object.assign(url!, { host: `127.0.0.1:${port}` }).href }
      : { ...target, host: '127.0.0.1', port },
  );
  await assert.rejects(db.query('select'), { code: 'unavailable' });
  const { activity, lines } = open({ db });
  for (let index = 0; index < 1_500; index++) activity.log(operation());
  // More than one try has failed by then, and a fourth finds the way open.
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  await once(way.listen(port, '127.0.0.1'), 'listening');
  assert.equal((await listed(1_500)).length, 1_500);
  assert.deepEqual([activity.dropped, lines], [0, []]);
  await activity.stop();
  await db.end();
  way.close();
});

const away = () => new AppError('unavailable');
const coded = (code: string) => Object.assign(new pg.DatabaseError(code, 0, 'error'), { code });
const deadlock = () => coded('40P01');
const refusal = () => coded('23514');

/**
 * A writer to a database whose transactions fail, each in its turn, until no failure is left; and its clock. To be ended
 * before the pool of the other tests is used: it has timers, too.
 */
function failing(t: TestContext, failures: (() => Error)[]) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let atMs = 0;
  t.mock.method(performance, 'now', () => atMs);
  let tries = 0;
  const db: Db = {
    ...database.db,
    async transaction() {
      tries += 1;
      const failure = failures.shift();
      if (failure) throw failure();
      return undefined as never;
    },
  };
  return {
    ...open({ db }),
    tries: () => tries,
    async pass(ms: number) {
      atMs += ms;
      t.mock.timers.tick(ms);
      await new Promise((resolve) => setImmediate(resolve));
    },
    end() {
      t.mock.reset();
    },
  };
}

test('an outage does not count against a batch, nor does an error that passes', async (t) => {
  const { activity, lines, pass, tries, end } = failing(t, [
    away,
    away,
    away,
    away,
    deadlock,
    deadlock,
    deadlock,
    deadlock,
    away,
    refusal,
    deadlock,
    refusal,
  ]);
  activity.log(operation());
  for (let n = 0; n < 13; n += 1) await pass(1_000);
  // The last try makes the day and writes the batch.
  assert.deepEqual([tries(), activity.dropped, lines], [14, 0, []]);
  end();
});

test('a batch is tried for a minute where the database is there', async (t) => {
  const { activity, pass, tries, end } = failing(
    t,
    new Array(61 + 20 + 61).fill(deadlock).fill(away, 30, 50),
  );
  activity.log(operation());
  for (let n = 0; n < 30 + 20 + 60; n += 1) await pass(1_000);
  assert.deepEqual([tries(), activity.dropped], [110, 0]);
  await pass(1_000);
  assert.deepEqual([tries(), activity.dropped], [111, 1]);
  end();
});

test('a batch that is refused is tried three times', async (t) => {
  const { activity, pass, tries, end } = failing(t, new Array(3).fill(refusal));
  activity.log(operation());
  await pass(1_000);
  await pass(1_000);
  assert.equal(activity.dropped, 0);
  await pass(1_000);
  assert.deepEqual([tries(), activity.dropped], [3, 1]);
  end();
});

test('a second passes before the next try, also where more is logged during one', async (t) => {
  const { activity, pass, tries, end } = failing(t, [away, away]);
  activity.log(operation());
  t.mock.timers.tick(200);
  activity.log(operation());
  await pass(0);
  await pass(999);
  assert.equal(tries(), 1);
  await pass(1);
  assert.equal(tries(), 2);
  end();
});

test('a day that is dropped meanwhile is made again', async () => {
  const { activity } = open();
  activity.log(operation({ path: '/before' }));
  await listed(1);
  for (const parent of ['operation', 'operation_message']) {
    await database.db.query(`drop table ${parent}_${dayOf(Date.now())}`);
  }
  activity.log(operation({ path: '/after' }));
  assert.deepEqual(
    (await listed(1)).map(({ path }) => path),
    ['/after'],
  );
  assert.equal(activity.dropped, 0);
});

test('a sample of successful calls is kept, and all entries that failed or are no call', async () => {
  const chances = [0.1, 0.3, 0.2, 0.9];
  const { activity } = open({ settings: { sampleRate: 0.25 }, random: () => chances.shift()! });
  for (const path of ['/1', '/2', '/3', '/4']) activity.log(operation({ path }));
  for (const path of ['/5', '/6']) activity.log(operation({ path, status: 'failed' }));
  activity.log(operation({ path: '/7', type: 'connect' }));
  await activity.stop();
  assert.deepEqual(
    (await listed(5)).map(({ path }) => path),
    ['/7', '/6', '/5', '/3', '/1'],
  );
  assert.equal(activity.dropped, 0);
});

test('twenty that make a day at once make it once', async () => {
  const at = Date.UTC(2030, 0, 1, 12);
  await Promise.all(Array.from({ length: 20 }, () => ensureDay(database.db, at)));
  const made = await database.db.query(
    `select relname from pg_class where relkind = 'r' and relname like 'operation%20300101'`,
  );
  assert.equal(made.length, 2);
});

test('days are dropped once they have been kept as long as they should be, and tomorrow is there', async () => {
  const { db } = database;
  let at = new Date('2027-03-01T12:00:00Z');
  const { activity } = open({ nowMs: () => at.getTime() });
  for (const day of ['2027-03-01', '2027-03-02', '2027-03-03']) {
    at = new Date(`${day}T23:59:59.999Z`);
    activity.log(operation({ path: day, messages: [{ level: 'info', message: day }] }));
  }
  await activity.stop();
  const kept = async () => {
    const from = new Date('2027-03-01');
    const to = new Date('2027-04-01');
    const { operations: found } = await searchOperations(db, {
      filter: { environmentId, from, to },
      limit: 10,
    });
    const messages = await db.query(`select from operation_message where created_at between $1 and $2`, [
      from,
      to,
    ]);
    assert.equal(messages.length, found.length);
    return found.map(({ path }) => path);
  };
  const run = (now: string) => keepDays(db, { now: new Date(now), keptDays: 2 });
  await run('2027-03-03T23:59:00Z');
  assert.deepEqual(await kept(), ['2027-03-03', '2027-03-02', '2027-03-01']);
  assert.deepEqual(await run('2027-03-04T00:00:00Z'), ['20270301']);
  assert.deepEqual(await kept(), ['2027-03-03', '2027-03-02']);
  assert.deepEqual(await run('2027-03-04T00:01:00Z'), []);
  const tomorrow = await db.query(`select from pg_class where relname = 'operation_20270305'`);
  assert.equal(tomorrow.length, 1);
});
