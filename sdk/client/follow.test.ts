import assert from 'node:assert/strict';
import { json } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { type ClientBench, openClientBench, respond, startServer } from './client.fixture.ts';
import { type Batch, isTrellisError, Trellis, type TrellisError } from './index.ts';

type City = { city: string };

let bench: ClientBench;
before(async () => {
  bench = await openClientBench();
});
after(() => bench.close());
const fresh = () => bench.fresh<City>();

const cities = (from: number, to: number, word = 'city') =>
  Array.from({ length: to - from }, (_, at) => ({ id: from + at, city: `${word} ${from + at}` }));
const idsOf = ({ records }: { records: { id: string }[] }) => records.map(({ id }) => Number(id));

test('a follower that is interrupted within a batch gets that batch again, and all later ones', async () => {
  const records = fresh();
  await records.save(cities(0, 95));
  const taken: number[][] = [];
  const follow = () => records.follow({ consumer: 'billing', batchSize: 10, untilCaughtUp: true });
  await assert.rejects(async () => {
    for await (const batch of follow()) {
      taken.push(idsOf(batch));
      if (taken.length === 4) throw new Error('the program dies');
    }
  }, /dies/);
  assert.equal(taken.flat().length, 40);
  for await (const batch of follow()) taken.push(idsOf(batch));
  assert.deepEqual(taken[4], taken[3]);
  assert.deepEqual(
    [...new Set(taken.flat())],
    cities(0, 95).map(({ id }) => id),
  );
  assert.equal(taken.flat().length, 105);
});

test('a batch that was acknowledged explicitly does not come again when the loop ends with it', async () => {
  const records = fresh();
  await records.save(cities(0, 20));
  for await (const { acknowledge, cursor } of records.follow({ consumer: 'one', batchSize: 10 })) {
    await acknowledge();
    await acknowledge();
    assert.equal(typeof cursor, 'string');
    break;
  }
  const rest: number[] = [];
  for await (const batch of records.follow({ consumer: 'one', untilCaughtUp: true }))
    rest.push(...idsOf(batch));
  assert.deepEqual(
    rest,
    cities(10, 20).map(({ id }) => id),
  );
});

test('no change is lost during concurrent writes, and a record that changes again comes again', async () => {
  const records = fresh();
  const stop = new AbortController();
  const last = new Map<number, string | undefined>();
  const following = (async () => {
    for await (const batch of records.follow({
      consumer: 'one',
      batchSize: 50,
      pollMs: 5,
      signal: stop.signal,
    })) {
      for (const { id, city } of batch.records) last.set(Number(id), city);
      if (last.get(299) === 'last 299' && last.size === 400) return;
    }
  })();
  const write = async (from: number) => {
    for (let at = from; at < from + 100; at += 20) await records.save(cities(at, at + 20));
  };
  await Promise.all([0, 100, 200, 300].map(write));
  await records.save(cities(0, 300, 'last'));
  const late = setTimeout(() => stop.abort(new Error('late')), 30_000);
  await following;
  clearTimeout(late);
  assert.deepEqual(
    [...last].sort(([one], [other]) => one - other).map(([, city]) => city),
    [...cities(0, 300, 'last'), ...cities(300, 400)].map(({ city }) => city),
  );
});

test('a new consumer starts with all records, with later changes, or after a cursor', async () => {
  const records = fresh();
  const begun = async (consumer: string, from?: string) => {
    const ids: number[] = [];
    for await (const batch of records.follow({ consumer, from, untilCaughtUp: true }))
      ids.push(...idsOf(batch));
    return ids;
  };
  assert.deepEqual(await begun('early', 'now'), []);
  await records.save(cities(0, 3));
  assert.deepEqual(await begun('late', 'now'), []);
  const [, second] = await records.list().toArray();
  await records.save(cities(3, 4));
  assert.deepEqual(await begun('all'), [0, 1, 2, 3]);
  assert.deepEqual(await begun('behind', second?._trellis_metadata.cursor), [2, 3]);
  assert.deepEqual(await begun('early', 'now'), [0, 1, 2, 3]);
  assert.deepEqual(await begun('late', 'start'), [3]);
});

test('an abort rejects with its reason, and the processed batch is acknowledged', async () => {
  const records = fresh();
  await records.save(cities(0, 3));
  const stop = new AbortController();
  await assert.rejects(
    async () => {
      for await (const _ of records.follow({ consumer: 'one', signal: stop.signal }))
        stop.abort(new Error('the server closes'));
    },
    { message: 'the server closes' },
  );
  const again = records.follow({ consumer: 'one', untilCaughtUp: true });
  assert.deepEqual(await Array.fromAsync(again), []);
});

