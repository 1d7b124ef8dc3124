// Slow: its tests take seconds each.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Db } from '../db/pool.ts';
import { placeAll } from '../db/sequencer.ts';
import { eventSequence } from '../events/sequence.ts';
import { readySql } from './claims.ts';
import {
  answer,
  type DeliveryBench,
  dayMs,
  hangUp,
  hourMs,
  minuteMs,
  ok,
  openDeliveryBench,
} from './deliveries.fixture.ts';
import { replayOne, replayRange } from './deliveries.ts';
import { stateOf } from './retry-policy.ts';

let bench: DeliveryBench;
beforeEach(async () => {
  bench = await openDeliveryBench();
});
afterEach(() => bench.drop());

const range = (count: number) => Array.from({ length: count }, (_, index) => index);

test('five failures open the breaker, then one probe at a time goes out, and one success closes it', async () => {
  const receiver = await bench.receiver(hangUp);
  const id = await bench.endpoint(receiver.url);
  await bench.raise(range(40), { connection: (n) => `c${n}` });
  const worker = bench.deliverer();
  await worker.deliverDue();
  // Those that were under way together with the fifth.
  const before = receiver.got.length;
  assert.ok(before >= 5 && before <= 12, String(before));
  assert.equal(stateOf(await bench.stateOf(id), bench.nowMs()), 'open');
  for (const probe of range(4)) {
    bench.advance(15 * minuteMs);
    assert.equal(stateOf(await bench.stateOf(id), bench.nowMs()), 'probing');
    await Promise.all([worker.deliverDue(), bench.deliverer().deliverDue()]);
    assert.equal(receiver.got.length, before + probe + 1);
  }
  receiver.answers = ok;
  bench.advance(15 * minuteMs);
  await worker.deliverDue();
  assert.equal(await bench.count('delivered'), 40);
  assert.equal(stateOf(await bench.stateOf(id), bench.nowMs()), 'closed');
});

test('an undeliverable event does not delay other connections behind the breaker', async () => {
  const receiver = await bench.receiver((response, { connection }) =>
    response.writeHead(connection === 'poison' ? 500 : 204).end(),
  );
  const id = await bench.endpoint(receiver.url);
  await bench.raise([0], { connection: () => 'poison' });
  const worker = bench.deliverer();
  await bench.pass(hourMs, { stepMs: minuteMs, deliverer: worker });
  assert.notEqual((await bench.stateOf(id)).openUntil, null);
  // By then it is due itself, and has been for longer than the others.
  bench.advance(2 * hourMs);
  await bench.raise(range(5), { connection: (n) => `c${n}` });
  await worker.deliverDue();
  assert.deepEqual([await bench.count('delivered'), await bench.count('waiting')], [5, 1]);
});

test('when an endpoint is back, deliveries that wait for their next attempt are sent at once', async () => {
  const receiver = await bench.receiver(hangUp);
  await bench.endpoint(receiver.url);
  await bench.raise([0], { connection: () => 'ada' });
  const worker = bench.deliverer();
  await bench.pass(3 * hourMs, { stepMs: 10 * minuteMs, deliverer: worker });
  const tried = receiver.got.length;
  while (receiver.got.length === tried) await bench.pass(minuteMs, { stepMs: minuteMs, deliverer: worker });
  // The next attempt would be in an hour.
  receiver.answers = ok;
  await bench.raise([1], { connection: () => 'bob' });
  bench.advance(15 * minuteMs);
  await worker.deliverDue();
  assert.deepEqual(
    receiver.got.slice(-2).map(({ n }) => n),
    [1, 0],
  );
});

test("one that is back is tried within the breaker's time, also where its only lane waits for an hour", async () => {
  const receiver = await bench.receiver(hangUp);
  const id = await bench.endpoint(receiver.url);
  await bench.raise([0]);
  const worker = bench.deliverer();
  await bench.pass(3 * hourMs, { stepMs: minuteMs, deliverer: worker });
  const tried = receiver.got.length;
  while (receiver.got.length === tried) await bench.pass(minuteMs, { stepMs: minuteMs, deliverer: worker });
  receiver.answers = ok;
  // Ten minutes and a fifth.
  await bench.pass(12 * minuteMs, { stepMs: minuteMs, deliverer: worker });
  assert.equal(await bench.count('delivered'), 1);
  assert.equal(stateOf(await bench.stateOf(id), bench.nowMs()), 'closed');
});

