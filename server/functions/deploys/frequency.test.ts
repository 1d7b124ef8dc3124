import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatFrequency, readFrequency } from './frequency.ts';

const secondsOf = (text: string) => {
  const read = readFrequency(text);
  return 'fault' in read ? undefined : read.seconds;
};

test('a frequency is a number and a unit, or one of a few names, with every in front or not', () => {
  const known: [string, number][] = [
    ['every hour', 3_600],
    ['every 1h', 3_600],
    ['every 5 minutes', 300],
    ['every 5m', 300],
    ['EVERY  half hour', 1_800],
    ['every quarter hour', 900],
    ['every half day', 43_200],
    ['every day', 86_400],
    ['every week', 604_800],
    ['every month', 2_592_000],
    ['30s', 30],
    ['every 1.5 hours', 5_400],
    ['2 weeks', 1_209_600],
  ];
  assert.deepEqual(
    known.map(([text]) => [text, secondsOf(text)]),
    known,
  );
});

test('a frequency that is invalid, too high or too low is refused with a reason', () => {
  for (const text of [
    '',
    'every',
    '* * * * *',
    'every 29s',
    'every 0 hours',
    'hourly',
    '-5m',
    'every 400 days',
    '5 fortnights',
  ])
    assert.ok('fault' in readFrequency(text), text);
});

test('the response has the text without every, with names as numbers', () => {
  const answered = ['every 2 hours', '15m', 'every month', 'every half day'].map((text) =>
    readFrequency(text),
  );
  assert.deepEqual(
    answered.map((read) => 'text' in read && read.text),
    ['2 hours', '15m', '30d', '12h'],
  );
  assert.deepEqual([90, 900, 7_200, 604_800].map(formatFrequency), ['90s', '15m', '2h', '7d']);
});
