import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, afterEach, before, type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { type DatabaseCable, openDatabaseCable } from '../../test/support/database-cable.ts';
import { countWaiting } from '../../test/support/locks.ts';
import { type Db, openDb } from '../db/pool.ts';
import {
  createRemoteCallServer,
  type HandleRemoteCall,
  type RemoteCallServer,
  sweepRemoteCalls,
} from './remote-call-server.ts';
import { createRemoteCalls } from './remote-calls.ts';

let bench: TestDatabase;
let environmentId: number;
before(async () => {
  bench = await openTestDatabase();
  const [key] = await bench.db.query<{ id: string }>(
    `with master as (
       insert into master_key (id, proof)
       values ('m', '\\x00')
       returning id
     )
     insert into data_key (master_key, wrapped)
     select id, '\\x00'
     from master
     returning id`,
  );
  const [made] = await bench.db.query<{ id: number }>(
    `insert into environment (name, data_key) values ('test', $1) returning id`,
    [key?.id],
  );
  environmentId = made!.id;
});
after(() => bench.drop());

const fail = (error: unknown) => {
  throw error;
};
const desks = new Set<RemoteCallServer>();
afterEach(async () => {
  for (const desk of desks) await desk.stop(0);
  desks.clear();
  await bench.db.query('delete from errand');
});
/** A desk that ends with its test. */
function open(
  work: HandleRemoteCall,
  { db = bench.db, ...settings }: Partial<Parameters<typeof createRemoteCallServer>[1]> & { db?: Db } = {},
): RemoteCallServer {
  const desk = createRemoteCallServer(db, {
    kinds: { test: work },
    pollMs: 10,
    remainingCapacity: () => 20,
    onError: fail,
    ...settings,
  });
  desks.add(desk);
  return desk;
}
const remoteCall = (text: string, signal?: AbortSignal) => ({
  environmentId,
  kind: 'test',
  request: Buffer.from(text),
  signal,
});
/** The database by a way that can be cut, and what has failed on it. */
async function cut(t: TestContext): Promise<{ cable: DatabaseCable; db: Db; failures: unknown[] }> {
  const cable = await openDatabaseCable(bench.target);
  const db = openDb(cable.target);
  const failures: unknown[] = [];
  const noted: Db['query'] = (text, values) =>
    db.query<never>(text, values).catch((error: unknown) => {
      failures.push(error);
      throw error;
    });
  t.after(async () => {
    await db.end();
    await cable.close();
  });
  return { cable, failures, db: { ...db, query: noted } };
}
const until = async (isSo: () => boolean | Promise<boolean>) => {
  for (let left = 4_000; !(await isSo()); left--) {
    if (left === 0) throw new Error('it never came to that');
    await pause(5);
  }
};
const left = async () => (await bench.db.query('select id from errand')).length;

test('of twenty remote calls at once and two servers each is run once, and answered', async () => {
  const done: string[] = [];
  const both = [0, 1].map(() =>
    open(async (request) => {
      done.push(request.toString());
      return Buffer.from(`${request} done`);
    }),
  );
  for (const desk of both) desk.start();
  const remoteCalls = createRemoteCalls(bench.db);
  const texts = Array.from({ length: 20 }, (_, n) => String(n));
  const ends = await Promise.all(texts.map((text) => remoteCalls.ask(remoteCall(text))));
  assert.deepEqual(
    ends.map((end) => 'answer' in end && end.answer.toString()),
    texts.map((text) => `${text} done`),
  );
  assert.deepEqual(done.sort(), texts.toSorted());
  assert.equal(await left(), 0);
});

test('a call that no node takes is withdrawn, and no node runs it later', async () => {
  const remoteCalls = createRemoteCalls(bench.db, { untakenAfterMs: 1 });
  assert.deepEqual(await remoteCalls.ask(remoteCall('late')), { none: 'untaken' });
  assert.equal(await left(), 0);
});

test('the node that runs a remote call is notified when its caller no longer waits', async () => {
  const begun = Promise.withResolvers<AbortSignal>();
  const desk = open(async (_, { signal }) => {
    begun.resolve(signal);
    await once(signal, 'abort');
    return Buffer.from('too late');
  });
  desk.start();
  const gone = new AbortController();
  const asked = createRemoteCalls(bench.db).ask(remoteCall('withdrawn', gone.signal));
  await begun.promise;
  gone.abort();
  assert.deepEqual(await asked, { none: 'cancelled' });
  await desk.stop(60_000);
  assert.equal(await left(), 0);
});

