import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { afterEach, beforeEach, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { countingBlocks } from '../../test/support/blocks.ts';
import { createOutbound } from '../outbound/outbound.ts';
import {
  answer,
  type DeliveryBench,
  dayMs,
  hangUp,
  hourMs,
  minuteMs,
  ok,
  openDeliveryBench,
  openReceiver,
  silent,
} from './deliveries.fixture.ts';
import { enableEndpoint } from './endpoints.ts';

let bench: DeliveryBench;
beforeEach(async () => {
  bench = await openDeliveryBench();
});
afterEach(() => bench.drop());

const range = (count: number, from = 0) => Array.from({ length: count }, (_, index) => from + index);
/** The numbers in the order in which they first came. */
const firsts = (got: { n: number }[]) => [...new Set(got.map(({ n }) => n))];

test('every endpoint gets its requested types, in the order of the feed', async () => {
  const [all, some, none] = [await bench.receiver(), await bench.receiver(), await bench.receiver()];
  await bench.endpoint(all.url);
  await bench.endpoint(some.url, ['integration.recovered', 'connection.*']);
  await bench.endpoint(none.url, ['integration.*', 'connection.deleted']);
  await bench.raise(range(20));
  await bench.deliverer().deliverDue();
  assert.deepEqual(
    all.got.map(({ n }) => n),
    range(20),
  );
  assert.deepEqual(
    some.got.map(({ n }) => n),
    range(20),
  );
  assert.deepEqual(none.got, []);
  assert.equal((await bench.db.query('select from delivery_lane')).length, 0);
  const body = JSON.parse(all.got[0]!.body) as Record<string, unknown>;
  assert.deepEqual(Object.keys(body), ['id', 'type', 'environment', 'created_at', 'data']);
  assert.deepEqual([body.id, body.type, body.environment], [all.got[0]!.id, 'connection.created', 'dev']);
});

test('a look after one without waiting deliveries reads only whether there are any', async () => {
  const receiver = await bench.receiver();
  await bench.endpoint(receiver.url);
  const { db, reads } = countingBlocks(bench.db);
  const counted = bench.deliverer({}, { on: db });
  await counted.deliverDue();
  const [first] = reads.splice(0);
  await counted.deliverDue();
  assert.equal(reads.length, 1);
  assert.ok(reads[0]!.plan.length < first!.plan.length / 2, reads[0]!.plan);
  await bench.raise([0]);
  await counted.deliverDue();
  assert.equal(receiver.got.length, 1);
});

test('a receiver that is down for a day gets everything afterwards, once, each connection in its order', async () => {
  const receiver = await bench.receiver(hangUp);
  await bench.endpoint(receiver.url);
  const deliverer = bench.deliverer();
  for (let hour = 0; hour < 24; hour += 1) {
    await bench.raise([hour * 2], { connection: () => 'ada' });
    await bench.raise([hour * 2 + 1], { connection: () => 'bob' });
    await bench.pass(hourMs, { stepMs: 20 * minuteMs, deliverer });
  }
  assert.equal(await bench.count('delivered'), 0);
  const tried = receiver.got.length;
  assert.ok(tried > 24 && tried < 200, `${tried} attempts in a day`);
  receiver.answers = ok;
  receiver.got.length = 0;
  await bench.pass(hourMs, { stepMs: 10 * minuteMs, deliverer });
  assert.equal(await bench.count('delivered'), 48);
  assert.deepEqual(
    receiver.got.filter(({ connection }) => connection === 'ada').map(({ n }) => n),
    range(24).map((hour) => hour * 2),
  );
  assert.deepEqual(
    receiver.got.filter(({ connection }) => connection === 'bob').map(({ n }) => n),
    range(24).map((hour) => hour * 2 + 1),
  );
});

test('a failure holds back its connection alone, and is repeated under the same id', async () => {
  const receiver = await bench.receiver((response, got) =>
    response.writeHead(got.connection === 'ada' && got.n === 0 ? 500 : 204).end(),
  );
  await bench.endpoint(receiver.url);
  await bench.raise([0, 1, 2], { connection: () => 'ada' });
  await bench.raise([3, 4, 5], { connection: () => 'bob' });
  const deliverer = bench.deliverer();
  await deliverer.deliverDue();
  assert.deepEqual(firsts(receiver.got).sort(), [0, 3, 4, 5]);
  bench.advance(10_000);
  receiver.answers = ok;
  await deliverer.deliverDue();
  const ada = receiver.got.filter(({ connection }) => connection === 'ada');
  assert.deepEqual(
    ada.map(({ n }) => n),
    [0, 0, 1, 2],
  );
  assert.equal(ada[0]!.id, ada[1]!.id);
  assert.equal(new Set(ada.map(({ id }) => id)).size, 3);
});

for (const [what, retryAfter] of [
  ['seconds', () => '120'],
  ['a date', () => new Date(bench.nowMs() + 120_000).toUTCString()],
] as const) {
  test(`429 with Retry-After in ${what} silences the endpoint until then, and breaks nothing`, async () => {
    const receiver = await bench.receiver();
    const id = await bench.endpoint(receiver.url);
    receiver.answers = answer(429, { 'retry-after': retryAfter() });
    await bench.raise([0], { connection: () => 'ada' });
    const deliverer = bench.deliverer();
    await deliverer.deliverDue();
    assert.equal(receiver.got.length, 1);
    await bench.raise([1], { connection: () => 'bob' });
    bench.advance(115_000);
    await deliverer.deliverDue();
    assert.equal(receiver.got.length, 1);
    receiver.answers = ok;
    bench.advance(6_000);
    await deliverer.deliverDue();
    assert.deepEqual(firsts(receiver.got).sort(), [0, 1]);
    const { failures, openUntil } = await bench.stateOf(id);
    assert.deepEqual([failures, openUntil], [0, null]);
  });
}

test('a Retry-After of a year is a day', async () => {
  const receiver = await bench.receiver(answer(503, { 'retry-after': '31536000' }));
  await bench.endpoint(receiver.url);
  await bench.raise([0]);
  const deliverer = bench.deliverer();
  await deliverer.deliverDue();
  receiver.answers = ok;
  bench.advance(dayMs - minuteMs);
  await deliverer.deliverDue();
  assert.equal(receiver.got.length, 1);
  bench.advance(2 * minuteMs);
  await deliverer.deliverDue();
  assert.equal(await bench.count('delivered'), 1);
});

test('410 disables the endpoint, the other endpoints get an event, and waiting deliveries continue when it is enabled', async () => {
  const [gone, other] = [await bench.receiver(answer(410)), await bench.receiver()];
  const id = await bench.endpoint(gone.url);
  await bench.endpoint(other.url);
  await bench.raise([0, 1]);
  const deliverer = bench.deliverer();
  await deliverer.deliverDue();
  await bench.raise([2]);
  await deliverer.deliverDue();
  assert.equal(gone.got.length, 1);
  assert.deepEqual((await bench.stateOf(id)).disabledCause, 'gone');
  const reported = other.got.map(({ body }) => JSON.parse(body) as { type: string; data: object });
  const disabled = reported.filter(({ type }) => type === 'endpoint.disabled');
  // The rest of an address may be its secret.
  assert.deepEqual(
    disabled
      .map(({ data }) => data as { endpoint_id: number; url: string })
      .map((data) => [data.endpoint_id, data.url]),
    [[id, new URL(gone.url).origin]],
  );
  const [audit] = await bench.db.query(`select actor from audit where action = 'endpoint.disabled'`);
  assert.deepEqual(audit, { actor: 'service' });
  gone.answers = ok;
  const at = { id, environmentId: bench.environmentId };
  await bench.db.transaction((tx) => enableEndpoint(tx, { at, now: new Date(bench.nowMs()) }));
  await deliverer.deliverDue();
  // The one that came in between was never queued for it.
  assert.deepEqual(
    gone.got.map(({ n }) => n),
    [0, 0, 1],
  );
});

test('a redirect is not followed, and counts as a failure', async () => {
  const target = await bench.receiver();
  const receiver = await bench.receiver(answer(307, { location: target.url }));
  const id = await bench.endpoint(receiver.url);
  await bench.raise([0]);
  await bench.deliverer().deliverDue();
  assert.deepEqual([receiver.got.length, target.got.length], [1, 0]);
  assert.deepEqual(
    { ...((await bench.stateOf(id)).lastFailure as object), duration_ms: 0 },
    {
      error: 'redirect',
      http_status: 307,
      duration_ms: 0,
    },
  );
});

test('nothing is sent to an address that may not be reached', async () => {
  // Loopback, but outside what the operator allows.
  const forbidden = await openReceiver(ok, '127.0.0.2');
  bench.after(forbidden.close);
  const id = await bench.endpoint(forbidden.url);
  await bench.raise([0]);
  await bench.deliverer().deliverDue();
  assert.equal(forbidden.got.length, 0);
  assert.equal(((await bench.stateOf(id)).lastFailure as { error: string }).error, 'address_not_allowed');
});

test('a receiver that never answers has its time, and opens its breaker', async () => {
  const never = await bench.receiver(silent);
  const id = await bench.endpoint(never.url);
  await bench.raise(range(6), { connection: (n) => `c${n}` });
  await bench.deliverer({ timeoutMs: 100 }).deliverDue();
  const state = await bench.stateOf(id);
  assert.equal((state.lastFailure as { error: string }).error, 'timeout');
  assert.ok(state.openUntil !== null);
});

test('a name that is never resolved has the same time', async () => {
  const id = await bench.endpoint('https://receiver.example.com/hook');
  await bench.raise([0]);
  const outbound = createOutbound({ allow: [], resolve: () => {} });
  bench.after(() => outbound.close());
  await bench.deliverer({ timeoutMs: 100 }, { fetch: outbound.fetchFor({ isTest: false }) }).deliverDue();
  assert.equal(((await bench.stateOf(id)).lastFailure as { error: string }).error, 'timeout');
});

test('receivers that let us wait have so many at once, and hold up no other', async () => {
  const held: ServerResponse[] = [];
  const slow = await Promise.all(range(2).map(() => bench.receiver((response) => void held.push(response))));
  for (const { url } of slow) await bench.endpoint(url);
  await bench.raise(range(12), { connection: (n) => `c${n}` });
  // All that a node may have under way.
  const deliverer = bench.deliverer({
    timeoutMs: 60_000,
    max: 8,
    maxOfEndpoint: 4,
    slowAfterMs: 20,
    pollMs: 20,
  });
  const all = Promise.withResolvers<void>();
  const quick = await bench.receiver((response) => {
    response.writeHead(204).end();
    if (quick.got.length === 12) all.resolve();
  });
  deliverer.start();
  while (held.length < 8) await nextTurn();
  await bench.endpoint(quick.url);
  await bench.raise(range(12, 12), { connection: (n) => `c${n}` });
  await all.promise;
  assert.deepEqual(
    slow.map(({ got }) => got.length),
    [4, 4],
  );
  for (const receiver of slow) receiver.answers = ok;
  for (const waiting of held) waiting.writeHead(204).end();
  await deliverer.stop();
});

test('an answer that is cut off after a 2xx counts, one that is cut off before does not', async () => {
  const receiver = await bench.receiver((response) => {
    response.writeHead(200, { 'content-length': '100' });
    response.write('half');
    setImmediate(() => response.destroy());
  });
  await bench.endpoint(receiver.url);
  await bench.raise([0]);
  const deliverer = bench.deliverer();
  await deliverer.deliverDue();
  assert.equal(await bench.count('delivered'), 1);
  receiver.answers = hangUp;
  await bench.raise([1]);
  await deliverer.deliverDue();
  assert.deepEqual([await bench.count('delivered'), await bench.count('waiting')], [1, 1]);
});

test('the stored part of a response is short and contains no secret', async () => {
  const receiver = await bench.receiver();
  const id = await bench.endpoint(receiver.url);
  receiver.answers = (response, { headers }) =>
    response.writeHead(500).end(
      `Authorization: Bearer abcdefgh12345678 token=very-secret\0 {"password":"correct \\"horse\\" battery"}
         ${headers['webhook-id']} ${'x'.repeat(1e6)}`,
    );
  await bench.raise([0]);
  await bench.deliverer().deliverDue();
  const { answer: kept } = (await bench.stateOf(id)).lastFailure as { answer: string };
  assert.ok(kept.length <= 1_000, String(kept.length));
  assert.doesNotMatch(kept, /abcdefgh|very-secret|correct|horse|battery/);
  assert.ok(kept.includes(receiver.got[0]!.id));
});
