// Slow: each of its tests takes more than a second.

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { exampleConnection } from '../events/event-types.ts';
import { fanOut } from '../events/fan-out.ts';
import { queueEvent } from '../events/outbox.ts';
import { dueLanes, findReady, headsSql, readySql } from './claims.ts';
import { type DeliveryBench, ok, openDeliveryBench, silent } from './deliveries.fixture.ts';

let bench: DeliveryBench;
beforeEach(async () => {
  bench = await openDeliveryBench();
});
afterEach(() => bench.drop());

const range = (count: number) => Array.from({ length: count }, (_, index) => index);

test('four workers at once deliver each event once, and a connection never has two under way', async () => {
  const [receiver, other] = [await bench.receiver(), await bench.receiver()];
  await bench.endpoint(receiver.url);
  await bench.endpoint(other.url);
  const underWay = new Set<string>();
  let together = 0;
  receiver.answers = (response, { connection }) => {
    if (underWay.has(connection)) together += 1;
    underWay.add(connection);
    setTimeout(() => {
      underWay.delete(connection);
      response.writeHead(204).end();
    }, Math.random() * 5);
  };
  await bench.raise(range(100), { connection: (n) => `c${n % 7}` });
  const workers = range(4).map((index) =>
    bench.deliverer({}, index % 2 === 0 ? {} : { on: bench.anotherPool() }),
  );
  await Promise.all(workers.map((worker) => worker.deliverDue()));
  assert.equal(together, 0);
  for (const { got } of [receiver, other]) {
    assert.equal(new Set(got.map(({ id }) => id)).size, 100);
    assert.equal(got.length, 100);
    for (const connection of range(7).map((n) => `c${n}`)) {
      const numbers = got.filter((one) => one.connection === connection).map(({ n }) => n);
      assert.deepEqual(
        numbers,
        numbers.toSorted((a, b) => a - b),
      );
    }
  }
});

test('events without a connection keep their order among themselves', async () => {
  const receiver = await bench.receiver();
  await bench.endpoint(receiver.url);
  for (const n of range(20)) {
    await queueEvent(bench.db, {
      environmentId: bench.environmentId,
      type: 'integration.rate_limited',
      data: {
        provider_config_key: `key-${n % 3}`,
        provider: 'google-sheet',
        test: false,
        limit: 'quota',
        evidence: { n },
      },
    });
  }
  await bench.raise([]);
  await bench.deliverer().deliverDue();
  assert.deepEqual(
    receiver.got.map(
      ({ body }) => (JSON.parse(body) as { data: { evidence: { n: number } } }).data.evidence.n,
    ),
    range(20),
  );
});

test('a worker that stops releases the deliveries in progress, and no attempt is counted', async () => {
  const receiver = await bench.receiver(silent);
  await bench.endpoint(receiver.url);
  await bench.raise([0, 1]);
  const worker = bench.deliverer({ timeoutMs: 60_000 });
  const arrived = Promise.withResolvers<void>();
  receiver.answers = () => arrived.resolve();
  worker.start();
  await arrived.promise;
  await worker.stop(0);
  receiver.answers = ok;
  await bench.deliverer().deliverDue();
  assert.deepEqual(
    receiver.got.map(({ n }) => n),
    [0, 0, 1],
  );
  assert.equal(receiver.got[0]!.id, receiver.got[1]!.id);
  const attempts = await bench.db.query('select attempts from delivery order by id');
  assert.deepEqual(attempts, [{ attempts: 1 }, { attempts: 1 }]);
});

test('a node that is killed half-way loses nothing and overtakes nothing', async () => {
  const receiver = await bench.receiver();
  await bench.endpoint(receiver.url);
  await bench.raise(range(120), { connection: (n) => `c${n % 6}` });
  const nodes: ChildProcess[] = [];
  const startNode = () => {
    const { target } = bench;
    const masterKey = bench.masterKey.key.export().toString('base64');
    const limits = { timeoutMs: 1_000, leaseMarginMs: 100, pollMs: 20 };
    const node = spawn(
      process.execPath,
      [join(import.meta.dirname, 'delivery-node.fixture.ts'), JSON.stringify({ target, masterKey, limits })],
      { stdio: ['ignore', 'ignore', 'inherit'] },
    );
    nodes.push(node);
    bench.after(async () => {
      if (node.exitCode !== null || node.signalCode !== null) return;
      node.kill('SIGKILL');
      await once(node, 'exit');
    });
  };
  const done = Promise.withResolvers<void>();
  const seen = new Set<number>();
  receiver.answers = (response, { n }) => {
    seen.add(n);
    const { length } = receiver.got;
    if (length === 20 || length === 70) {
      // Some of its requests were answered, some are under way, and this one never is.
      nodes.at(-1)?.kill('SIGKILL');
      startNode();
      return;
    }
    response.writeHead(204).end();
    if (seen.size === 120) done.resolve();
  };
  startNode();
  await done.promise;
  while ((await bench.count('delivered')) < 120) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(nodes.length, 3);
  const ids = new Set(receiver.got.map(({ id, n }) => `${id} ${n}`));
  assert.equal(ids.size, 120);
  for (const connection of range(6).map((n) => `c${n}`)) {
    const firsts = [
      ...new Set(receiver.got.filter((one) => one.connection === connection).map(({ n }) => n)),
    ];
    assert.deepEqual(
      firsts,
      firsts.toSorted((a, b) => a - b),
    );
  }
});