test('the node that runs a remote call is notified when an earlier version of the service withdraws it by deleting its row', async () => {
  const begun = Promise.withResolvers<AbortSignal>();
  const desk = open(async (_, { signal }) => {
    begun.resolve(signal);
    await once(signal, 'abort');
    return Buffer.from('too late');
  });
  desk.start();
  const asked = createRemoteCalls(bench.db).ask(remoteCall('deleted'));
  await begun.promise;
  await bench.db.query('delete from errand');
  assert.deepEqual(await asked, { none: 'lost' });
  await desk.stop(60_000);
});

test('the caller gets an error when the node with the call is lost, fails or stops', async () => {
  const remoteCalls = createRemoteCalls(bench.db);
  const killed = remoteCalls.ask(remoteCall('killed'));
  await until(async () => (await left()) > 0);
  await bench.db.query(
    `update errand set owner = gen_random_uuid(), lease_until = clock_timestamp() - interval '1 second'`,
  );
  assert.deepEqual(await killed, { none: 'lost' });

  const reported: unknown[] = [];
  const failing = open(() => Promise.reject(new Error('no')), { onError: (error) => reported.push(error) });
  failing.start();
  assert.deepEqual(await remoteCalls.ask(remoteCall('fails')), { none: 'lost' });
  assert.match(String(reported[0]), /no/);
  await failing.stop(0);

  const begun = Promise.withResolvers<void>();
  const stopped = open(() => {
    begun.resolve();
    return new Promise(() => {});
  });
  stopped.start();
  const asked = remoteCalls.ask(remoteCall('stops'));
  await begun.promise;
  await stopped.stop(1);
  assert.deepEqual(await asked, { none: 'lost' });
  assert.equal(await left(), 0);
});

test('the calls of a killed node are deleted', async () => {
  await bench.db.query(
    `insert into errand (id, environment_id, kind, request, awaited_until)
     values (gen_random_uuid(), $1, 'test', '', clock_timestamp() - interval '2 minutes')`,
    [environmentId],
  );
  await sweepRemoteCalls(bench.db);
  assert.equal(await left(), 0);
});

test('the caller gets no error for an outage that ends while a node may still take the call', async (t) => {
  const { cable, db, failures } = await cut(t);
  const done: string[] = [];
  const desk = open(async (request) => {
    done.push(request.toString());
    return Buffer.from('done');
  });
  const asked = ['one', 'two'].map((text) => createRemoteCalls(db).ask(remoteCall(text)));
  await until(async () => (await left()) === 2);
  cable.pull();
  await until(() => failures.length > 2);
  desk.start();
  await until(() => done.length === 2);
  cable.plug();
  for (const end of await Promise.all(asked)) assert.ok('answer' in end);
  assert.equal(await left(), 0);
  await desk.stop(0);
});

test('an outage ends the wait once no node can take the call, and none does afterwards', async (t) => {
  const { cable, db } = await cut(t);
  const asked = createRemoteCalls(db, { lastingS: 0.5 }).ask(remoteCall('long outage'));
  await until(async () => (await left()) === 1);
  cable.pull();
  assert.deepEqual(await asked, { none: 'lost' });
  cable.plug();
  const desk = open(() => assert.fail('it was done'));
  desk.start();
  await createRemoteCalls(bench.db, { untakenAfterMs: 1 }).ask({
    ...remoteCall('a look later'),
    kind: 'unknown',
  });
  await desk.stop(0);
});

test('a remote call whose insertion was not answered is waited for if its row exists, and else fails', async (t) => {
  const { cable, db, failures } = await cut(t);
  cable.loseAnswerTo('insert into errand');
  const asked = createRemoteCalls(db).ask(remoteCall('in doubt'));
  const desk = open(async (request) => Buffer.from(`${request} done`));
  desk.start();
  const end = await asked;
  assert.equal('answer' in end && end.answer.toString(), 'in doubt done');
  cable.pull();
  failures.length = 0;
  const refused = assert.rejects(
    createRemoteCalls(db).ask(remoteCall('never there')),
    /database does not answer/,
  );
  await until(() => failures.length > 0);
  cable.plug();
  await refused;
  assert.equal(await left(), 0);
  await desk.stop(0);
});

test('of 300 calls that are withdrawn at once none is lost', async () => {
  const gone = new AbortController();
  const remoteCalls = createRemoteCalls(bench.db);
  const asked = Array.from({ length: 300 }, (_, n) => remoteCalls.ask(remoteCall(String(n), gone.signal)));
  await until(async () => (await left()) === asked.length);
  gone.abort();
  const ends = await Promise.all(asked);
  assert.deepEqual(
    ends.filter((end) => !('none' in end) || end.none !== 'untaken'),
    [],
  );
  assert.equal(await left(), 0);
});

