import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  cellAt,
  cellMsOf,
  cellsAhead,
  cellsPerWindow,
  type Moves,
  type Priority,
  type Rule,
  SlidingWindow,
} from './sliding-window.ts';

const minute: Rule = { count: 300, burst: 60, windowMs: 60_000 };
const perAccount: Rule = { count: 60, burst: 60, windowMs: 60_000 };

function taken(
  window: SlidingWindow,
  rule: Rule,
  given: { cell: number; want: number; priority?: Priority },
): number {
  const { cell, want, priority = 'interactive' } = given;
  const tokens = window.take({ rule, priority, from: cell, to: cell, want });
  return [...tokens.values()].reduce((sum, count) => sum + count, 0);
}

/** The most that any window of the provider's holds, wherever it begins. */
function fullest(times: number[], windowMs: number): number {
  const sorted = times.toSorted((one, other) => one - other);
  let start = 0;
  let max = 0;
  for (const [end, at] of sorted.entries()) {
    while ((sorted[start] as number) <= at - windowMs) start += 1;
    max = Math.max(max, end - start + 1);
  }
  return max;
}

const step = fc.record({
  /** In cells. */
  after: fc.oneof(fc.constantFrom(0, 1, 1), fc.double({ min: 0, max: 4, noNaN: true })),
  want: fc.constantFrom(0, 1, 5, 1000, 1000),
  isBackground: fc.boolean(),
  /** Of the available tokens: used, or given back. */
  used: fc.constantFrom(0.5, 1, 1),
  /** From being sent to being answered, in cells; the provider counts at any time in between. */
  took: fc.oneof(fc.constant(0), fc.double({ min: 0, max: 15, noNaN: true })),
  counted: fc.double({ min: 0, max: 1, noNaN: true }),
  /** Whether late uses stay unwritten for now. */
  isLazy: fc.boolean(),
});
/** As in `bucket.ts`: then it is written. */
const maxCellsUnwritten = 10;

test('no window holds more than the limit, however tokens are reserved, used late or given back', () => {
  const rules = fc.constantFrom(
    minute,
    perAccount,
    { count: 7, burst: 2, windowMs: 1000 },
    { count: 1, burst: 1, windowMs: 1000 },
  );
  fc.assert(
    fc.property(rules, fc.array(step, { minLength: 100, maxLength: 150 }), (rule, steps) => {
      const cellMs = cellMsOf(rule);
      let window = new SlidingWindow();
      let now = 1_000 * cellMs;
      const times: number[] = [];
      const hand: { cell: number; priority: Priority }[] = [];
      let late: { at: number; from: number; to: number; priority: Priority }[] = [];
      for (const { after, want, isBackground, used, took, counted, isLazy } of steps) {
        now += after * cellMs;
        const cell = cellAt(rule, now);
        const moves: Moves = new Map();
        const note = (at: number, priority: Priority, by: number) => {
          const noted = moves.get(at) ?? { interactive: 0, background: 0 };
          noted[priority] += by;
          moves.set(at, noted);
        };
        const isDue = ({ at, from }: { at: number; from: number }) =>
          at <= now && (!isLazy || from < cell - maxCellsUnwritten);
        for (const { from, to, priority } of late.filter(isDue)) {
          note(from, priority, -1);
          note(to, priority, 1);
        }
        late = late.filter((one) => !isDue(one));
        const usable = hand.filter((token) => token.cell <= cell);
        const useCount = Math.round(used * usable.length);
        for (const [index, token] of usable.entries()) {
          hand.splice(hand.indexOf(token), 1);
          if (index < useCount && token.cell >= cell - 5) {
            const answeredAt = now + took * cellMs;
            times.push(now + took * counted * cellMs);
            late.push({
              at: answeredAt,
              from: token.cell,
              to: cellAt(rule, answeredAt),
              priority: token.priority,
            });
          } else note(token.cell, token.priority, -1);
        }
        window = new SlidingWindow(window.pages(cell));
        window.move(moves);
        const priority = isBackground ? 'background' : 'interactive';
        const granted = window.take({
          rule,
          priority,
          want,
          from: cell,
          to: cell + (isBackground ? 0 : cellsAhead),
        });
        for (const [at, count] of granted) {
          for (let n = 0; n < count; n += 1) hand.push({ cell: at, priority });
        }
      }
      assert.ok(
        fullest(times, rule.windowMs) <= rule.count,
        `${fullest(times, rule.windowMs)} in one window`,
      );
    }),
    { numRuns: 300 },
  );
});

/** Takes all that can be had, cell by cell; how many of each. */
function drain(rule: Rule, { cells, priority }: { cells: number; priority: Priority }): number[] {
  const window = new SlidingWindow();
  return Array.from({ length: cells }, (_, cell) => taken(window, rule, { cell, want: 10_000, priority }));
}

test('a burst is given at once, and the rest is spread over the window', () => {
  const given = drain(minute, { cells: cellsPerWindow * 4, priority: 'interactive' });
  assert.equal(given[0], minute.burst);
  // From then on there are never several cells in a row without tokens, so waits are short.
  const gaps = given.map((count, cell) => (count === 0 && given[cell + 1] === 0 ? 1 : 0));
  assert.deepEqual(gaps.filter(Boolean), []);
  assert.ok(Math.max(...given.slice(1)) <= 12);
  const last = given.slice(-(cellsPerWindow + 1)).reduce((sum, count) => sum + count, 0);
  assert.ok(last >= 290 && last <= 300, `${last} in the last window`);
});

test("an account's limit may be used up at once", () => {
  assert.deepEqual(drain(perAccount, { cells: cellsPerWindow + 2, priority: 'interactive' }), [
    60,
    ...Array<number>(cellsPerWindow).fill(0),
    60,
  ]);
});

test('background calls leave a tenth to interactive ones, at once', () => {
  const window = new SlidingWindow();
  for (let cell = 0; cell < cellsPerWindow * 3; cell += 1) {
    taken(window, minute, { cell, want: 1000, priority: 'background' });
    assert.ok(window.allowance(minute, { priority: 'interactive', cell }) >= 30);
  }
});

test('tokens that are reserved ahead go to the reservation that was made first', () => {
  const window = new SlidingWindow();
  taken(window, minute, { cell: 0, want: 60 });
  const reserve = (want: number) =>
    window.take({ rule: minute, priority: 'interactive', from: 1, to: 1 + cellsAhead, want });
  const first = [...reserve(25).keys()];
  const second = [...reserve(1).keys()];
  assert.deepEqual(first, [1, 2, 3, 4]);
  assert.deepEqual(second, [4]);
});

test('a forecast equals the tokens that can be taken then', () => {
  const window = new SlidingWindow();
  taken(window, minute, { cell: 0, want: 60 });
  taken(window, minute, { cell: 1, want: 5 });
  const forecast = window.forecast(minute, { priority: 'interactive', from: 1 });
  let sum = 0;
  for (const [index, expected] of forecast.entries()) {
    sum += taken(window, minute, { cell: index + 1, want: 10_000 });
    assert.equal(sum, expected);
  }
  assert.ok(sum > 240);
});

test('a closed window gives nothing before it opens, and has the time of its opening', () => {
  const window = new SlidingWindow();
  window.close(6_500);
  assert.deepEqual(
    window.forecast(minute, { priority: 'interactive', from: 0 }).slice(0, 5),
    [0, 0, 0, 0, 60],
  );
  assert.equal(taken(window, minute, { cell: 3, want: 1 }), 0);
  window.close(1_000);
  assert.equal(window.closedUntil, 6_500);
});
