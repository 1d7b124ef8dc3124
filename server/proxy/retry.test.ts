import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isIdempotent, isRetried, retryWaitMs } from './retry.ts';

const now = Date.UTC(2026, 10, 21, 12, 0, 0);
const waitAfter = (given: Partial<Parameters<typeof retryWaitMs>[0]>) =>
  retryWaitMs({
    status: 503,
    retryAfter: undefined,
    tried: 1,
    minimum: undefined,
    now,
    random: 0,
    ...given,
  });

test('only methods whose repetition changes nothing count as safe', () => {
  for (const method of ['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE', 'QUERY']) assert.ok(isIdempotent(method));
  for (const method of ['POST', 'PATCH', 'LOCK', 'CONNECT', 'get']) assert.ok(!isIdempotent(method));
});

test('temporary statuses are retried, and those that the caller names', () => {
  const named = new Set([404]);
  assert.deepEqual(
    [200, 400, 401, 404, 429, 500, 501, 502, 503, 504].filter((status) => isRetried(status, named)),
    [404, 429, 500, 502, 503, 504],
  );
  assert.ok(!isRetried(404, undefined));
});

test('waits double from half a second, up to a minute', () => {
  assert.deepEqual(
    [1, 2, 3, 4, 8, 11].map((tried) => waitAfter({ tried })),
    [500, 1000, 2000, 4000, 60_000, 60_000],
  );
  assert.equal(waitAfter({ tried: 2, random: 1 }), 500);
});

test("the provider's definition sets the minimum wait", () => {
  const minimum = { too_many: 30_000, unavailable: 1_000 };
  assert.equal(waitAfter({ status: 429, minimum }), 30_000);
  assert.equal(waitAfter({ status: 429, minimum, random: 1 }), 45_000);
  assert.equal(waitAfter({ status: 503, minimum }), 1_000);
  assert.equal(waitAfter({ status: undefined, minimum }), 1_000);
});

test('Retry-After counts in seconds and as a date, and more than a minute is not waited for', () => {
  assert.equal(waitAfter({ retryAfter: '7', tried: 5 }), 7_000);
  assert.equal(waitAfter({ retryAfter: '0' }), 0);
  assert.equal(waitAfter({ retryAfter: 'Sat, 21 Nov 2026 12:00:09 GMT' }), 9_000);
  assert.equal(waitAfter({ retryAfter: 'Saturday, 21-Nov-26 12:00:09 GMT' }), 9_000);
  assert.equal(waitAfter({ retryAfter: 'Sat Nov 21 12:00:09 2026' }), 9_000);
  assert.equal(waitAfter({ retryAfter: 'Sat, 21 Nov 2026 11:00:00 GMT' }), 0);
  assert.equal(waitAfter({ retryAfter: '60' }), 60_000);
  assert.equal(waitAfter({ retryAfter: '61' }), undefined);
});

test('an invalid Retry-After is ignored', () => {
  for (const text of ['', 'soon', '-1', '1.5', '1e3', 'NaN', 'Sat, 99 Nov']) {
    assert.equal(waitAfter({ retryAfter: text }), 500);
  }
});

test('a wait is never negative, and never more than a minute and a half', () => {
  const given = fc.record({
    retryAfter: fc.option(fc.oneof(fc.string(), fc.nat().map(String)), { nil: undefined }),
    tried: fc.integer({ min: 1, max: 11 }),
    random: fc.double({ min: 0, max: 1, noNaN: true }),
  });
  fc.assert(
    fc.property(given, (some) => {
      const wait = waitAfter(some);
      assert.ok(wait === undefined || (wait >= 0 && wait <= 90_000));
    }),
  );
});