test('an answer whose writing fails is written again', async (t) => {
  for (const fault of ['refused', 'not answered']) {
    const { cable, db, failures } = await cut(t);
    const work: HandleRemoteCall = async () => {
      if (fault === 'refused') cable.pull();
      else cable.loseAnswerTo('set answer');
      return Buffer.from('done');
    };
    const desk = open(work, { db, onError: () => {} });
    desk.start();
    const asked = createRemoteCalls(bench.db).ask(remoteCall(fault));
    await until(() => failures.length > 0);
    cable.plug();
    assert.ok('answer' in (await asked), fault);
    await desk.stop(0);
  }
});

test('a node takes the calls that it has capacity for, and another node the rest', async () => {
  const isOver = Promise.withResolvers<void>();
  const counts = [0, 0];
  const both = counts.map((_, n) =>
    open(
      async (request) => {
        counts[n]! += 1;
        await isOver.promise;
        return request;
      },
      { remainingCapacity: (remoteCalls) => 2 - remoteCalls, leftAfterMs: 10_000 },
    ),
  );
  const remoteCalls = createRemoteCalls(bench.db);
  const asked = Array.from({ length: 5 }, (_, n) => remoteCalls.ask(remoteCall(String(n))));
  await until(async () => (await left()) === asked.length);
  both[0]!.start();
  await until(() => counts[0] === 2);
  both[1]!.start();
  await until(() => counts[1] === 2);
  const untaken = await bench.db.query('select from errand where owner is null');
  assert.deepEqual([counts, untaken.length], [[2, 2], 1]);
  isOver.resolve();
  for (const end of await Promise.all(asked)) assert.ok('answer' in end);
});

test('a call that every node has left for a while is taken by a node without capacity, to wait there', async () => {
  const begun: string[] = [];
  const isOver = Promise.withResolvers<void>();
  const desk = open(
    async (request) => {
      begun.push(request.toString());
      await isOver.promise;
      return request;
    },
    { remainingCapacity: (remoteCalls) => 1 - remoteCalls, leftAfterMs: 100 },
  );
  desk.start();
  const remoteCalls = createRemoteCalls(bench.db);
  const asked = ['first', 'second', 'third'].map((text) => remoteCalls.ask(remoteCall(text)));
  await until(() => begun.length === 3);
  isOver.resolve();
  for (const end of await Promise.all(asked)) assert.ok('answer' in end);
  await desk.stop(0);
});

test('what a node takes while it stops is done by another', async () => {
  const stopped = open(() => assert.fail('it began'));
  const asked = createRemoteCalls(bench.db).ask(remoteCall('handed on'));
  await until(async () => (await left()) === 1);
  let stop: Promise<void> | undefined;
  await bench.db.transaction(async (tx) => {
    await tx.query('lock table errand in share row exclusive mode');
    stopped.start();
    await until(async () => (await countWaiting(bench.db, 'relation')) > 0);
    stop = stopped.stop(60_000);
  });
  await stop;
  const other = open(async () => Buffer.from('done'));
  other.start();
  assert.ok('answer' in (await asked));
});

test('what a desk has taken without hearing of it is done at its next looks', async (t) => {
  const { cable, db, failures } = await cut(t);
  const asked = createRemoteCalls(bench.db).ask(remoteCall('taken unheard'));
  await until(async () => (await left()) === 1);
  const desk = open(async () => Buffer.from('done'), { db, onError: () => {} });
  cable.loseAnswerTo('set owner = $1');
  desk.start();
  await until(() => failures.length > 0);
  assert.ok('answer' in (await asked));
  await desk.stop(0);
});

test('a sweep deletes a withdrawn call only after its lease has expired', async () => {
  await bench.db.query(
    `insert into errand (id, environment_id, kind, request, awaited_until, owner, lease_until)
     select gen_random_uuid(), $1, 'test', '', '-infinity', gen_random_uuid(), clock_timestamp() + seconds * interval '1 second'
     from unnest(array[20, -70]) as seconds`,
    [environmentId],
  );
  await sweepRemoteCalls(bench.db);
  assert.equal(await left(), 1);
});

test('what a desk could not begin is left to another one', async () => {
  const first = open(async () => undefined);
  first.start();
  const asked = createRemoteCalls(bench.db).ask(remoteCall('handed on'));
  const other = open(async () => Buffer.from('done'));
  other.start();
  assert.ok('answer' in (await asked));
});
