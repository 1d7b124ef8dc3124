import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Book, openBook } from './token-book.ts';

const good = (successor: string) => ({ successor, isAccepted: true, isDelivered: true });
const lost = (successor: string) => ({ successor, isAccepted: true, isDelivered: false });
const refused = { successor: undefined, isAccepted: false, isDelivered: true };

/** What is double so far, without what became of the successor. */
const doubleIn = (book: Book) => book.told().double.map((text) => text.split(';')[0]);

/** A book by a clock that goes on by hand. */
function openTimedBook() {
  let ms = 0;
  const book = openBook(() => ms);
  const after = (passedMs: number) => {
    ms += passedMs;
    return book;
  };
  const killed = (node: string) => {
    book.stopped(node);
    book.goesOn(node);
  };
  return { book, after, killed };
}

test('refreshes of nodes that agree are none of them double, whoever is killed', () => {
  const { book, killed } = openTimedBook();
  book.asked({ node: 'a', token: '1' }).answered(good('2'));
  killed('a');
  book.asked({ node: 'b', token: '2' }).answered(good('3'));
  book.asked({ node: 'a', token: '3' }).answered(good('4'));
  assert.deepEqual(book.told(), {
    ...{ asked: 3, accepted: 3, refused: 0, lost: 0, repeated: 0, excused: 0, lastLooks: 0 },
    double: [],
  });
});

test('a server without a lease is found: at once, after the answer, and after the next refresh', () => {
  const { book } = openTimedBook();
  const first = book.asked({ node: 'a', token: '1' });
  book.asked({ node: 'b', token: '1' }).answered(refused);
  first.answered(good('2'));
  book.asked({ node: 'c', token: '1' }).answered(refused);
  book.asked({ node: 'a', token: '2' }).answered(good('3'));
  book.asked({ node: 'b', token: '1' }).answered(refused);
  assert.deepEqual(book.told().double, [
    'two requests with one token at once: a, then b; its successor: nobody',
    'a token whose answer had come: a, then c; its successor: nobody',
    'a token after its successor: a, then b; its successor: a (kept)',
  ]);
  assert.equal(book.told().excused, 0);
});

test('a token whose answer came when its node was killed, or stood still, is excused and counted', () => {
  const { book, after, killed } = openTimedBook();
  book.asked({ node: 'a', token: 'killed before the answer' }).answered(lost('1'));
  const late = book.asked({ node: 'a', token: 'read after the kill' });
  killed('a');
  late.answered(good('2'));
  book.asked({ node: 'b', token: 'killed after the answer' }).answered(good('3'));
  after(500).stopped('b');
  book.asked({ node: 'b', token: 'sent before it stood still' }).answered(good('4'));
  after(45_000).goesOn('b');
  const tokens = ['killed before the answer', 'read after the kill', 'killed after the answer'];
  for (const token of [...tokens, 'sent before it stood still']) book.asked({ node: 'c', token });
  const { excused, repeated, double } = book.told();
  assert.deepEqual([excused, repeated, double], [4, 4, []]);
});

test('a kill excuses its own node alone, and only what that had no time to store', () => {
  const { book, after, killed } = openTimedBook();
  book.asked({ node: 'a', token: '1' }).answered(good('2'));
  killed('b');
  book.asked({ node: 'b', token: '1' }).answered(refused);
  assert.deepEqual(doubleIn(book), ['a token whose answer had come: a, then b']);
  after(60_000);
  killed('a');
  book.asked({ node: 'c', token: '1' }).answered(refused);
  assert.equal(doubleIn(book).at(-1), 'a token whose answer had come: a, then c', 'killed a minute later');
  book.asked({ node: 'a', token: '3' }).answered(good('4'));
  book.asked({ node: 'b', token: '4' }).answered(refused);
  killed('a');
  book.asked({ node: 'c', token: '3' }).answered(refused);
  assert.equal(doubleIn(book).at(-1), 'a token whose answer had come: a, then c', 'stored, as b knew');
  assert.equal(book.told().excused, 0);
});

test('a request is under way until its node is killed', () => {
  const { book, killed } = openTimedBook();
  book.asked({ node: 'a', token: '1' });
  killed('a');
  book.asked({ node: 'b', token: '1' });
  assert.deepEqual(book.told().double, []);
  book.asked({ node: 'c', token: '1' });
  assert.deepEqual(doubleIn(book), ['two requests with one token at once: b, then c']);
});

test('a token after its successor is double whatever became of the nodes', () => {
  const { book, killed } = openTimedBook();
  book.asked({ node: 'a', token: '1' }).answered(good('2'));
  book.asked({ node: 'a', token: '2' }).answered(good('3'));
  killed('a');
  book.asked({ node: 'c', token: '3' }).answered(good('4'));
  book.asked({ node: 'b', token: '1' });
  assert.deepEqual(doubleIn(book), ['a token after its successor: a, then b']);
});

test('the token before one that was lost with its node is tried once more, whichever node brought it, and counted', () => {
  const { book, killed } = openTimedBook();
  book.asked({ node: 'three', token: '1' }).answered(good('2'));
  book.asked({ node: 'one', token: '2' }).answered(lost('3'));
  killed('one');
  book.asked({ node: 'two', token: '2' }).answered(refused);
  book.asked({ node: 'two', token: '1' }).answered(refused);
  const { excused, lastLooks, double } = book.told();
  assert.deepEqual([excused, lastLooks, double], [1, 1, []]);
});

test('a look at the token before is double without a refusal of the same node, and where the successor was used', () => {
  const { book, killed } = openTimedBook();
  book.asked({ node: 'three', token: '1' }).answered(good('2'));
  book.asked({ node: 'one', token: '2' }).answered(lost('3'));
  killed('one');
  book.asked({ node: 'two', token: '1' }).answered(refused);
  assert.deepEqual(book.told().double, [
    'a token whose answer had come: three, then two; its successor: one (lost)',
  ]);
  book.asked({ node: 'two', token: '2' }).answered(refused);
  killed('two');
  book.asked({ node: 'two', token: '1' }).answered(refused);
  assert.equal(book.told().double.length, 2, 'another process was refused');
  book.asked({ node: 'one', token: '3' });
  book.asked({ node: 'two', token: '1' });
  assert.equal(doubleIn(book).at(-1), 'a token after its successor: three, then two');
});

test('a request that was refused or broken off may be made again', () => {
  const book = openBook();
  book.asked({ node: 'a', token: '1' }).answered(refused);
  book.asked({ node: 'a', token: '1' }).answered(lost('2'));
  book.asked({ node: 'b', token: '1' });
  assert.deepEqual(book.told().double, []);
  assert.equal(book.told().lost, 1);
});
