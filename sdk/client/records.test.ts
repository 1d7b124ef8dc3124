import assert from 'node:assert/strict';
import { pipeline, Readable } from 'node:stream';
import { after, before, test } from 'node:test';
import { type ClientBench, openClientBench, startServer } from './client.fixture.ts';
import { isTrellisError, type Records, Trellis } from './index.ts';

type City = { city: string; size?: number };

let bench: ClientBench;
let count = 0;
/** Of a model that no other test uses. */
let fresh: <T extends object = City>(variant?: string) => Records<T>;
before(async () => {
  bench = await openClientBench();
  const connection = bench.client.connection(bench.integration, bench.connectionId);
  fresh = (variant) => {
    count += 1;
    return connection.records(`City${count}`, { variant });
  };
});
after(() => bench.close());

const cities = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, at) => ({ id: from + at, city: `city ${from + at}` }));

test('2,500 records are listed singly, by pages or as an array, each once and in order', async () => {
  const records = fresh();
  await records.save(cities(0, 2_500));
  const ids: string[] = [];
  for await (const { id, city } of records.list()) {
    ids.push(id);
    assert.equal(city, `city ${id}`);
  }
  assert.deepEqual(
    ids,
    cities(0, 2_500).map(({ id }) => String(id)),
  );
  const sizes: number[] = [];
  for await (const page of records.list({ pageSize: 700 }).pages()) sizes.push(page.records.length);
  assert.deepEqual(sizes, [700, 700, 700, 400]);
  const all = records.list();
  assert.equal((await all.toArray()).length, 2_500);
  assert.equal((await all.toArray({ atMost: 1_100 })).at(-1)?.id, '1099');
  assert.deepEqual(await all.toArray({ atMost: 0 }), []);
  const { cursor } = (await all.toArray({ atMost: 2_000 })).at(-1)!._trellis_metadata;
  assert.equal((await records.list({ cursor }).toArray()).length, 500);
});

test('no page is fetched before it is needed', async () => {
  const records = fresh();
  await records.save(cities(0, 30));
  let fetched = 0;
  const counted = bench.open({
    fetch: (input, init) => {
      fetched += 1;
      return fetch(input, init);
    },
  });
  const seen = counted.connection(bench.integration, bench.connectionId).records<City>(records.model);
  for await (const _ of seen.list({ pageSize: 10 })) break;
  assert.equal(fetched, 1);
});

test('filters, ids and times narrow a list', async () => {
  const records = fresh();
  await records.save(cities(0, 5));
  await records.update([{ id: 1, size: 7 }]);
  assert.deepEqual(await records.delete([2, 99]), { count: 1, already_deleted: [], missing: ['99'] });
  const idsOf = async (options: Parameters<typeof records.list>[0]) =>
    (await records.list(options).toArray()).map(({ id }) => id);
  assert.deepEqual(await idsOf({ filter: ['updated', 'deleted'] }), ['1', '2']);
  assert.deepEqual(await idsOf({ ids: ['0', '4'] }), ['0', '4']);
  assert.deepEqual(await idsOf({ modifiedAfter: new Date(Date.now() + 60_000) }), []);
  const [updated] = await records.list({ ids: ['1'] }).toArray();
  assert.equal(updated?.size, 7);
  assert.equal(updated?._trellis_metadata.last_action, 'UPDATED');
});

test('a variant is a separate dataset', async () => {
  const base = fresh();
  const other = bench.client
    .connection(bench.integration, bench.connectionId)
    .records<City>(base.model, { variant: 'other' });
  await base.save([{ id: 1, city: 'Oslo' }]);
  await other.save([{ id: 2, city: 'Rome' }]);
  assert.deepEqual(
    (await other.list().toArray()).map(({ city }) => city),
    ['Rome'],
  );
  assert.deepEqual([base.variant, other.variant], ['base', 'other']);
  const datasets = await bench.client.connection(bench.integration, bench.connectionId).datasets();
  const ofModel = datasets.filter(({ model }) => model === base.model);
  assert.deepEqual(
    ofModel.map(({ variant, records }) => [variant, records]),
    [
      ['base', 1],
      ['other', 1],
    ],
  );
});

