import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TtlCache } from './ttl-cache.ts';

/** A cache of texts whose reads the test answers, on clocks that the test moves. */
function byHand(endOf?: (value: string) => number) {
  const clock = { ms: 0, now: 0 };
  const reads: PromiseWithResolvers<string>[] = [];
  const cache = new TtlCache<string, string>({
    load: () => {
      const read = Promise.withResolvers<string>();
      reads.push(read);
      return read.promise;
    },
    keyOf: (asked) => asked,
    ...(endOf && { endOf }),
    clock: () => clock.ms,
    now: () => clock.now,
    max: 2,
  });
  return { cache, clock, reads };
}

test('twenty concurrent callers cause one read, and for a second from its beginning no caller waits', async () => {
  const { cache, clock, reads } = byHand();
  const asked = Array.from({ length: 20 }, () => cache.get('a'));
  clock.ms = 400;
  reads[0]!.resolve('first');
  assert.deepEqual(await Promise.all(asked), Array(20).fill('first'));
  assert.equal(reads.length, 1);
  clock.ms = 999;
  assert.equal(cache.get('a'), 'first');
  clock.ms = 1000;
  assert.equal(cache.known('a'), undefined);
});

test('a caller does not wait for a read that is older than a second', async () => {
  const { cache, clock, reads } = byHand();
  const early = cache.get('a');
  clock.ms = 1000;
  const late = cache.get('a');
  assert.equal(reads.length, 2);
  reads[1]!.resolve('new');
  assert.equal(await late, 'new');
  reads[0]!.resolve('old');
  assert.equal(await early, 'old');
  assert.equal(cache.get('a'), 'new');
});

test('what is forgotten while it is read is read again, by its name and by its value', async () => {
  const { cache, reads } = byHand();
  for (const forget of [() => cache.forget('a'), () => cache.forgetWhere((value) => value === 'kept')]) {
    const before = cache.get('a');
    forget();
    const after = cache.get('a');
    reads.at(-2)!.resolve('old');
    assert.equal(await before, 'old');
    assert.equal(cache.known('a'), undefined);
    reads.at(-1)!.resolve('kept');
    assert.equal(await after, 'kept');
    assert.equal(cache.get('a'), 'kept');
    forget();
    assert.equal(cache.known('a'), undefined);
  }
});

test('a reread starts a new read, and its value replaces the cached one', async () => {
  const { cache, reads } = byHand();
  const first = cache.get('a');
  reads[0]!.resolve('old');
  await first;
  const again = cache.reread('a');
  assert.equal(cache.get('a'), again, 'a caller waits for it meanwhile');
  reads[1]!.resolve('new');
  assert.equal(await again, 'new');
  assert.equal(cache.get('a'), 'new');
});

test('a full cache drops the value that it read first, and keeps all others', async () => {
  const { cache, reads } = byHand();
  for (const [index, name] of ['a', 'b', 'a', 'c'].entries()) {
    const read = cache.reread(name);
    reads[index]!.resolve(name);
    await read;
  }
  assert.deepEqual(
    ['a', 'b', 'c'].map((name) => cache.known(name)),
    ['a', undefined, 'c'],
  );
});

test('a value is cached no longer than it lasts, and a failure not at all', async () => {
  const { cache, clock, reads } = byHand((value) => Number(value));
  const short = cache.get('a');
  reads[0]!.resolve('300');
  await short;
  clock.now = 299;
  assert.equal(cache.get('a'), '300');
  clock.now = 300;
  const failing = cache.get('a');
  reads[1]!.reject(new Error('away'));
  await assert.rejects(async () => failing, /away/);
  const last = cache.get('a');
  reads[2]!.resolve('5000');
  assert.equal(await last, '5000');
});

test('a time of day that is set back keeps nothing beyond the second', async () => {
  const { cache, clock, reads } = byHand((value) => Number(value));
  clock.now = 9_000_000;
  const before = cache.get('a');
  reads[0]!.resolve('9500000');
  await before;
  clock.now -= 3_600_000;
  clock.ms = 999;
  assert.equal(cache.known('a'), '9500000');
  clock.ms = 1000;
  assert.equal(cache.known('a'), undefined);
  const running = cache.get('a');
  clock.ms = 2000;
  assert.notEqual(cache.get('a'), running, 'nor is the read of before waited for');
  for (const read of reads) read.resolve('0');
  await running;
});
