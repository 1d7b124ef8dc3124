import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { after, before, describe, type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { openDatabaseCable } from '../../test/support/database-cable.ts';
import { AppError } from '../errors.ts';
import { CopyRows } from './copy.ts';
import { isViolationOf, mayPass, openDb, retryOnViolation, type Tx } from './pool.ts';

let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
  await database.db.query(
    'create table thing (id bigint constraint thing_once primary key, at timestamptz, body bytea)',
  );
});
after(() => database.drop());

test('int8 is a number, and one beyond 2^53 is an error rather than another number', async () => {
  assert.deepEqual(await database.db.query('select 9007199254740991::int8 as big'), [
    { big: 9007199254740991 },
  ]);
  await assert.rejects(database.db.query('select 9007199254740993::int8 as big'), /beyond 2\^53/);
});

test('a transaction whose work throws leaves nothing behind, and its connection is good again', async () => {
  await assert.rejects(
    database.db.transaction(async (tx) => {
      await tx.query('insert into thing (id) values (1)');
      throw new Error('no');
    }),
    /no/,
  );
  assert.deepEqual(await database.db.query('select id from thing'), []);
});

test('whatever a transaction sends first is in it, also if several statements are sent at once', async () => {
  const { db } = database;
  await db.query('create table first_sent (n integer)');
  const insert = (tx: Tx, n: number, values: unknown[] = []) =>
    tx.query(`insert into first_sent values (${values.length > 0 ? '$1' : n})`, values);
  const works: ((tx: Tx) => Promise<unknown>)[] = [
    (tx) => insert(tx, 1),
    (tx) => insert(tx, 2, [2]),
    (tx) => Promise.all([insert(tx, 3), insert(tx, 4, [4]), insert(tx, 5)]),
    (tx) => Promise.all([insert(tx, 6, [6]), insert(tx, 7)]),
    (tx) => tx.copyInto('first_sent (n)', new CopyRows(64).row(1).int4(8)),
    // The text is refused as a whole, with its `begin`.
    (tx) =>
      tx
        .query('insert into')
        .catch(() => insert(tx, 9))
        .catch(() => insert(tx, 10, [10]))
        .catch(() => {}),
  ];
  for (const work of works) {
    await assert.rejects(
      db.transaction(async (tx) => {
        await work(tx);
        throw new Error('undo');
      }),
      /undo/,
    );
  }
  assert.deepEqual(await db.query('select from first_sent'), []);
  const rows = await db.transaction((tx) => tx.query('select 1 as one'));
  assert.deepEqual(rows, [{ one: 1 }]);
});

test('statements that run with the commit are part of the transaction, whichever of them fails', async () => {
  const { db } = database;
  await db.query('create table with_commit (n integer check (n < 9))');
  const writing = (...statements: string[]) =>
    db.transaction(async (tx) => {
      for (const statement of statements) tx.runWithCommit(statement);
      return statements.length;
    });
  const insert = (n: number) => `insert into with_commit values (${n})`;
  for (const last of [insert(9), 'insert into', 'select 1 / 0'])
    await assert.rejects(writing(insert(1), last), { code: /^(23514|42601|22012)$/ });
  await assert.rejects(
    db.transaction(async (tx) => {
      tx.runWithCommit(insert(2));
      await tx.query(insert(3));
      throw new Error('no');
    }),
    /no/,
  );
  assert.deepEqual(await db.query('select n from with_commit'), []);
  assert.equal(await writing(insert(4), insert(5)), 2);
  await db.transaction(async (tx) => {
    tx.runWithCommit(insert(7));
    await tx.query(insert(6));
  });
  const rows = await db.query<{ n: number }>('select n from with_commit');
  assert.deepEqual(
    rows.map(({ n }) => n),
    [4, 5, 6, 7],
  );
});