test('3,000 records are pruned completely, with progress, and have pruned_at', async () => {
  const records = fresh();
  await records.save(cities(0, 4_000));
  const until = (await records.list().toArray({ atMost: 3_000 })).at(-1)!._trellis_metadata.cursor;
  assert.equal((await records.estimate({ until })).count, 3_000);
  const reported: { pruned: number; total: number }[] = [];
  const { count: pruned } = await records.prune({ until, onProgress: (one) => reported.push(one) });
  assert.equal(pruned, 3_000);
  assert.deepEqual(
    reported.map((one) => one.pruned),
    [1_000, 2_000, 3_000],
  );
  assert.deepEqual([...new Set(reported.map(({ total }) => total))], [3_000]);
  const [first] = await records.list().toArray({ atMost: 1 });
  assert.notEqual(first?._trellis_metadata.pruned_at, null);
  assert.equal(first?.city, undefined);
  assert.deepEqual(await records.prune({ until }), { count: 0 });
});

test('an aborted prune continues with the same call', async () => {
  const records = fresh();
  await records.save(cities(0, 50));
  const until = (await records.list().toArray()).at(-1)!._trellis_metadata.cursor;
  const ended = new AbortController();
  const running = records.prune({
    until,
    batchSize: 10,
    signal: ended.signal,
    onProgress: () => ended.abort(),
  });
  await assert.rejects(running, { name: 'AbortError' });
  assert.deepEqual(await records.prune({ until, batchSize: 10 }), { count: 40 });
});

test('pruneConsumed prunes up to the position of the consumer, and nothing after it', async () => {
  const records = fresh();
  await records.save(cities(0, 20));
  for await (const _ of records.follow({ consumer: 'billing', batchSize: 5, untilCaughtUp: true }));
  await records.save(cities(20, 25));
  assert.equal((await records.consumer('billing')).behind, 5);
  assert.deepEqual(await records.pruneConsumed('billing'), { count: 20 });
  assert.deepEqual(await records.pruneConsumed('billing'), { count: 0 });
  await assert.rejects(records.pruneConsumed('nobody'), (error) => isTrellisError(error, 'not_found'));
});

test('an export returns all records, and an incomplete one is an error', async () => {
  const records = fresh();
  await records.save(cities(0, 3_000));
  let seen = 0;
  for await (const { id } of records.export()) {
    assert.equal(id, String(seen));
    seen += 1;
  }
  assert.equal(seen, 3_000);
  assert.deepEqual(await Array.fromAsync(fresh().export()), []);

  const cut = await startServer(async (_, response) => {
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    response.write('{"id":"1","city":"Oslo","_trellis_metadata":{"cursor":"a"}}\n{"id":"2","ci');
    await new Promise((resolve) => setTimeout(resolve, 20));
    response.destroy();
  });
  try {
    const ids: string[] = [];
    const away = bench.open({ url: cut.url }).connection('i', 'c').records('City').export();
    await assert.rejects(
      async () => {
        for await (const { id } of away) ids.push(id);
      },
      (error) => isTrellisError(error, 'export_cut_off'),
    );
    assert.deepEqual(ids, ['1']);
  } finally {
    await cut.close();
  }
});

test('a consumer that stops reading an export also stops the service', async () => {
  const closed = Promise.withResolvers<void>();
  const lines = function* () {
    for (let id = 0; ; id += 1) yield `{"id":"${id}"}\n`;
  };
  const endless = await startServer((_, response) => {
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    pipeline(Readable.from(lines()), response, () => closed.resolve());
  });
  try {
    for await (const { id } of bench
      .open({ url: endless.url })
      .connection('i', 'c')
      .records('City')
      .export()) {
      if (id === '10') break;
    }
    await closed.promise;
  } finally {
    await endless.close();
  }
});

test('another brand has its own name for the metadata of a record', async () => {
  const other = await openClientBench({ TRELLIS_BRAND: 'acme' });
  try {
    const branded = new Trellis({ url: other.service.baseUrl, key: other.service.keys.dev, brand: 'acme' });
    const records = branded.connection(other.integration, other.connectionId).records<City>('City');
    await records.save([{ id: 1, city: 'Oslo' }]);
    const taken: string[] = [];
    for await (const batch of records.follow({ consumer: 'one', untilCaughtUp: true })) {
      taken.push(...batch.records.map((record) => record._acme_metadata.cursor));
    }
    assert.equal(taken.length, 1);
    assert.equal((await Array.fromAsync(records.export())).length, 1);
    const answer = await branded.connection('none', 'none').fetch('/v4/x');
    const reported = await branded.connection('none', 'none').errorOf(answer);
    assert.equal(reported?.code, 'unknown_provider_config');
  } finally {
    await other.close();
  }
});
