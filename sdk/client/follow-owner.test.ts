import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type ClientBench, openClientBench } from './client.fixture.ts';
import { isTrellisError, type Records } from './index.ts';

type City = { city: string };

let bench: ClientBench;
before(async () => {
  bench = await openClientBench();
});
after(() => bench.close());
const cities = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, at) => ({ id: from + at, city: `city ${from + at}` }));

/** The dataset, for a key that only reads records. */
async function asReader({ model }: Records<City>): Promise<Records<City>> {
  const key = await bench.service.keyWith('records:read');
  return bench.open({ key }).connection(bench.integration, bench.connectionId).records<City>(model);
}
const endKeys = (records: Records<City>) =>
  bench.service.db.query(
    'update consumer set owner_key_id = null from dataset where dataset.id = dataset_id and model = $1',
    [records.model],
  );
const options = { consumer: 'app', batchSize: 2, untilCaughtUp: true } as const;

test('a program with a new key takes over a consumer whose owner was deleted', async () => {
  const records = bench.fresh<City>();
  await records.save(cities(0, 6));
  const following = (await asReader(records)).follow(options);
  const seen: number[] = [];
  const take = async (from: typeof following) => {
    const { value } = await from.next();
    seen.push(...(value?.records.map(({ id }) => Number(id)) ?? []));
  };
  await take(following);
  await take(following);
  await endKeys(records);
  const young = (await asReader(records)).follow(options);
  await take(young);
  await take(young);
  assert.deepEqual(seen, [0, 1, 2, 3, 2, 3, 4, 5]);
  await assert.rejects(following.next(), (error) => isTrellisError(error, 'forbidden'));
});

test('a program continues when the owner of its consumer is deleted', async () => {
  const records = bench.fresh<City>();
  await records.save(cities(0, 6));
  const seen: number[] = [];
  for await (const batch of (await asReader(records)).follow(options)) {
    seen.push(...batch.records.map(({ id }) => Number(id)));
    await endKeys(records);
  }
  assert.deepEqual(seen, [0, 1, 2, 3, 4, 5]);
  const { behind, key_id } = await records.consumer('app');
  assert.equal(behind, 0);
  assert.notEqual(key_id, null);
});

test('another key cannot move a consumer that has an owner', async () => {
  const records = bench.fresh<City>();
  await records.save(cities(0, 6));
  const reader = await asReader(records);
  for await (const _ of reader.follow(options));
  const { cursor } = await reader.consumer('app');
  await records.save(cities(6, 8));
  const other = (await asReader(records)).follow(options);
  await assert.rejects(other.next(), (error) => isTrellisError(error, 'forbidden'));
  assert.equal((await reader.consumer('app')).cursor, cursor);
});