/** Removes the tombstones of all records deleted so far, even if a follower has not received them. */
async function removeTombstones(): Promise<void> {
  const { service } = bench;
  await service.call('PUT', '/records/retention', {
    body: { remove_tombstones_after_days: 1, wait_for_consumers: false },
  });
  await service.db.query("update record set last_modified_at = last_modified_at - interval '2 days'");
  await service.runJob('records.retention');
}

test('removed deletions are an error, or cause a restart', async () => {
  const records = fresh();
  await records.save(cities(0, 5));
  for await (const _ of records.follow({ consumer: 'slow', batchSize: 2, untilCaughtUp: true })) break;
  for await (const batch of records.follow({ consumer: 'slow', batchSize: 2 })) {
    await batch.acknowledge();
    break;
  }
  await records.delete([4]);
  await removeTombstones();
  await assert.rejects(
    Array.fromAsync(records.follow({ consumer: 'slow', untilCaughtUp: true })),
    (error) => isTrellisError(error, 'cursor_expired') && error.status === 410,
  );
  const restarted = () =>
    records.follow({ consumer: 'slow', batchSize: 3, untilCaughtUp: true, onExpired: 'restart' });
  for await (const { isRestart } of restarted()) {
    assert.ok(isRestart);
    break;
  }
  const seen: [number[], boolean][] = [];
  for await (const batch of restarted()) seen.push([idsOf(batch), batch.isRestart]);
  assert.deepEqual(
    seen,
    [
      [[0, 1, 2], true],
      [[3], false],
    ],
    'also where the program has died in the first batch',
  );
  for await (const _ of restarted()) assert.fail('nothing is left to take');
});

test('an explicit acknowledgement of an expired position causes a restart', async () => {
  const records = fresh();
  await records.save(cities(0, 5));
  const seen: [number[], boolean][] = [];
  const options = { consumer: 'slow', batchSize: 2, untilCaughtUp: true, onExpired: 'restart' } as const;
  for await (const batch of records.follow(options)) {
    seen.push([idsOf(batch), batch.isRestart]);
    if (seen.length === 2) {
      await records.delete([4]);
      await removeTombstones();
    }
    await batch.acknowledge();
  }
  assert.deepEqual(seen, [
    [[0, 1], true],
    [[2, 3], false],
    [[0, 1], true],
    [[2, 3], false],
  ]);
  assert.equal((await records.consumer('slow')).behind, 0);
});

test('a first batch that was not acknowledged has isRestart again, even if no record is left', async () => {
  const records = fresh();
  await records.save(cities(0, 3));
  const held = new Set<number>();
  const take = async (gone: number[]) => {
    for await (const batch of records.follow({ consumer: 'copy', untilCaughtUp: true })) {
      assert.ok(batch.isRestart && batch.isCaughtUp);
      held.clear();
      for (const id of idsOf(batch)) held.add(id);
      break;
    }
    await records.delete(gone);
    await removeTombstones();
    return [...held];
  };
  assert.deepEqual(await take([1]), [0, 1, 2]);
  assert.deepEqual(await take([0, 2]), [0, 2]);
  assert.deepEqual(await take([]), []);
});

test('a restart ends with a batch with isCaughtUp, even if the remaining records are gone', async () => {
  const records = fresh();
  await records.save(cities(0, 6));
  await records.delete([5]);
  await removeTombstones();
  // Seen dead from the beginning on, it may go without the follower.
  await records.delete([4]);
  const seen: [number[], boolean, boolean][] = [];
  const follow = async (consumer: string) => {
    for await (const batch of records.follow({ consumer, batchSize: 2, untilCaughtUp: true })) {
      seen.push([idsOf(batch), batch.isRestart, batch.isCaughtUp]);
      if (seen.length === 2) await removeTombstones();
    }
    return seen.splice(0);
  };
  const two = [
    [[0, 1], true, false],
    [[2, 3], false, false],
  ];
  assert.deepEqual(await follow('meanwhile'), [...two, [[], false, true]]);
  assert.deepEqual(await follow('after'), [two[0], [[2, 3], false, true]]);
  assert.deepEqual(await follow('after'), []);
});

test('a restart without records has an empty batch', async () => {
  const records = fresh();
  await records.save(cities(0, 2));
  for await (const _ of records.follow({ consumer: 'copy', batchSize: 1 })) break;
  for await (const batch of records.follow({ consumer: 'copy', batchSize: 1 })) {
    await batch.acknowledge();
    break;
  }
  await records.delete([0, 1]);
  await removeTombstones();
  const restarted = () => records.follow({ consumer: 'copy', untilCaughtUp: true, onExpired: 'restart' });
  const seen: Omit<Batch, 'acknowledge'>[] = [];
  for (const isDone of [false, true]) {
    for await (const { acknowledge, ...batch } of restarted()) {
      seen.push(batch);
      if (isDone) await acknowledge();
      break;
    }
  }
  const empty = { records: [], cursor: null, isRestart: true, isCaughtUp: true };
  assert.deepEqual(seen, [empty, empty]);
  assert.equal((await records.consumer('copy')).cursor, null);
  await records.save(cities(2, 3));
  const [next] = await Array.fromAsync(restarted());
  assert.deepEqual(next && [idsOf(next), next.isRestart], [[2], true]);
});