test('a transaction whose work ignores a failed statement is not reported as committed', async () => {
  const { db } = database;
  await db.query('create table ignored (n integer)');
  for (const statement of ['select 1 / 0', 'select nothing'])
    await assert.rejects(
      db.transaction(async (tx) => {
        await tx.query('insert into ignored values (1)');
        await tx.query(statement).catch(() => {});
        return 'committed';
      }),
      /aborted/,
    );
  assert.deepEqual(await db.query('select from ignored'), []);
  assert.equal(await db.transaction(async () => 'no statement'), 'no statement');
});

test('a snapshot sees one moment and refuses to write', async () => {
  await database.db
    .transaction(async (tx) => {
      await tx.query('select count(*) from thing');
      await database.db.query('insert into thing (id) values (2)');
      assert.deepEqual(await tx.query('select id from thing'), []);
      await assert.rejects(tx.query('insert into thing (id) values (3)'), /read-only/);
    }, 'snapshot')
    .catch((error: Error) => assert.match(error.message, /aborted|read-only/));
});

test('who loses the race for a unique value finds what the winner wrote', async () => {
  const make = () =>
    retryOnViolation('thing_once', async () => {
      const [found] = await database.db.query<{ id: number }>('select id from thing where id = 7');
      if (found) return 'found';
      await database.db.query('insert into thing (id) values (7)');
      return 'made';
    });
  const outcomes = await Promise.all(Array.from({ length: 20 }, make));
  assert.equal(outcomes.filter((outcome) => outcome === 'made').length, 1);
  const again = await database.db.query('insert into thing (id) values (7)').catch((error: unknown) => error);
  assert.ok(isViolationOf(again, 'thing_once'));
});

test('a missing server is reported as unavailable, with the reason for the log', async () => {
  const away = openDb({ url: 'postgres://nobody@127.0.0.1:1/nothing' });
  await assert.rejects(away.query('select 1'), { code: 'unavailable', status: 503 });
  await assert.rejects(
    away.transaction(async () => {}),
    { code: 'unavailable', status: 503 },
  );
  await away.end();
});

test('a server that disconnects at the begin or the commit of a transaction is reported as unavailable', async (t) => {
  const cable = await openDatabaseCable(database.target);
  const far = openDb(cable.target);
  t.after(async () => {
    await far.end();
    await cable.close();
  });
  await far.query('select 1');
  for (const [text, values] of [
    ['select 1', []],
    ['select $1::integer', [1]],
  ] as const) {
    cable.pull();
    await assert.rejects(
      far.transaction((tx) => tx.query(text, values)),
      { code: 'unavailable' },
    );
    cable.plug();
  }
  await assert.rejects(
    far.transaction(async (tx) => {
      await tx.query('select 1');
      cable.pull();
    }),
    { code: 'unavailable' },
  );
});

test('an error in the packet of a response, while its connection is lent again, fails the next statement alone', async (t) => {
  const cable = await openDatabaseCable(database.target);
  const far = openDb(cable.target, { maxConnections: 1 });
  t.after(async () => {
    await far.end();
    await cable.close();
  });
  await far.query('select 1');
  cable.crash();
  const select = () => far.transaction((tx) => tx.query('select 1'));
  const outcomes = await Promise.allSettled(Array.from({ length: 20 }, select));
  const codes = outcomes.map((one) => (one.status === 'rejected' ? (one.reason as AppError).code : 'done'));
  assert.deepEqual(
    codes.filter((code) => code !== 'unavailable' && code !== 'done'),
    [],
  );
  assert.ok(codes.includes('unavailable'));
  cable.plug();
  assert.equal((await far.query('select 1')).length, 1);
});

test('a network that fails in whatever way may be well later, and a pool that was ended may not', async () => {
  const failing = async (host: string) => {
    const away = openDb({ host, port: 1, user: 'nobody', database: 'nothing' });
    const error = await away.query('select 1').catch((thrown: unknown) => thrown);
    await away.end();
    return [away, error] as const;
  };
  // ENETUNREACH or EACCES for the broadcast address, ENOTFOUND or EAI_AGAIN for the name.
  for (const host of ['255.255.255.255', 'nowhere.invalid', '127.0.0.1']) {
    const [ended, error] = await failing(host);
    assert.ok(error instanceof AppError && error.code === 'unavailable', host);
    assert.ok(mayPass(error));
    await assert.rejects(ended.query('select 1'), (after) => !mayPass(after));
  }
});

