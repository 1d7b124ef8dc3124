import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Db } from '../db/pool.ts';
import { claimLanes } from './claims.ts';
import { answer, type DeliveryBench, openDeliveryBench } from './deliveries.fixture.ts';
import { updateEndpoint } from './endpoints.ts';
import { settleDelivered, settleFailed } from './settle.ts';

let bench: DeliveryBench;
beforeEach(async () => {
  bench = await openDeliveryBench();
});
afterEach(() => bench.drop());

const range = (count: number) => Array.from({ length: count }, (_, index) => index);
const minuteMs = 60_000;
const arrived = { isDelivered: true, durationMs: 1, httpStatus: 204 };
const failed = { isDelivered: false, durationMs: 1, httpStatus: 500, error: 'status' as const };
const claim = async (endpointId: number, leaseMs: number) => {
  const now = new Date(bench.nowMs());
  const claims = await claimLanes(bench.db, { endpointId, now, max: 8, maxOfEndpoint: 8, leaseMs });
  return claims[0]!;
};
const lane = async () =>
  (
    await bench.db.query(
      `select owner, failures, lease_until > clock_timestamp() + interval '50 seconds' as "isRenewed"
       from delivery_lane`,
    )
  )[0];
const statuses = async () =>
  (await bench.db.query<{ status: string }>('select status from delivery order by position')).map(
    ({ status }) => status,
  );

test('a node whose lease has ended leaves the lane to its new owner, and notes only what arrived', async () => {
  const id = await bench.endpoint('https://app.example.com/hook');
  await bench.raise(range(3));
  const [late, current] = [await claim(id, 0), await claim(id, minuteMs)];
  assert.equal(late.delivery.id, current.delivery.id);
  const nowMs = bench.nowMs();
  await settleFailed(bench.db, { claim: late, attempt: failed, nowMs, random: 0.5 });
  assert.deepEqual(await lane(), { owner: current.owner, failures: 0, isRenewed: true });
  assert.equal((await bench.stateOf(id)).failures, 0);
  assert.deepEqual(
    await settleDelivered(bench.db, [{ claim: late, attempt: arrived, nowMs, renewMs: minuteMs }]),
    [undefined],
  );
  assert.deepEqual(await lane(), { owner: current.owner, failures: 0, isRenewed: true });
  assert.deepEqual(await statuses(), ['delivered', 'waiting', 'waiting']);
});

test('a node that continues in a lane has a new lease, and the last node closes the lane', async () => {
  const id = await bench.endpoint('https://app.example.com/hook');
  await bench.raise(range(2));
  const first = await claim(id, 30_000);
  const settling = { attempt: arrived, nowMs: bench.nowMs(), renewMs: minuteMs };
  const [second] = await settleDelivered(bench.db, [{ claim: first, ...settling }]);
  assert.deepEqual(await lane(), { owner: first.owner, failures: 0, isRenewed: true });
  assert.ok(second !== undefined && second.leasedAtMs > first.leasedAtMs);
  assert.deepEqual(await settleDelivered(bench.db, [{ claim: second, ...settling }]), [undefined]);
  assert.deepEqual([await lane(), await statuses()], [undefined, ['delivered', 'delivered']]);
});

test('lanes of several endpoints are settled together, each with its own outcome', async () => {
  const ids = [
    await bench.endpoint('https://a.example.com/'),
    await bench.endpoint('https://b.example.com/'),
  ];
  await bench.raise(range(8), { connection: (n) => `c${n % 4}` });
  const claims = await Promise.all(
    ids.map((endpointId) => {
      const now = new Date(bench.nowMs());
      return claimLanes(bench.db, { endpointId, now, max: 8, maxOfEndpoint: 8, leaseMs: minuteMs });
    }),
  );
  const nowMs = bench.nowMs();
  const next = await settleDelivered(
    bench.db,
    claims.flat().map((one, index) => ({
      claim: one,
      attempt: arrived,
      nowMs,
      renewMs: index % 2 === 0 ? minuteMs : undefined,
    })),
  );
  assert.deepEqual(
    next.map((one) => one && [one.endpoint.id, one.lane, one.delivery.data.connection_id]),
    claims
      .flat()
      .map((one, index) =>
        index % 2 === 0 ? [one.endpoint.id, one.lane, one.delivery.data.connection_id] : undefined,
      ),
  );
  const held = await bench.db.query('select from delivery_lane where owner is not null');
  assert.deepEqual([held.length, await bench.count('delivered')], [4, 8]);
});

