import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSlots } from './worker.ts';

const open = (max: number) => {
  const free = Promise.withResolvers<void>();
  return {
    slots: createSlots({ max, slowAfterMs: 1, random: Math.random, onFree: free.resolve }),
    freed: free.promise,
  };
};

test('an attempt that takes long needs no slot, and its endpoint comes last until it has ended', async () => {
  const { slots, freed } = open(2);
  const answer = Promise.withResolvers<string>();
  const [slow, quick] = [slots.take(1), slots.take(2)];
  assert.equal(slots.free(), 0);
  const attempt = slow.during(() => answer.promise);
  assert.equal(await quick.during(async () => 'at once'), 'at once');
  await freed;
  assert.equal(slots.free(), 1);
  assert.deepEqual(slots.inOrder([1, 2, 3]).at(-1), 1);
  answer.resolve('late');
  assert.equal(await attempt, 'late');
  assert.equal(slots.free(), 0);
  slow.end();
  quick.end();
  assert.equal(slots.free(), 2);
});

test('while as many as there are slots are waited for, the slow get no more, and the others do', async () => {
  const { slots, freed } = open(1);
  const answer = Promise.withResolvers<void>();
  const slot = slots.take(1);
  const attempt = slot.during(() => answer.promise);
  await freed;
  assert.deepEqual([slots.free(), slots.inOrder([1, 2])], [1, [2]]);
  answer.reject(new Error('gone'));
  await assert.rejects(attempt, { message: 'gone' });
  slot.end();
  assert.deepEqual(slots.inOrder([1, 2]).toSorted(), [1, 2]);
});