test('a follower without changes acknowledges its position', async () => {
  const [quiet, empty] = [fresh(), fresh()];
  await quiet.save(cities(0, 1));
  const caughtUp = async () => {
    for (const records of [quiet, empty])
      for await (const _ of records.follow({ consumer: 'nightly', untilCaughtUp: true }));
  };
  await caughtUp();
  await bench.service.db.query("update consumer set acknowledged_at = '2020-01-01' where name = 'nightly'");
  await caughtUp();
  for (const records of [quiet, empty]) {
    const { acknowledged_at } = await records.consumer('nightly');
    assert.notEqual(acknowledged_at.slice(0, 4), '2020');
  }
});

test('a waiting follower acknowledges its position each hour, even before the first record', async (t) => {
  const reported: unknown[] = [];
  const stop = new AbortController();
  let pages = 0;
  const service = await startServer(async (request, response) => {
    if (request.url?.includes('/consumers/')) {
      if (request.method === 'GET')
        return respond(response, { status: 404, body: { error: { code: 'not_found', message: 'new' } } });
      reported.push(await json(request));
      return respond(response, { body: {} });
    }
    pages += 1;
    if (pages === 3) return stop.abort(new Error('enough'));
    t.mock.timers.tick(61 * 60_000);
    respond(response, { body: { records: [], next_cursor: null } });
  });
  t.mock.timers.enable({ apis: ['Date'] });
  try {
    const records = new Trellis({ url: service.url, key: 'k' }).connection('i', 'c').records('City');
    const following = records.follow({ consumer: 'one', pollMs: 1, signal: stop.signal });
    await assert.rejects(following.next(), /enough/);
    const nothing = { model: 'City', variant: 'base', cursor: null };
    assert.deepEqual(reported, [nothing, nothing, nothing]);
  } finally {
    await service.close();
  }
});

test('a second program under the same name gets an error', async () => {
  const records = fresh();
  await records.save(cities(0, 6));
  const one = records.follow({ consumer: 'both', batchSize: 2, untilCaughtUp: true });
  await one.next();
  for await (const _ of records.follow({ consumer: 'both', untilCaughtUp: true }));
  await assert.rejects(
    one.next(),
    (error) => isTrellisError(error, 'cursor_behind_consumer') && typeof error.payload.cursor === 'string',
  );
});

test('outages are retried, other errors are not', async () => {
  const reported: string[] = [];
  const page = (id: number) => ({
    records: [{ id: String(id), _trellis_metadata: { cursor: `c${id}` } }],
    next_cursor: null,
  });
  let pages = 0;
  const away = await startServer((request, response, turn) => {
    const { method, url = '' } = request;
    // Each first attempt of a call fails, in one way after the other.
    if (turn % 2 === 0) {
      if (turn % 6 === 0) return response.destroy();
      if (turn % 6 === 2)
        return respond(response, { status: 503, body: { error: { code: 'unavailable', message: 'away' } } });
      return respond(response, {
        status: 429,
        headers: { 'retry-after': '0' },
        body: { error: { code: 'too_many_requests', message: 'slow' } },
      });
    }
    if (url.includes('/consumers/')) {
      if (method === 'GET') return respond(response, { body: { cursor: null } });
      return respond(response, { body: {} });
    }
    pages += 1;
    if (pages === 3)
      return respond(response, { status: 403, body: { error: { code: 'forbidden', message: 'no' } } });
    return respond(response, { body: page(pages) });
  });
  try {
    const client = new Trellis({ url: away.url, key: 'k', retries: 0 });
    const following = client
      .connection('i', 'c')
      .records('City')
      .follow({ consumer: 'one', pollMs: 1, onRetry: ({ code }: TrellisError) => reported.push(code) });
    const ids: number[] = [];
    await assert.rejects(
      async () => {
        for await (const batch of following) ids.push(...idsOf(batch));
      },
      (error) => isTrellisError(error, 'forbidden'),
    );
    assert.deepEqual(ids, [1, 2]);
    assert.deepEqual(reported.slice(0, 3), ['network_error', 'unavailable', 'too_many_requests']);
    assert.equal(reported.length, 7);
  } finally {
    await away.close();
  }
});