test('a look passes over a bounded number of endpoints, and the next one begins behind them', async () => {
  const ids = [];
  for (const path of ['a', 'b', 'c', 'd']) ids.push(await bench.endpoint(`https://127.0.0.1/${path}`));
  await bench.raise([0]);
  const [broken] = ids;
  await bench.db.query(`update endpoint set open_until = now() + interval '1 hour' where id = $1`, [broken]);
  const look = async (after: number, now = new Date()) => {
    const { ready, lookOnAfter } = await findReady(bench.db, {
      now,
      after,
      maxOfEndpoint: 8,
      maxLooked: 2,
    });
    return [ready.toSorted(), lookOnAfter];
  };
  assert.deepEqual(await look(0), [[ids[1]], ids[1]]);
  assert.deepEqual(await look(ids[1]!), [[ids[2], ids[3]], ids[3]]);
  assert.deepEqual(await look(ids[2]!), [[ids[3]], 0]);
  assert.deepEqual(await look(ids[3]!), [[], 0]);
  assert.deepEqual(await look(0, new Date(Date.now() + 3_700_000)), [[ids[0], ids[1]], ids[1]]);
});

test('with 30,000 waiting deliveries no claim reads a table through', async () => {
  for (const path of ['a', 'b', 'c']) await bench.endpoint(`https://127.0.0.1/${path}`);
  await bench.db.query(
    `insert into event (id, environment_id, type, data, position)
     select
       gen_random_uuid(), $1, 'connection.created',
       $2::jsonb || jsonb_build_object('connection_id', 'c' || n % 500), n
     from generate_series(1, 10000) as n`,
    [bench.environmentId, JSON.stringify({ ...exampleConnection, missing_scopes: [] })],
  );
  let queued = 0;
  for (let after = 0; after < 10_000; after += 1_000) {
    queued += await bench.db.transaction((tx) => fanOut(tx, { afterPosition: after, upTo: after + 1_000 }));
  }
  assert.equal(queued, 30_000);
  await bench.db.query('analyze');
  const plan = async (text: string, values: unknown[]) => {
    const rows = await bench.db.query<Record<string, string>>(`explain (analyze, buffers) ${text}`, values);
    return rows.map((row) => row['QUERY PLAN']).join('\n');
  };
  const [lane] = await bench.db.query<{ endpoint: number; lane: number }>(
    'select endpoint_id as endpoint, lane from delivery_lane limit 1',
  );
  const at = [lane!.endpoint, new Date(), 8, 8];
  for (const text of [
    await plan(readySql, [new Date(), 0, 8, 2_000]),
    await plan(headsSql, [lane!.endpoint, [lane!.lane]]),
    await plan(dueLanes.all, at),
    await plan(dueLanes.unfailed, at),
    await plan(dueLanes.failing, at),
  ]) {
    // Nor the whole of an index: a statement reads the pages of a few rows.
    assert.doesNotMatch(text, /Seq Scan on (delivery|delivery_lane|event)\b/, text);
    const blocks = Number(/shared hit=(\d+)/.exec(text)?.[1]);
    assert.ok(blocks > 0 && blocks < 100, text);
  }
});

test('an environment is deleted with its endpoints, deliveries and keys', async () => {
  const receiver = await bench.receiver();
  await bench.endpoint(receiver.url);
  await bench.raise([0, 1]);
  await bench.deliverer().deliverDue();
  await bench.raise([2]);
  await bench.db.query('delete from environment where id = $1', [bench.environmentId]);
  for (const table of ['endpoint', 'delivery', 'delivery_lane', 'signing_key']) {
    assert.equal((await bench.db.query(`select from ${table}`)).length, 0, table);
  }
});