test('an event that is queued while the last one of its lane is settled is not left behind', async () => {
  const id = await bench.endpoint('https://app.example.com/hook');
  await bench.raise([0]);
  const last = await claim(id, minuteMs);
  await bench.raise([1]);
  // As the sequencer does, in a transaction that has not come to its end.
  const queued = Promise.withResolvers<void>();
  const commit = Promise.withResolvers<void>();
  await bench.db.query(`delete from delivery where status = 'waiting' and id <> $1`, [last.delivery.id]);
  const queueing = bench.anotherPool().transaction(async (tx) => {
    await tx.query(
      `insert into delivery (environment_id, endpoint_id, event_id, position, lane, queued_at)
       select environment_id, $1, id, position, $2, created_at
       from event
       where position = 2`,
      [id, last.lane],
    );
    await tx.query('update delivery_lane set due_at = due_at where endpoint_id = $1', [id]);
    queued.resolve();
    await commit.promise;
  });
  await queued.promise;
  const settling = { claim: last, attempt: arrived, nowMs: bench.nowMs(), renewMs: minuteMs };
  const next = settleDelivered(bench.db, [settling]);
  const isWaiting = async () =>
    (
      await bench.db.query(
        `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      )
    ).length > 0;
  while (!(await isWaiting())) await sleep(5);
  commit.resolve();
  await queueing;
  assert.equal((await next)[0]?.delivery.data.connection_id, 'ada');
  assert.deepEqual(await statuses(), ['delivered', 'waiting']);
});

test('two nodes that claim at once never have more under way than an endpoint may get', async () => {
  const id = await bench.endpoint('https://app.example.com/hook');
  await bench.raise(range(30), { connection: (n) => `c${n}` });
  const pools = [bench.db, bench.anotherPool(), bench.anotherPool()];
  const now = new Date(bench.nowMs());
  const claims = await Promise.all(
    range(21).map((n) =>
      claimLanes(pools[n % 3] as Db, { endpointId: id, now, max: 3, maxOfEndpoint: 8, leaseMs: minuteMs }),
    ),
  );
  const leased = await bench.db.query('select from delivery_lane where owner is not null');
  assert.equal(claims.flat().length, leased.length);
  assert.ok(leased.length > 0 && leased.length <= 8, String(leased.length));
});

test('a claim that has become too old for an attempt is given back, and another node overtakes nothing', async () => {
  const receiver = await bench.receiver();
  await bench.endpoint(receiver.url);
  await bench.raise([0]);
  await bench.deliverer().deliverDue();
  await bench.raise([1, 2, 3]);
  const [asked, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const held: Db = {
    ...bench.db,
    // It reads the signing keys.
    async run(built) {
      asked.resolve();
      await goOn.promise;
      return bench.db.run(built);
    },
  };
  const running = bench.deliverer({ timeoutMs: 300, leaseMarginMs: 100 }, { on: held }).deliverDue();
  await asked.promise;
  const isOver = async () =>
    (await bench.db.query('select from delivery_lane where lease_until <= clock_timestamp()')).length > 0;
  while (!(await isOver())) await sleep(10);
  await bench.deliverer().deliverDue();
  goOn.resolve();
  await running;
  assert.deepEqual(
    receiver.got.map(({ n }) => n),
    range(4),
  );
});

test('a claimed delivery is sent at once, although the claim at the next endpoint fails', async () => {
  const sent = Promise.withResolvers<void>();
  for (const receiver of [await bench.receiver(), await bench.receiver()]) {
    receiver.answers = (response) => {
      sent.resolve();
      response.writeHead(204).end();
    };
    await bench.endpoint(receiver.url);
  }
  await bench.raise([0]);
  let transactions = 0;
  const failing: Db = {
    ...bench.db,
    async transaction(work, mode) {
      transactions += 1;
      if (transactions !== 2) return bench.db.transaction(work, mode);
      await sent.promise;
      throw new Error('the second claim fails');
    },
  };
  const deliverer = bench.deliverer({}, { on: failing });
  await assert.rejects(deliverer.deliverDue(), { message: 'the second claim fails' });
  await deliverer.deliverDue();
  assert.equal(await bench.count('delivered'), 2);
});

test('a response of an old address does not affect the new address, which gets the event at once', async () => {
  for (const status of [410, 500]) {
    const [old, other] = [await bench.receiver(), await bench.receiver()];
    const [asked, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    old.answers = (response) => {
      asked.resolve();
      void goOn.promise.then(() => answer(status)(response, old.got[0]!));
    };
    const id = await bench.endpoint(old.url, ['connection.created']);
    await bench.raise([status]);
    const running = bench.deliverer().deliverDue();
    await asked.promise;
    const at = { id, environmentId: bench.environmentId };
    const now = new Date(bench.nowMs());
    await bench.db.transaction((tx) => updateEndpoint(tx, { at, change: { url: other.url }, now }));
    goOn.resolve();
    await running;
    const { disabledCause, failures, lastFailure } = await bench.stateOf(id);
    assert.deepEqual([disabledCause, failures, lastFailure], [null, 0, null]);
    assert.deepEqual(
      other.got.map(({ n }) => n),
      [status],
    );
    await bench.db.query('update endpoint set deleted_at = now()');
  }
});

test('what arrived at an old address does not make the new one healthy', async () => {
  const id = await bench.endpoint('https://old.example.com/hook');
  await bench.raise([0, 1]);
  const before = await claim(id, minuteMs);
  const at = { id, environmentId: bench.environmentId };
  const change = { url: 'https://new.example.com/hook' };
  await bench.db.transaction((tx) => updateEndpoint(tx, { at, change, now: new Date(bench.nowMs()) }));
  await bench.db.query('update endpoint set failures = 4');
  const [next] = await settleDelivered(bench.db, [
    { claim: before, attempt: arrived, nowMs: bench.nowMs(), renewMs: minuteMs },
  ]);
  const { failures, lastSuccessAt } = await bench.stateOf(id);
  assert.deepEqual([failures, lastSuccessAt, next?.endpoint.url], [4, null, change.url]);
  assert.deepEqual(await statuses(), ['delivered', 'waiting']);
});
