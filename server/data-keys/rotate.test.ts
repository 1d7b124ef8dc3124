import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { openVault } from '../vault.ts';
import { openKeyBench } from './data-keys.fixture.ts';
import { countOthers, rotateDataKeys } from './rotate.ts';
import { destroyDataKey, insertDataKey } from './store.ts';

let bench: Awaited<ReturnType<typeof openKeyBench>>;
beforeEach(async () => {
  bench = await openKeyBench();
});
afterEach(() => bench.drop());

test('a rotation leaves every data key readable with the new master key alone', async () => {
  const made = await bench.make(450);
  assert.deepEqual(await countOthers(bench.db, bench.both), new Map([['old', 450]]));
  const seen: string[] = [];
  const rewrapped = await rotateDataKeys(bench.db, {
    vault: bench.both,
    onProgress: (progress) => seen.push(`${progress.rewrapped}/${progress.total}`),
  });
  assert.equal(rewrapped, 450);
  assert.deepEqual(seen, ['0/450', '200/450', '400/450', '450/450']);
  assert.deepEqual(await bench.counts(), { young: 450 });
  const young = openVault([bench.young]);
  for (const [n, { id, sealed }] of made.entries()) {
    const key = young.unwrap((await bench.wrappedOf(id))!);
    assert.equal(key.open(sealed, 'test').toString(), `text ${n}`);
  }
});

test('a second rotation changes nothing', async () => {
  const [one] = await bench.make(1);
  await rotateDataKeys(bench.db, { vault: bench.both });
  const wrapped = await bench.wrappedOf(one!.id);
  assert.equal(await rotateDataKeys(bench.db, { vault: bench.both }), 0);
  assert.deepEqual(await bench.wrappedOf(one!.id), wrapped);
});

test('a key that is destroyed between its reading and its rewrapping stays destroyed', async () => {
  const made = await bench.make(20);
  const { db, both } = bench;
  const vault = {
    ...both,
    // The rotation has read its batch and stored nothing yet.
    rewrap(wrapped: Buffer) {
      destroyed ??= Promise.all(made.slice(0, 10).map(({ id }) => destroyDataKey(db, id)));
      return both.rewrap(wrapped);
    },
  };
  let destroyed: Promise<unknown> | undefined;
  await rotateDataKeys(db, { vault });
  await destroyed;
  assert.deepEqual(await bench.counts(), { young: 10 });
  for (const { id } of made.slice(0, 10)) assert.equal(await bench.wrappedOf(id), undefined);
});

test('rotations, new keys and destroyed ones at once lose nothing and bring nothing back', async () => {
  const { db, before, both } = bench;
  const made = await bench.make(300);
  const doomed = made.slice(0, 20);
  const [first, second] = await Promise.all([
    rotateDataKeys(db, { vault: both }),
    rotateDataKeys(db, { vault: both }),
    ...Array.from({ length: 20 }, () => insertDataKey(db, before)),
    ...doomed.map(({ id }) => destroyDataKey(db, id)),
  ]);
  await rotateDataKeys(db, { vault: both });
  assert.ok(first + second >= 280);
  assert.deepEqual(await bench.counts(), { young: 300 });
  for (const { id } of doomed) assert.equal(await bench.wrappedOf(id), undefined);
});

test('a rotation skips locked keys, and the next rotation takes them', async () => {
  const { db, both } = bench;
  const made = await bench.make(10);
  await db.transaction(async (tx) => {
    await tx.query('select from data_key where id = any($1) for update', [
      made.slice(0, 3).map(({ id }) => id),
    ]);
    assert.equal(await rotateDataKeys(db, { vault: both, patienceMs: 0 }), 7);
  });
  assert.deepEqual(await bench.counts(), { old: 3, young: 7 });
  assert.equal(await rotateDataKeys(db, { vault: both }), 3);
});