test('a transaction with a time limit is aborted if the server does not respond, and a new connection replaces its own', async () => {
  const cable = await openDatabaseCable(database.target);
  const db = openDb(cable.target);
  await db.query('select 1');
  cable.silence();
  const insert = (tx: Tx) => tx.query('insert into thing (id) values (41)');
  await assert.rejects(db.transactionWithin(insert, { ms: 300, connection: 'pooled' }), {
    code: 'unavailable',
  });
  await db.transactionWithin(insert, { ms: 30_000, connection: 'fresh' });
  const [row] = await database.db.query('select count(*) from thing where id = 41');
  assert.deepEqual(row, { count: 1 });
  const slow = db.transactionWithin((tx) => tx.query('select pg_sleep(60)'), {
    ms: 300,
    connection: 'fresh',
  });
  await assert.rejects(slow, (error) => mayPass(error));
  await db.end();
  await cable.close();
});

test('a transaction that is not begun in the time for that is given up, whatever it has after', async () => {
  const cable = await openDatabaseCable(database.target);
  const db = openDb(cable.target);
  await db.query('select 1');
  const limit = { ms: 86_400_000, connectMs: 1_000, connection: 'pooled' } as const;
  await db.transactionWithin((tx) => tx.query('select pg_sleep(1.5)'), limit);
  cable.silence();
  await assert.rejects(
    db.transactionWithin(() => assert.fail('it has begun'), limit),
    { code: 'unavailable' },
  );
  await db.end();
  await cable.close();
});

async function openSilent(t: TestContext, silentMs: number) {
  const cable = await openDatabaseCable(database.target);
  const db = openDb(cable.target, { silentMs });
  t.after(async () => {
    await db.end();
    await cable.close();
  });
  await db.query('select 1');
  return { cable, db };
}

// They mostly wait.
describe('a server or network that no longer responds', { concurrency: 8 }, () => {
  test('a connection on which the server no longer responds is closed, whatever waits for it, and a slow one is not', async (t) => {
    const cable = await openDatabaseCable(database.target);
    const db = openDb(cable.target, { silentMs: 1_000 });
    t.after(async () => {
      await db.end();
      await cable.close();
    });
    const pipeline = { statements: ['select 1'], onRow() {}, onCopied() {} };
    const works: (() => Promise<unknown>)[] = [
      () => db.query('select 1'),
      () => db.transaction((tx) => tx.query('select 1')),
      () => db.transaction((tx) => tx.copyRows('select 1', () => {})),
      () => db.pipeline(pipeline),
    ];
    for (const work of works) {
      await work();
      cable.silence();
      await assert.rejects(work(), { code: 'unavailable' });
      await work();
    }
    // One that has something to do is waited for.
    const slow = [db.query('select pg_sleep(5)'), db.transaction((tx) => tx.query('select pg_sleep(5)'))];
    assert.equal((await Promise.all(slow)).length, 2);
  });

  test('the check of the server may lose its own connection once', async (t) => {
    const { cable, db } = await openSilent(t, 500);
    cable.loseAnswerTo('pg_stat_activity');
    assert.equal((await db.query('select pg_sleep(2)')).length, 1);
    const losing = setInterval(() => cable.loseAnswerTo('pg_stat_activity'), 20);
    await assert.rejects(db.query('select pg_sleep(30)'), { code: 'unavailable' });
    clearInterval(losing);
    assert.deepEqual(await db.query('select 1 as one'), [{ one: 1 }]);
  });

  test('a server without capacity for the check does not count as lost', async (t) => {
    const { cable, db } = await openSilent(t, 500);
    cable.crowd();
    assert.equal((await db.query('select pg_sleep(1.5)')).length, 1);
    await assert.rejects(db.query('select pg_sleep(30)'), { code: 'unavailable' });
  });

  test('a statement that ends during the check is complete, and its transaction continues', async (t) => {
    const { cable, db } = await openSilent(t, 300);
    cable.delay(600);
    await db.transaction(async (tx) => {
      await tx.query('select pg_sleep(0.5)');
      for (let n = 0; n < 100; n++) {
        await tx.query('select 1');
        await pause(10);
      }
    });
  });

  test('neither fresh connections, nor slow logins, nor an end keep a server from saying that it works', async (t) => {
    const cable = await openDatabaseCable(database.target);
    t.after(() => cable.close());
    const db = openDb(cable.target, { silentMs: 500 });
    const fresh = Array.from({ length: 4 }, () =>
      db.transactionWithin((tx) => tx.query('select pg_sleep(3)'), { ms: 20_000, connection: 'fresh' }),
    );
    await pause(300);
    cable.delay(2_500);
    const slow = [...fresh, ...Array.from({ length: 8 }, () => db.query('select pg_sleep(4)'))];
    await pause(1_000);
    const ended = db.end();
    assert.equal((await Promise.all(slow)).length, 12);
    await ended;
  });

  test('new connections that hang block neither later ones nor the end of the pool', async () => {
    const silent = createServer().listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const { port } = silent.address() as AddressInfo;
    const db = openDb({ url: `postgres://nobody@127.0.0.1:${port}/none` });
    const attempts = Array.from({ length: 6 }, () =>
      assert.rejects(
        db.transactionWithin((tx) => tx.query('select'), { ms: 200, connection: 'fresh' }),
        { code: 'unavailable' },
      ),
    );
    await Promise.all(attempts);
    assert.equal(await Promise.race([db.end().then(() => 'ended'), pause(30_000, 'open')]), 'ended');
    silent.close();
  });
});

