import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { inBatches, limitConcurrency } from './concurrency.ts';

test('twenty at once run three at a time, in their order, also where some fail', async () => {
  const inTurn = limitConcurrency(3);
  const begun: number[] = [];
  let running = 0;
  let max = 0;
  const results = await Promise.allSettled(
    Array.from({ length: 20 }, (_, index) =>
      inTurn(async () => {
        begun.push(index);
        running += 1;
        max = Math.max(max, running);
        await nextTurn();
        running -= 1;
        if (index % 5 === 0) throw new Error('no');
        return index;
      }),
    ),
  );
  assert.equal(max, 3);
  assert.deepEqual(
    begun,
    [...begun].sort((a, b) => a - b),
  );
  assert.equal(results.filter(({ status }) => status === 'rejected').length, 4);
  assert.equal(await inTurn(async () => 'again'), 'again');
});

test('items that arrive during a batch are processed together, in their order, and one that fails fails alone', async () => {
  const batches: (readonly number[])[] = [];
  const first = Promise.withResolvers<void>();
  const double = inBatches(
    async (items: readonly number[]) => {
      batches.push(items);
      if (batches.length === 1) await first.promise;
      if (items.includes(3)) throw new Error('no');
      return items.map((item) => item * 2);
    },
    { max: 2 },
  );
  const results = Promise.allSettled([0, 1, 2, 3, 4, 5].map(double));
  assert.deepEqual(batches, [[0]]);
  first.resolve();
  assert.deepEqual(
    (await results).map((result) => (result.status === 'fulfilled' ? result.value : 'failed')),
    [0, 2, 4, 'failed', 'failed', 10],
  );
  assert.deepEqual(batches, [[0], [1, 2], [3, 4], [5]]);
  assert.equal(await double(7), 14);
});
