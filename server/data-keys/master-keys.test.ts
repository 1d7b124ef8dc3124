import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { openVault } from '../vault.ts';
import { masterKey, openKeyBench } from './data-keys.fixture.ts';
import {
  listMasterKeys,
  proveForRotation,
  proveKeyRing,
  proveOrder,
  proveStarted,
  retireMasterKey,
} from './master-keys.ts';
import { rotateDataKeys } from './rotate.ts';
import { insertDataKey, registerMasterKey } from './store.ts';

let bench: Awaited<ReturnType<typeof openKeyBench>>;
beforeEach(async () => {
  bench = await openKeyBench();
});
afterEach(() => bench.drop());

const retire = (id: string) => bench.db.transaction((tx) => retireMasterKey(tx, id));

test('a start with a missing or different master key is refused by its id', async () => {
  const { db } = bench;
  const [one, two] = [masterKey('one'), masterKey('two')];
  for (const key of [one, two]) await registerMasterKey(db, key);
  await proveKeyRing(db, [two, one]);
  await assert.rejects(proveKeyRing(db, [one]), /"two" is missing/);
  await assert.rejects(proveKeyRing(db, [one, masterKey('two')]), /"two" is not the key/);
});

test('a master key that was dropped while it wraps stops a start and a rotation', async () => {
  const { db, old, young } = bench;
  await bench.make(1);
  await proveKeyRing(db, [young, old]);
  await assert.rejects(proveKeyRing(db, [young]), /"old" is missing/);
  await assert.rejects(proveForRotation(db, [young]), /"old" is missing/);
  assert.equal(await retire('old'), false);
});

test('a retired master key may be dropped; other bytes under its id stay refused', async () => {
  const { db, old, young, both } = bench;
  await bench.make(3);
  await rotateDataKeys(db, { vault: both });
  assert.equal(await retire('old'), true);
  assert.equal(await retire('old'), false);
  await proveKeyRing(db, [young]);
  await proveKeyRing(db, [old, young]);
  await assert.rejects(proveKeyRing(db, [old]), /"young" is missing/);
  await assert.rejects(proveKeyRing(db, [young, masterKey('old')]), /"old" is not the key/);
  await assert.rejects(proveForRotation(db, [old, young]), /"old" is permanently retired/);
});

test('a ring in the order from before a rotation is noticed, until one of its keys is retired', async () => {
  const { db, old, young, both } = bench;
  await proveOrder(db, [old, young]);
  await bench.make(1);
  await proveOrder(db, [young, old]);
  await proveOrder(db, [old, young]);
  await registerMasterKey(db, young);
  await proveOrder(db, [young, old]);
  await assert.rejects(proveOrder(db, [old, young]), /"young" was first used after "old"/);
  await rotateDataKeys(db, { vault: openVault([old, young]) });
  await retire('young');
  await proveOrder(db, both.masterKeys);
  await proveOrder(db, [old, young]);
});

test('to prove a ring notes nothing: a start that fails afterwards is none that a rotation may go by', async () => {
  const { db, young, old } = bench;
  await bench.make(1);
  await proveKeyRing(db, [young, old]);
  await proveForRotation(db, [young, old]);
  await assert.rejects(proveStarted(db, [young, old]), /No node was started with "young"/);
  assert.deepEqual(
    (await listMasterKeys(db)).map(({ id }) => id),
    ['old'],
  );
  await registerMasterKey(db, young);
  await proveStarted(db, [young, old]);
});

test('a node without notice of a rotation wraps with the new master key', async () => {
  const { db, old, young, both } = bench;
  await bench.make(1);
  await rotateDataKeys(db, { vault: both });
  await retire('old');
  const { id, key } = await insertDataKey(db, openVault([old, young]));
  const sealed = key.seal('hello', 'c');
  const wrapped = await bench.wrappedOf(id);
  assert.equal(openVault([young]).unwrap(wrapped!).open(sealed, 'c').toString(), 'hello');
  await assert.rejects(insertDataKey(db, openVault([old])), /retired/);
});

test('twenty that wrap at the moment a master key is retired leave nothing under it, or keep it', async () => {
  const { db, old, young } = bench;
  const late = openVault([old, young]);
  await registerMasterKey(db, old);
  const [isRetired] = await Promise.all([
    retire('old'),
    ...Array.from({ length: 20 }, () => db.transaction((tx) => insertDataKey(tx, late))),
  ]);
  const counts = await bench.counts();
  assert.equal((counts.old ?? 0) + (counts.young ?? 0), 20);
  assert.equal(isRetired, counts.old === undefined);
});

test('who wraps under a master key is waited for before it is retired', async () => {
  const { db, before } = bench;
  await registerMasterKey(db, before.masterKeys[0]);
  let asked: Promise<boolean> | undefined;
  await db.transaction(async (tx) => {
    await insertDataKey(tx, before);
    asked = retire('old');
    await untilSomeoneWaits();
  });
  assert.equal(await asked, false);
  assert.deepEqual(
    (await listMasterKeys(db)).map(({ id, dataKeys, retiredAt }) => ({ id, dataKeys, retiredAt })),
    [{ id: 'old', dataKeys: 1, retiredAt: undefined }],
  );
});

async function untilSomeoneWaits(): Promise<void> {
  for (;;) {
    const [row] = await bench.db.query<{ waits: boolean }>(
      `select exists (
         select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
       ) as waits`,
    );
    if (row?.waits) return;
  }
}
