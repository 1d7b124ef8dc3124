import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { type DataKey, openVault } from '../vault.ts';
import { type CheckedRecord, CheckedRecords, type Piece } from './checked.ts';
import { openPayload, sealRecords } from './seal.ts';
import { sealOnThread } from './seal-queue.ts';

const dataKey = newKey();
const of = { dataKey, datasetId: 7 };

test('a large call is hashed and sealed as its records one by one, in their order', async () => {
  const records = Array.from({ length: 2500 }, (_, n) => makeRecord(n));
  const together = await sealRecords(checked(records), of);
  const alone = await Promise.all(
    records.map(async (record) => (await sealRecords(checked([record]), of))[0]),
  );
  assert.equal(together.length, records.length);
  for (const [index, { id, hash, body }] of together.entries()) {
    assert.equal(id, records[index]?.id);
    assert.deepEqual(hash, alone[index]?.hash);
    assert.equal(openPayload(body, { ...of, recordId: id }).toString(), records[index]?.text);
  }
  assert.equal(
    new Set(together.map(({ body }) => body.toString('hex', 1, 13))).size,
    records.length,
    'nonces',
  );
});

test('large calls at once get each its own', async () => {
  const keys = Array.from({ length: 10 }, newKey);
  const records = Array.from({ length: 300 }, (_, n) => makeRecord(n));
  await Promise.all(
    keys.map(async (key, datasetId) => {
      const sealed = await sealRecords(checked(records), { dataKey: key, datasetId });
      for (const [index, { id, body }] of sealed.entries()) {
        const opened = openPayload(body, { dataKey: key, datasetId, recordId: id });
        assert.equal(opened.toString(), records[index]?.text);
      }
    }),
  );
});

test('a thread that dies fails the calls that wait for it, and the next call gets another', async () => {
  const good = () => checked([makeRecord(1)]).pieces()[0] as Piece;
  const deadly = { ...good(), spans: [{ id: 'a', start: -1, textEnd: 0, end: 0 }] };
  const results = await Promise.allSettled([
    sealOnThread({ ...of, ...good() }),
    sealOnThread({ ...of, ...deadly }),
    sealOnThread({ ...of, ...good() }),
  ]);
  assert.deepEqual(
    results.map(({ status }) => status),
    ['fulfilled', 'rejected', 'rejected'],
  );
  const { sizes } = await sealOnThread({ ...of, ...good() });
  assert.equal(sizes.length, 1);
});

function newKey(): DataKey {
  return openVault([{ id: 'a', key: createSecretKey(randomBytes(32)) }]).createDataKey().key;
}

function checked(records: readonly CheckedRecord[]): CheckedRecords {
  const all = new CheckedRecords(records.length);
  for (const record of records) all.add(record);
  return all;
}

function makeRecord(n: number): CheckedRecord {
  const text = JSON.stringify({ z: n, a: 'é€😀'.repeat(n % 7) });
  return { id: `record ${n}`, text, canonical: `canonical ${text}` };
}
