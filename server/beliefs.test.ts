import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Beliefs } from './beliefs.ts';

/** Beliefs in texts whose reads are answered by hand, on clocks that the test moves. */
function byHand(endOf?: (value: string) => number) {
  const clock = { ms: 0, now: 0 };
  const reads: PromiseWithResolvers<string>[] = [];
  const beliefs = new Beliefs<string, string>({
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
  return { beliefs, clock, reads };
}

test('twenty that ask at once cause one read, and for a second from its beginning nobody waits', async () => {
  const { beliefs, clock, reads } = byHand();
  const asked = Array.from({ length: 20 }, () => beliefs.get('a'));
  clock.ms = 400;
  reads[0]!.resolve('first');
  assert.deepEqual(await Promise.all(asked), Array(20).fill('first'));
  assert.equal(reads.length, 1);
  clock.ms = 999;
  assert.equal(beliefs.get('a'), 'first');
  clock.ms = 1000;
  assert.equal(beliefs.known('a'), undefined);
});

test('a read that is older than a second is not waited for by whoever asks now', async () => {
  const { beliefs, clock, reads } = byHand();
  const early = beliefs.get('a');
  clock.ms = 1000;
  const late = beliefs.get('a');
  assert.equal(reads.length, 2);
  reads[1]!.resolve('new');
  assert.equal(await late, 'new');
  reads[0]!.resolve('old');
  assert.equal(await early, 'old');
  assert.equal(beliefs.get('a'), 'new');
});

test('what is forgotten while it is read is read again, by its name and by its value', async () => {
  const { beliefs, reads } = byHand();
  for (const forget of [() => beliefs.forget('a'), () => beliefs.forgetWhere((value) => value === 'kept')]) {
    const before = beliefs.get('a');
    forget();
    const after = beliefs.get('a');
    reads.at(-2)!.resolve('old');
    assert.equal(await before, 'old');
    assert.equal(beliefs.known('a'), undefined);
    reads.at(-1)!.resolve('kept');
    assert.equal(await after, 'kept');
    assert.equal(beliefs.get('a'), 'kept');
    forget();
    assert.equal(beliefs.known('a'), undefined);
  }
});

test('a reread is asked for anew and takes the place of what was known', async () => {
  const { beliefs, reads } = byHand();
  const first = beliefs.get('a');
  reads[0]!.resolve('old');
  await first;
  const again = beliefs.reread('a');
  assert.equal(beliefs.get('a'), again, 'whoever asks meanwhile waits for it');
  reads[1]!.resolve('new');
  assert.equal(await again, 'new');
  assert.equal(beliefs.get('a'), 'new');
});

test('a full cache drops the value that it read first, and keeps all others', async () => {
  const { beliefs, reads } = byHand();
  for (const [index, name] of ['a', 'b', 'a', 'c'].entries()) {
    const read = beliefs.reread(name);
    reads[index]!.resolve(name);
    await read;
  }
  assert.deepEqual(
    ['a', 'b', 'c'].map((name) => beliefs.known(name)),
    ['a', undefined, 'c'],
  );
});

test('a value is believed no longer than it lasts, and a failure not at all', async () => {
  const { beliefs, clock, reads } = byHand((value) => Number(value));
  const short = beliefs.get('a');
  reads[0]!.resolve('300');
  await short;
  clock.now = 299;
  assert.equal(beliefs.get('a'), '300');
  clock.now = 300;
  const failing = beliefs.get('a');
  reads[1]!.reject(new Error('away'));
  await assert.rejects(async () => failing, /away/);
  const last = beliefs.get('a');
  reads[2]!.resolve('5000');
  assert.equal(await last, '5000');
});

test('a time of day that is set back keeps nothing beyond the second', async () => {
  const { beliefs, clock, reads } = byHand((value) => Number(value));
  clock.now = 9_000_000;
  const before = beliefs.get('a');
  reads[0]!.resolve('9500000');
  await before;
  clock.now -= 3_600_000;
  clock.ms = 999;
  assert.equal(beliefs.known('a'), '9500000');
  clock.ms = 1000;
  assert.equal(beliefs.known('a'), undefined);
  const running = beliefs.get('a');
  clock.ms = 2000;
  assert.notEqual(beliefs.get('a'), running, 'nor is the read of before waited for');
  for (const read of reads) read.resolve('0');
  await running;
});
