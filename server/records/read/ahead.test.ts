import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { readAhead } from './page.ts';

/** Makes a value whenever it is let; tells how many it was asked for, and when it has ended. */
function maker() {
  const waiting: PromiseWithResolvers<void>[] = [];
  const state = { asked: 0, isEnded: false };
  async function* make() {
    try {
      for (let n = 1; ; n += 1) {
        state.asked = n;
        const turn = Promise.withResolvers<void>();
        waiting.push(turn);
        await turn.promise;
        yield n;
      }
    } finally {
      state.isEnded = true;
    }
  }
  return {
    values: make(),
    state,
    made: () => waiting.shift()?.resolve(),
    fail: (why: Error) => waiting.shift()?.reject(why),
  };
}

test('the next value is made while one is used, and no other', async () => {
  const { values, state, made } = maker();
  const ahead = readAhead(values);
  const first = ahead.next();
  await nextTurn();
  assert.equal(state.asked, 1);
  made();
  assert.deepEqual(await first, { done: false, value: 1 });
  await nextTurn();
  assert.equal(state.asked, 2);
  made();
  await nextTurn();
  assert.equal(state.asked, 2, 'made, and nobody has asked for it');
  assert.deepEqual(await ahead.next(), { done: false, value: 2 });
  await nextTurn();
  assert.equal(state.asked, 3);
  made();
  await ahead.return();
});

test('values come in their order, and the end after the last', async () => {
  async function* three() {
    yield* ['a', 'b', 'c'];
  }
  assert.deepEqual(await Array.fromAsync(readAhead(three())), ['a', 'b', 'c']);
});

test('an error surfaces at its turn, however long ago it happened', async () => {
  const { values, made, fail } = maker();
  const ahead = readAhead(values);
  const first = ahead.next();
  await nextTurn();
  made();
  assert.equal((await first).value, 1);
  await nextTurn();
  fail(new Error('the second'));
  // An unhandled rejection would end the process here.
  for (let turn = 0; turn < 5; turn += 1) await nextTurn();
  await assert.rejects(ahead.next(), /the second/);
  assert.deepEqual(await ahead.next(), { done: true, value: undefined });
});

test('who leaves early leaves when the value that is being made is done, also where it fails', async () => {
  for (const end of ['made', 'fail'] as const) {
    const { values, state, made, ...by } = maker();
    const ahead = readAhead(values);
    const first = ahead.next();
    await nextTurn();
    made();
    await first;
    let hasLeft = false;
    const leaving = ahead.return().then(() => {
      hasLeft = true;
    });
    await nextTurn();
    assert.deepEqual([hasLeft, state.isEnded], [false, false]);
    if (end === 'made') made();
    else by.fail(new Error('in vain'));
    await leaving;
    assert.deepEqual([state.asked, state.isEnded], [2, true]);
  }
});
