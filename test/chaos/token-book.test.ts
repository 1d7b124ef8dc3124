import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Book, openBook } from './token-book.ts';

const good = (successor: string) => ({ successor, error: undefined, isAccepted: true, isDelivered: true });
const lost = (successor: string) => ({ ...good(successor), isDelivered: false });
const failed = (error: string) => ({ successor: undefined, error, isAccepted: false, isDelivered: true });
const refused = failed('invalid_grant');

/** What is double so far, without what became of the successor. */
const doubleIn = (book: Book) => book.told().double.map((text) => text.split(';')[0]);

const leaseMs = 35_000;
const storeMs = 5_000;

/** A book by a clock that goes on by hand. */
function openTimedBook() {
  let ms = 0;
  const book = openBook({ leaseMs, storeMs }, () => ms);
  const after = (passedMs: number) => {
    ms += passedMs;
    return book;
  };
  const killed = (node: string) => {
    book.stopped(node);
    book.ended(node);
  };
  return { book, after, killed };
}

test('no refresh of nodes that agree is double, whichever node is killed', () => {
  const { book, killed } = openTimedBook();
  book.asked({ node: 'a', token: '1' }).answered(good('2'));
  killed('a');
  book.asked({ node: 'b', token: '2' }).answered(good('3'));
  book.asked({ node: 'a', token: '3' }).answered(good('4'));
  assert.deepEqual(book.told(), {
    asked: 3,
    accepted: 3,
    refused: 0,
    underWay: 0,
    stops: 1,
    lost: 0,
    repeated: 0,
    excused: 0,
    lastLooks: 0,
    double: [],
    brokenOff: [],
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
  const dying = book.asked({ node: 'a', token: 'killed before the answer' });
  const late = book.asked({ node: 'a', token: 'read after the kill' });
  killed('a');
  dying.answered(lost('1'));
  late.answered(good('2'));
  book.asked({ node: 'b', token: 'killed after the answer' }).answered(good('3'));
  after(500).stopped('b');
  book.asked({ node: 'b', token: 'sent before it stood still' }).answered(good('4'));
  after(45_000).goesOn('b');
  const tokens = ['killed before the answer', 'read after the kill', 'killed after the answer'];
  for (const token of [...tokens, 'sent before it stood still']) book.asked({ node: 'c', token });
  const { excused, repeated, double, brokenOff } = book.told();
  assert.deepEqual([excused, repeated, double, brokenOff], [4, 4, [], []]);
});

test('no stop excuses a request that is made before the lease of a stopped node can have ended', () => {
  const { book, after, killed } = openTimedBook();
  book.asked({ node: 'a', token: 'answered' }).answered(good('2'));
  book.asked({ node: 'a', token: 'under way' });
  after(10).stopped('a');
  after(1_000).asked({ node: 'b', token: 'answered' }).answered(refused);
  assert.deepEqual(doubleIn(book), ['a token again within the lease: a, then b']);
  killed('a');
  after(1_000).asked({ node: 'a', token: 'under way' });
  assert.equal(doubleIn(book)[1], 'a token again within the lease: a, then a');
  assert.equal(book.told().excused, 0);
  book.asked({ node: 'd', token: 'in good time' }).answered(good('3'));
  killed('d');
  after(leaseMs).asked({ node: 'b', token: 'in good time' }).answered(refused);
  assert.equal(book.told().double.length, 2);
  assert.equal(book.told().excused, 1);
});

test('a node that ran on after it stood still has stored its answer', () => {
  const { book, after } = openTimedBook();
  book.asked({ node: 'a', token: '1' }).answered(good('2'));
  book.asked({ node: 'a', token: 'unanswered' });
  book.stopped('a');
  after(10_000).goesOn('a');
  after(leaseMs).asked({ node: 'b', token: '1' });
  book.asked({ node: 'b', token: 'unanswered' });
  assert.deepEqual(doubleIn(book), [
    'a token whose answer had come: a, then b',
    'two requests with one token at once: a, then b',
  ]);
  assert.equal(book.told().excused, 0);
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
  after(leaseMs);
  book.asked({ node: 'c', token: '3' }).answered(refused);
  assert.equal(doubleIn(book).at(-1), 'a token whose answer had come: a, then c', 'stored, as b knew');
  assert.equal(book.told().excused, 0);
});

test('a lost answer excuses one request, and another where that one was lost in its turn', () => {
  const { book, after, killed } = openTimedBook();
  book.asked({ node: 'a', token: '1' }).answered(good('2'));
  killed('a');
  const second = after(leaseMs).asked({ node: 'b', token: '1' });
  killed('b');
  second.answered({ ...refused, isDelivered: false });
  after(leaseMs).asked({ node: 'c', token: '1' }).answered(failed('temporarily_unavailable'));
  after(2_000).asked({ node: 'c', token: '1' }).answered(refused);
  assert.deepEqual([book.told().double, book.told().excused], [[], 1]);
  after(2_000).asked({ node: 'c', token: '1' }).answered(refused);
  assert.deepEqual(doubleIn(book), ['a token whose lost answer had been asked for again: a, then c']);
});

test('a request is under way until its node is killed', () => {
  const { book, after, killed } = openTimedBook();
  book.asked({ node: 'a', token: '1' });
  assert.equal(book.told().underWay, 1);
  killed('a');
  assert.equal(book.told().underWay, 0);
  after(leaseMs).asked({ node: 'b', token: '1' });
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

/** Token 2 was lost with node `one`, a lease ago; 1 is the token before it. */
function openAfterLoss() {
  const timed = openTimedBook();
  timed.book.asked({ node: 'three', token: '1' }).answered(good('2'));
  const dying = timed.book.asked({ node: 'one', token: '2' });
  timed.killed('one');
  dying.answered(lost('3'));
  timed.after(leaseMs);
  return timed;
}

test('the token before one that was lost with its node is tried once more, whichever node brought it, and counted', () => {
  const { book } = openAfterLoss();
  book.asked({ node: 'two', token: '2' }).answered(refused);
  book.asked({ node: 'another', token: 'of another grant' }).answered(good('of another grant, 2'));
  book.asked({ node: 'two', token: 'of another grant, 2' }).answered(good('of another grant, 3'));
  book.asked({ node: 'two', token: '1' }).answered(refused);
  const { excused, lastLooks, double } = book.told();
  assert.deepEqual([excused, lastLooks, double], [1, 1, []]);
});

test('each refusal is owed one look at the token before, by the node that was refused, soon', () => {
  const had = ['a token whose answer had come: three, then two'];
  const { book } = openAfterLoss();
  book.asked({ node: 'two', token: '2' }).answered(refused);
  book.asked({ node: 'two', token: '1' }).answered(refused);
  book.asked({ node: 'two', token: '1' }).answered(refused);
  assert.deepEqual([doubleIn(book), book.told().lastLooks], [had, 1], 'a second look');

  const late = openAfterLoss();
  late.book.asked({ node: 'two', token: '2' }).answered(refused);
  late.after(leaseMs + 1).asked({ node: 'two', token: '1' });
  assert.deepEqual(doubleIn(late.book), had, 'under another lease');

  const between = openAfterLoss();
  between.book.asked({ node: 'two', token: '2' }).answered(refused);
  between.book.asked({ node: 'three', token: '3' }).answered(failed('invalid_request'));
  between.book.asked({ node: 'two', token: '1' });
  assert.equal(between.book.told().lastLooks, 0, 'another node has asked since');
});

test('no other failure than a refusal of the grant is owed a look at the token before', () => {
  const { book } = openAfterLoss();
  book.asked({ node: 'two', token: '2' }).answered(failed('temporarily_unavailable'));
  book.asked({ node: 'two', token: '1' });
  assert.deepEqual(doubleIn(book), ['a token whose answer had come: three, then two']);
});

test('a refusal of a token that was never lost is owed no look at the token before', () => {
  const { book } = openTimedBook();
  book.asked({ node: 'a', token: '1' }).answered(good('2'));
  book.asked({ node: 'a', token: '2' }).answered(refused);
  book.asked({ node: 'a', token: '1' });
  assert.deepEqual(doubleIn(book), ['a token whose answer had come: a, then a']);
});

test('a look at the token before is double without a refusal of the same node, and where the successor was used', () => {
  const { book, killed } = openAfterLoss();
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

test('a request that was refused or broken off may be made again, and tokens that a living node broke off are told', () => {
  const { book, after } = openTimedBook();
  book.asked({ node: 'a', token: '1' }).answered(refused);
  const slow = book.asked({ node: 'a', token: '1' });
  after(30_000);
  slow.answered(lost('2'));
  book.asked({ node: 'b', token: '1' });
  const { double, lost: answers, excused, brokenOff } = book.told();
  assert.deepEqual([double, answers, excused], [[], 1, 0]);
  assert.deepEqual(brokenOff, ['a, 30000 ms after it asked']);
});

test('a provider that never replaces a token may be asked with it at any time, one request after the other', () => {
  const { book, killed } = openTimedBook();
  book.asked({ node: 'a', token: '1' }).answered(good('1'));
  killed('a');
  book.asked({ node: 'b', token: '1' }).answered(good('1'));
  assert.deepEqual(book.told().double, []);
});
