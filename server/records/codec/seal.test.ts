import assert from 'node:assert/strict';
import { createHmac, createSecretKey, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { type DataKey, openVault } from '../../vault.ts';
import { type CheckedRecord, type CheckedRecords, type RecordBatch, RecordPacker } from './check.ts';
import { hashBytes, hashWriter, openPayload } from './seal.ts';
import { readOnThread, sealOnThread, sealRecords } from './thread.ts';

const dataKey = newKey();
const of = { dataKey, datasetId: 7, ignoreFields: [] };

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
      const sealed = await sealRecords(checked(records), { dataKey: key, datasetId, ignoreFields: [] });
      for (const [index, { id, body }] of sealed.entries()) {
        const opened = openPayload(body, { dataKey: key, datasetId, recordId: id });
        assert.equal(opened.toString(), records[index]?.text);
      }
    }),
  );
});

test('a crash of the thread fails its waiting calls, and the next call gets a new thread', async () => {
  const good = () => checked([makeRecord(1)]).batches[0] as RecordBatch;
  const deadly = { ...good(), offsets: new Uint32Array([0, 2 ** 31, 2 ** 31]) };
  await sealOnThread(good(), of);
  const results = await Promise.allSettled([
    sealOnThread(deadly, of),
    sealOnThread(good(), of),
    readOnThread(new Uint8Array(2), 'ours'),
  ]);
  assert.deepEqual(
    results.map(({ status }) => status),
    ['rejected', 'rejected', 'rejected'],
  );
  const { sizes } = await sealOnThread(good(), of);
  assert.equal(sizes.length, 1);
});

test('an invalid JSON body fails its own call on the thread, not the thread', async () => {
  const broken = readOnThread(new Uint8Array([0x7b]), 'ours');
  const sealing = sealOnThread(checked([makeRecord(1)]).batches[0] as RecordBatch, of);
  await assert.rejects(broken, SyntaxError);
  assert.equal((await sealing).sizes.length, 1);
});

test('a hash is the first half of the HMAC-SHA-256, whatever the text and those before it', () => {
  const key = createSecretKey(randomBytes(32));
  const write = hashWriter(key);
  const texts = ['', 'a', 'é€😀', 'x'.repeat(100_000), 'é'.repeat(64), '\0', 'short again'];
  const hashes = new Uint8Array(texts.length * hashBytes);
  for (const [index, text] of texts.entries())
    write({ name: 'nämé ', content: Buffer.from(text) }, hashes, index * hashBytes);
  for (const [index, text] of texts.entries()) {
    const expected = createHmac('sha256', key).update(`nämé ${text}`).digest().subarray(0, hashBytes);
    assert.deepEqual(
      Buffer.from(hashes.subarray(index * hashBytes, (index + 1) * hashBytes)),
      expected,
      text.slice(0, 20),
    );
  }
});

test('a key of a whole block is used as it is, and a longer one refused', () => {
  const key = createSecretKey(randomBytes(64));
  const hash = new Uint8Array(hashBytes);
  hashWriter(key)({ name: 'te', content: Buffer.from('xt') }, hash, 0);
  assert.deepEqual(
    Buffer.from(hash),
    createHmac('sha256', key).update('text').digest().subarray(0, hashBytes),
  );
  assert.throws(() => hashWriter(createSecretKey(randomBytes(65))), RangeError);
});

function newKey(): DataKey {
  return openVault([{ id: 'a', key: createSecretKey(randomBytes(32)) }]).createDataKey().key;
}

function checked(records: readonly CheckedRecord[]): CheckedRecords {
  const packer = new RecordPacker(1000);
  for (const record of records) packer.add(record);
  return packer.pack();
}

function makeRecord(n: number): CheckedRecord {
  const text = JSON.stringify({ z: n, a: 'é€😀'.repeat(n % 7) });
  return { id: `record ${n}`, text, canonical: `canonical ${text}` };
}