test('a success ends a row of failures, however soon it comes and whatever they were', async () => {
  const receiver = await bench.receiver(ok);
  const id = await bench.endpoint(receiver.url);
  const worker = bench.deliverer();
  await bench.raise([0]);
  await worker.deliverDue();
  receiver.answers = answer(429, { 'retry-after': '5' });
  bench.advance(1_000);
  await bench.raise([1]);
  await worker.deliverDue();
  assert.notEqual((await bench.stateOf(id)).failingSince, null);
  receiver.answers = ok;
  bench.advance(6_000);
  await worker.deliverDue();
  assert.equal((await bench.stateOf(id)).failingSince, null);
  bench.advance(6 * dayMs);
  receiver.answers = answer(500);
  await bench.raise([2]);
  await worker.deliverDue();
  assert.equal((await bench.stateOf(id)).disabledCause, null);
});

test('a Retry-After of nothing is silence all the same, and does not keep the breaker from opening', async () => {
  const receiver = await bench.receiver(answer(503, { 'retry-after': '0' }));
  const id = await bench.endpoint(receiver.url);
  await bench.raise(range(60), { connection: (n) => `c${n}` });
  const worker = bench.deliverer();
  await worker.deliverDue();
  assert.deepEqual([receiver.got.length, (await bench.stateOf(id)).failures], [8, 1]);
  await bench.pass(30_000, { stepMs: 6_000, deliverer: worker });
  assert.equal(stateOf(await bench.stateOf(id), bench.nowMs()), 'open');
  assert.equal(receiver.got.length, 40);
});

test('an event that this node cannot sign has its own error, is retried, and does not count against the receiver', async () => {
  const receiver = await bench.receiver();
  const id = await bench.endpoint(receiver.url);
  await bench.raise([0]);
  await bench.deliverer().deliverDue();
  const [{ secret } = {}] = await bench.db.query<{ secret: Buffer }>('select secret from signing_key');
  await bench.db.query(`update signing_key set secret = '\\x00'`);
  await bench.raise([1]);
  const said: unknown[] = [];
  const worker = bench.deliverer({}, { warn: (...one) => said.push(one) });
  await worker.deliverDue();
  await bench.pass(8_000, { stepMs: 2_000, deliverer: worker });
  const [waiting] = await bench.db.query<{ attempts: number; last_attempt: object }>(
    `select attempts, last_attempt from delivery where status = 'waiting'`,
  );
  assert.deepEqual(waiting, { attempts: 2, last_attempt: { error: 'internal', duration_ms: 0 } });
  assert.equal(said.length, 2);
  const { failures, lastFailure, failingSince } = await bench.stateOf(id);
  assert.deepEqual([failures, lastFailure, failingSince], [0, null, null]);
  await bench.db.query('update signing_key set secret = $1', [secret]);
  bench.advance(hourMs);
  await bench.deliverer().deliverDue();
  assert.equal(await bench.count('delivered'), 2);
});

test('a probe that cannot be signed does not count, and the next one waits', async () => {
  const receiver = await bench.receiver(hangUp);
  const id = await bench.endpoint(receiver.url);
  await bench.raise(range(5), { connection: (n) => `c${n}` });
  await bench.deliverer().deliverDue();
  const { failures, openings, openUntil } = await bench.stateOf(id);
  assert.ok(openUntil !== null);
  await bench.db.query(`update signing_key set secret = '\\x00'`);
  bench.advance(minuteMs);
  const said: unknown[] = [];
  await bench.deliverer({}, { warn: (...one) => said.push(one) }).deliverDue();
  const after = await bench.stateOf(id);
  assert.deepEqual([said.length, after.failures, after.openings], [1, failures, openings]);
  assert.equal(stateOf(after, bench.nowMs()), 'open');
});

test('a node whose clock is fast ends no pause early, and reports its clock', async () => {
  const receiver = await bench.receiver(answer(429, { 'retry-after': '120' }));
  const id = await bench.endpoint(receiver.url);
  await bench.raise([0]);
  const said: unknown[] = [];
  const fast = bench.deliverer({}, { clockAheadMs: hourMs, warn: (...one) => said.push(one) });
  await bench.deliverer().deliverDue();
  await fast.deliverDue();
  await fast.deliverDue();
  assert.deepEqual([receiver.got.length, said.length], [1, 1]);
  bench.advance(2 * minuteMs);
  await fast.deliverDue();
  assert.equal(receiver.got.length, 2);
  const until = (await bench.stateOf(id)).pausedUntil!.getTime() - bench.nowMs();
  assert.ok(until > minuteMs && until <= 2 * minuteMs, String(until));
});

