import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readRetryAfter } from './retry-after.ts';

const now = Date.UTC(1994, 10, 6, 8, 49, 27);

test('a Retry-After counts in seconds and in each form of a date', () => {
  for (const text of [
    '10',
    ' 10 ',
    'Sun, 06 Nov 1994 08:49:37 GMT',
    'Sunday, 06-Nov-94 08:49:37 GMT',
    'Sun Nov  6 08:49:37 1994',
  ])
    assert.equal(readRetryAfter(text, now), 10_000, text);
  assert.equal(readRetryAfter('Sun, 06 Nov 1994 08:49:07 GMT', now), 0);
});

test('an invalid Retry-After is ignored', () => {
  for (const text of [
    undefined,
    null,
    '',
    'soon',
    '3 minutes',
    '1.5 s',
    '-1',
    '1.5',
    '1e3',
    'NaN',
    'Sat, 99 Nov',
    '1994-11-06',
  ])
    assert.equal(readRetryAfter(text, now), undefined, String(text));
});
