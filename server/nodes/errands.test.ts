import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { createErrandDesk, type DoErrand, sweepErrands } from './errand-desk.ts';
import { createErrands } from './errands.ts';

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
const open = (work: DoErrand) =>
  createErrandDesk(bench.db, { kinds: { test: work }, pollMs: 10, onError: fail });
const errand = (text: string, signal?: AbortSignal) => ({
  ...{ environmentId, kind: 'test', request: Buffer.from(text), signal },
});
const left = async () => (await bench.db.query('select id from errand')).length;

test('of twenty errands at once and two desks each is done once, and answered', async () => {
  const done: string[] = [];
  const desks = [0, 1].map(() =>
    open(async (request) => {
      done.push(request.toString());
      return Buffer.from(`${request} done`);
    }),
  );
  for (const desk of desks) desk.start();
  const errands = createErrands(bench.db);
  const texts = Array.from({ length: 20 }, (_, n) => String(n));
  const ends = await Promise.all(texts.map((text) => errands.ask(errand(text))));
  assert.deepEqual(
    ends.map((end) => 'answer' in end && end.answer.toString()),
    texts.map((text) => `${text} done`),
  );
  assert.deepEqual(done.sort(), texts.toSorted());
  assert.equal(await left(), 0);
  for (const desk of desks) await desk.stop(0);
});

test('what nobody takes is taken back, and nobody does it later', async () => {
  const errands = createErrands(bench.db, { untakenAfterMs: 1 });
  assert.deepEqual(await errands.ask(errand('late')), { none: 'untaken' });
  assert.equal(await left(), 0);
});

test('whoever has an errand is told when nobody waits for it any more', async () => {
  const begun = Promise.withResolvers<AbortSignal>();
  const desk = open(async (_, { signal }) => {
    begun.resolve(signal);
    await once(signal, 'abort');
    return Buffer.from('too late');
  });
  desk.start();
  const gone = new AbortController();
  const asked = createErrands(bench.db).ask(errand('withdrawn', gone.signal));
  await begun.promise;
  gone.abort();
  assert.deepEqual(await asked, { none: 'cancelled' });
  await desk.stop(60_000);
  assert.equal(await left(), 0);
});

test('whoever waits learns when the node that had it is gone, fails or stops', async () => {
  const errands = createErrands(bench.db);
  const killed = errands.ask(errand('killed'));
  while ((await left()) === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await bench.db.query(
    `update errand set owner = gen_random_uuid(), lease_until = clock_timestamp() - interval '1 second'`,
  );
  assert.deepEqual(await killed, { none: 'lost' });

  const told: unknown[] = [];
  const failing = createErrandDesk(bench.db, {
    kinds: { test: () => Promise.reject(new Error('no')) },
    pollMs: 10,
    onError: (error) => told.push(error),
  });
  failing.start();
  assert.deepEqual(await errands.ask(errand('fails')), { none: 'lost' });
  assert.match(String(told[0]), /no/);
  await failing.stop(0);

  const begun = Promise.withResolvers<void>();
  const stopped = open(() => {
    begun.resolve();
    return new Promise(() => {});
  });
  stopped.start();
  const asked = errands.ask(errand('stops'));
  await begun.promise;
  await stopped.stop(1);
  assert.deepEqual(await asked, { none: 'lost' });
  assert.equal(await left(), 0);
});

test('what a killed node has asked for is swept away', async () => {
  await bench.db.query(
    `insert into errand (id, environment_id, kind, request, awaited_until)
     values (gen_random_uuid(), $1, 'test', '', clock_timestamp() - interval '2 minutes')`,
    [environmentId],
  );
  await sweepErrands(bench.db);
  assert.equal(await left(), 0);
});
