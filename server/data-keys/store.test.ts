import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { openKeyBench } from './data-keys.fixture.ts';
import {
  addDataKeys,
  continuesFrom,
  isNewerThanData,
  pagesOfDataKeys,
  recordKeyFile,
  registerMasterKey,
  replaceDataKeys,
} from './store.ts';

let bench: Awaited<ReturnType<typeof openKeyBench>>;
beforeEach(async () => {
  bench = await openKeyBench();
});
afterEach(() => bench.drop());

test('pages hold every data key once, of one master key where it is named', async () => {
  const { db, both, young } = bench;
  const made = await bench.make(7);
  await registerMasterKey(db, young);
  const [moved] = made;
  await db.query('update data_key set master_key = $1, wrapped = $2 where id = $3', [
    young.id,
    both.rewrap((await bench.wrappedOf(moved!.id))!),
    moved!.id,
  ]);
  const idsOf = async (masterKey?: string) => {
    const pages: string[][] = [];
    for await (const page of pagesOfDataKeys(db, { size: 3, ...(masterKey && { masterKey }) }))
      pages.push(page.map(({ id }) => id));
    return pages;
  };
  const all = await idsOf();
  assert.deepEqual(
    all.map(({ length }) => length),
    [3, 3, 1],
  );
  assert.deepEqual(all.flat(), made.map(({ id }) => id).sort());
  assert.deepEqual(await idsOf('young'), [[moved!.id]]);
  assert.equal((await idsOf('old')).flat().length, 6);
  assert.deepEqual(await idsOf('other'), []);
});

test('keys are restored unchanged, wrapped by the first master key, and replace all other keys', async () => {
  const { db, both, young } = bench;
  const [kept] = await bench.make(1);
  const keys = [{ id: kept!.id, wrapped: (await bench.wrappedOf(kept!.id))! }];
  await bench.make(2);
  await registerMasterKey(db, young);
  await db.transaction((tx) => replaceDataKeys(tx, { keys, vault: both }));
  assert.deepEqual(await bench.counts(), { [young.id]: 1 });
  const key = both.unwrap((await bench.wrappedOf(kept!.id))!);
  assert.equal(key.open(kept!.sealed, 'test').toString(), 'text 0');
});

test('keys are added to the existing ones, and all are wrapped by the first master key', async () => {
  const { db, both, young } = bench;
  const [held, lost] = await bench.make(2);
  const keys = [{ id: lost!.id, wrapped: (await bench.wrappedOf(lost!.id))! }];
  // If both have a key, the stored one opens the sealed data.
  keys.push({ id: held!.id, wrapped: keys[0]!.wrapped });
  await db.query('delete from data_key where id = $1', [lost!.id]);
  await registerMasterKey(db, young);
  await db.transaction((tx) => addDataKeys(tx, { keys, vault: both }));
  assert.deepEqual(await bench.counts(), { [young.id]: 2 });
  for (const [{ id, sealed }, text] of [
    [held!, 'text 0'],
    [lost!, 'text 1'],
  ] as const)
    assert.equal(
      both
        .unwrap((await bench.wrappedOf(id))!)
        .open(sealed, 'test')
        .toString(),
      text,
    );
});

test('data continue from each of their known files, for a year', async () => {
  const { db } = bench;
  const moments = ['2028-01-30', '2030-01-30', '2030-01-31'].map((day) => new Date(day));
  const [longAgo, yesterday, today] = moments as [Date, Date, Date];
  for (const at of [longAgo, today]) await recordKeyFile(db, at);
  const known = await Promise.all(moments.map((at) => continuesFrom(db, at)));
  assert.deepEqual(known, [false, false, true]);
  await recordKeyFile(db, yesterday);
  assert.deepEqual([await continuesFrom(db, yesterday), await continuesFrom(db, today)], [true, true]);
});

test('data are older than a file that was written after them, and as old as the one they were given', async () => {
  const { db } = bench;
  const [yesterday, today] = [new Date('2030-01-30T12:00:00.001Z'), new Date('2030-01-31T12:00:00.002Z')];
  assert.equal(await isNewerThanData(db, yesterday), true);
  for (const at of [yesterday, yesterday]) await recordKeyFile(db, at);
  assert.deepEqual([await isNewerThanData(db, yesterday), await isNewerThanData(db, today)], [false, true]);
  await recordKeyFile(db, today);
  await recordKeyFile(db, yesterday);
  assert.deepEqual([await isNewerThanData(db, yesterday), await isNewerThanData(db, today)], [false, false]);
});
