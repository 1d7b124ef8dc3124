import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Bucket, Buckets } from './bucket.ts';

test('a full bucket gives as many calls as its limit, then one each time its share of a minute is over', () => {
  const bucket = new Bucket(60);
  const left = Array.from({ length: 60 }, () => bucket.take(1_000).left);
  assert.deepEqual(
    left,
    Array.from({ length: 60 }, (_, at) => 59 - at),
  );
  assert.deepEqual(bucket.take(1_000), { limit: 60, left: 0, fullInMs: 60_000, waitMs: 1_000 });
  assert.equal(bucket.take(1_999).waitMs, 1);
  assert.deepEqual(bucket.take(2_000), { limit: 60, left: 0, fullInMs: 60_000, waitMs: 0 });
  assert.equal(bucket.take(2_000).waitMs, 1_000);
  // What was refused weighs nothing.
  assert.equal(bucket.take(62_000).left, 59);
  assert.equal(bucket.isFull(62_999), false);
  assert.equal(bucket.isFull(63_000), true);
});

test('the calls in any period never exceed the bucket and its refill', () => {
  const pauses = fc.array(fc.double({ min: 0, max: 5_000, noNaN: true }), { minLength: 1, maxLength: 300 });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 500 }), pauses, (limit, waits) => {
      const bucket = new Bucket(limit);
      let nowMs = 0;
      let passed = 0;
      for (const wait of waits) {
        nowMs += wait;
        const { waitMs, left } = bucket.take(nowMs);
        if (waitMs === 0) passed += 1;
        assert.ok(passed <= limit + (nowMs * limit) / 60_000 + 0.01);
        // What it says is left is there.
        assert.ok(left <= limit - 1 && left >= 0);
        if (waitMs > 0) assert.ok(waitMs <= 60_000 / limit + 0.01);
      }
    }),
  );
});

test('another limit changes how fast a bucket fills, and not how much of it is taken', () => {
  const bucket = new Bucket(60);
  for (let at = 0; at < 30; at++) bucket.take(0);
  const other = bucket.withLimit(600);
  assert.deepEqual(other.take(0), { limit: 600, left: 299, fullInMs: 30_100, waitMs: 0 });
  assert.equal(bucket.take(0).left, 29);
});

test('the calls on other nodes count', () => {
  const bucket = new Bucket(6);
  bucket.fillAt(60_000);
  assert.equal(bucket.take(0).waitMs, 10_000);
  assert.equal(bucket.take(10_000).waitMs, 0);
});

test('buckets of many names stay few, and a name that is in use keeps its own', () => {
  const buckets = new Buckets(2, { max: 100 });
  for (let at = 0; at < 1_000; at++) buckets.take(`once ${at}`, at);
  assert.equal(buckets.size, 100);
  buckets.take('often', 2_000);
  buckets.take('often', 2_000);
  assert.ok(buckets.take('often', 2_000).waitMs > 0);
  // Buckets that are full again are removed first.
  for (let at = 0; at < 100; at++) buckets.take(`later ${at}`, 45_000);
  assert.ok(buckets.take('often', 45_000).waitMs === 0);
  assert.equal(buckets.size, 100);
});
