import assert from 'node:assert/strict';
import { createHmac, createSecretKey, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { hashBytes, hashWriter } from './hash.ts';

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
