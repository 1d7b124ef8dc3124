import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openBook } from './token-book.ts';

const good = (successor: string) => ({ successor, isAccepted: true, isDelivered: true });

test('a token that goes out again is a double refresh, unless what it brought was lost with its node', () => {
  const book = openBook();
  book.asked({ node: 'a', token: '1' }).answered(good('2'));
  book.asked({ node: 'b', token: '2' }).answered(good('3'));
  assert.deepEqual(book.told().double, []);
  book.asked({ node: 'a', token: '2' }).answered(good('4'));
  assert.deepEqual(book.told().double, ['a token whose answer had come: b, then a']);
  book.disturbed('a');
  book.asked({ node: 'b', token: '4' });
  book.asked({ node: 'a', token: '4' });
  assert.equal(book.told().double.at(-1), 'two requests with one token at once: b, then a');
  book.disturbed('b');
  book.disturbed('a');
  const { length } = book.told().double;
  book.asked({ node: 'c', token: '4' }).answered(good('5'));
  assert.equal(book.told().double.length, length);
});

test('a token after its successor is a double refresh whatever became of the nodes', () => {
  const book = openBook();
  book.asked({ node: 'a', token: '1' }).answered(good('2'));
  book.asked({ node: 'a', token: '2' }).answered(good('3'));
  book.disturbed('a');
  book.asked({ node: 'c', token: '3' }).answered(good('4'));
  book.asked({ node: 'b', token: '1' });
  assert.deepEqual(book.told().double, ['a token after its successor: a, then b']);
});

test('the token before one whose answer was lost is tried once more, and is none', () => {
  const book = openBook();
  book.asked({ node: 'a', token: '1' }).answered(good('2'));
  book.asked({ node: 'a', token: '2' }).answered({ ...good('3'), isDelivered: false });
  book.disturbed('a');
  book.asked({ node: 'b', token: '2' }).answered({ ...good('2'), isAccepted: false });
  book.asked({ node: 'b', token: '1' }).answered({ ...good('1'), isAccepted: false });
  assert.deepEqual(book.told().double, []);
  book.asked({ node: 'c', token: '3' });
  book.asked({ node: 'b', token: '1' });
  assert.deepEqual(book.told().double, ['a token after its successor: a, then b']);
});

test('a request that was refused or broken off may be made again', () => {
  const book = openBook();
  book
    .asked({ node: 'a', token: '1' })
    .answered({ successor: undefined, isAccepted: false, isDelivered: true });
  book.asked({ node: 'a', token: '1' }).answered({ successor: '2', isAccepted: true, isDelivered: false });
  book.asked({ node: 'b', token: '1' });
  assert.deepEqual(book.told().double, []);
  assert.equal(book.told().lost, 1);
});