test('a slow query of the database does not delay due deliveries', async () => {
  const receiver = await bench.receiver();
  await bench.endpoint(receiver.url);
  await bench.raise(range(15));
  let looks = 0;
  const slowly: Db = {
    ...bench.db,
    async query(text, values) {
      if (text !== readySql) return bench.db.query(text, values);
      looks += 1;
      // The database's time is read at the end of the first one, and at the beginning of the second.
      if (looks === 1) await sleep(200);
      const rows = await bench.db.query(text, values);
      while (looks === 2 && receiver.got.length < 10) await sleep(10);
      return rows as never;
    },
  };
  await bench.deliverer({}, { on: slowly }).deliverDue();
  assert.equal(await bench.count('delivered'), 15);
});

test('after three days an event is a dead letter, and later events of its connection are sent', async () => {
  const receiver = await bench.receiver((response, { n }) => response.writeHead(n === 0 ? 400 : 204).end());
  await bench.endpoint(receiver.url);
  await bench.raise([0, 1]);
  const worker = bench.deliverer();
  await bench.pass(3 * dayMs - hourMs, { stepMs: hourMs, deliverer: worker });
  assert.deepEqual([await bench.count('waiting'), await bench.count('dead')], [2, 0]);
  await bench.pass(4 * hourMs, { stepMs: hourMs, deliverer: worker });
  assert.deepEqual([await bench.count('delivered'), await bench.count('dead')], [1, 1]);
  const [letter] = await bench.db.query<{ id: number; last_attempt: { http_status: number } }>(
    `select id, last_attempt from delivery where status = 'dead'`,
  );
  assert.equal(letter!.last_attempt.http_status, 400);

  receiver.answers = ok;
  const { environmentId } = bench;
  const at = { id: letter!.id, environmentId, now: new Date(bench.nowMs()) };
  assert.equal(await bench.db.transaction((tx) => replayOne(tx, at)), true);
  const elsewhere = { ...at, environmentId: environmentId + 1 };
  assert.equal(await bench.db.transaction((tx) => replayOne(tx, elsewhere)), false);
  await worker.deliverDue();
  assert.deepEqual([await bench.count('delivered'), await bench.count('dead')], [2, 0]);
  const ids = receiver.got.filter(({ n }) => n === 0).map(({ id }) => id);
  assert.equal(new Set(ids).size, 1);
});

test('an endpoint to which nothing gets through for five days is disabled, and nothing of it is lost', async () => {
  const receiver = await bench.receiver(hangUp);
  const id = await bench.endpoint(receiver.url);
  await bench.raise([0], { connection: () => 'first' });
  const worker = bench.deliverer();
  for (let day = 0; day < 5; day += 1) {
    await bench.raise([day + 1], { connection: () => `day-${day}` });
    await bench.pass(dayMs, { stepMs: hourMs, deliverer: worker });
    assert.equal((await bench.stateOf(id)).disabledCause, null);
  }
  await bench.pass(3 * hourMs, { stepMs: hourMs, deliverer: worker });
  assert.equal((await bench.stateOf(id)).disabledCause, 'failing');
  const kept = await bench.db.query('select from delivery');
  assert.equal(kept.length, 6);
  await placeAll(bench.db, eventSequence);
  const reported = await bench.db.query(
    `select data ->> 'cause' as cause from event where type = 'endpoint.disabled'`,
  );
  assert.deepEqual(reported, [{ cause: 'failing' }]);
});

test('a range is replayed with the same IDs, including events from before the endpoint existed', async () => {
  await bench.raise([0, 1]);
  const receiver = await bench.receiver();
  const id = await bench.endpoint(receiver.url, ['connection.created']);
  await bench.raise([2, 3]);
  const worker = bench.deliverer();
  await worker.deliverDue();
  const replay = (range: Partial<Parameters<typeof replayRange>[1]['range']>) =>
    bench.db.transaction((tx) =>
      replayRange(tx, {
        endpoint: { id, kind: 'events' },
        environmentId: bench.environmentId,
        range: { after: 0, undeliveredOnly: false, ...range },
        now: new Date(bench.nowMs()),
      }),
    );
  assert.deepEqual(await replay({ undeliveredOnly: true }), { count: 2, doneUpTo: undefined });
  // What waits by now is not queued twice.
  assert.equal((await replay({ undeliveredOnly: true })).count, 0);
  await worker.deliverDue();
  assert.deepEqual(
    receiver.got.map(({ n }) => n),
    [2, 3, 0, 1],
  );
  assert.equal((await replay({ after: 1 })).count, 3);
  await worker.deliverDue();
  assert.deepEqual(
    receiver.got.slice(4).map(({ n }) => n),
    [1, 2, 3],
  );
  assert.equal(new Set(receiver.got.map((got) => got.id)).size, 4);
  assert.equal((await replay({ from: new Date(Date.now() + hourMs) })).count, 0);
  assert.equal((await replay({ to: new Date(Date.now() + hourMs) })).count, 4);
});