// After those: it changes the server for all new connections to this database.
test('a server that does not note what its processes do is waited for', async (t) => {
  const [row] = await database.db.query<{ name: string }>('select current_database() as name');
  await database.db.query(`alter database ${row!.name} set track_activities = off`);
  t.after(() => database.db.query(`alter database ${row!.name} reset track_activities`));
  const { db } = await openSilent(t, 500);
  assert.equal((await db.query('select pg_sleep(1.5)')).length, 1);
});

test('a server without capacity is reported as unavailable, and no other fault of a statement is', async () => {
  const raise = (code: string) =>
    database.db.query(
      `do $$ begin raise exception using errcode = '${code}', message = 'No space left'; end $$`,
    );
  for (const code of ['53100', '53200'])
    await assert.rejects(raise(code), { code: 'unavailable', status: 503 }, code);
  await assert.rejects(raise('54000'), { code: '54000' });
});

test('what the statement is to blame for does not pass, and what the server is to blame for does', async () => {
  const failing = (code: string) =>
    database.db
      .query(`do $$ begin raise 'no' using errcode = '${code}'; end $$`)
      .catch((error: unknown) => error);
  for (const code of ['25006', '40P01', '53100', '53300', '57P01'])
    assert.ok(mayPass(await failing(code)), code);
  for (const code of ['22003', '23505', '42501']) assert.ok(!mayPass(await failing(code)), code);
  for (const error of [new AppError('unknown_connection'), new TypeError()]) assert.ok(!mayPass(error));
});

test('a broken connection to a worker of a cluster is reported as unavailable, and another internal error is not', async () => {
  const raise = (message: string) =>
    database.db.query(`do $$ begin raise exception using errcode = 'XX000', message = '${message}'; end $$`);
  for (const message of [
    'server closed the connection unexpectedly',
    'connection not open',
    'SSL SYSCALL error: EOF detected',
    'connection to the remote node db-1:5432 failed with the following error: timeout',
  ])
    await assert.rejects(raise(message), { code: 'unavailable', retryAfterS: 5 }, message);
  await assert.rejects(raise('cache lookup failed'), { code: 'XX000' });
});
