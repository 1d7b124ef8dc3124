import assert from 'node:assert/strict';
import { test } from 'node:test';
import { relativeTime } from './time.ts';

const now = Date.parse('2026-01-31T12:00:00Z');
const [second, minute, hour, day] = [1000, 60_000, 3_600_000, 86_400_000];
const texts = (offsets: number[]) => offsets.map((offset) => relativeTime(now + offset, now));

test('a future time is rounded, so that it does not lose a unit right after it was set', () => {
  assert.deepEqual(
    texts([7 * day - second, day - second, hour - second, 30 * minute - second, 90 * second]),
    ['next week', 'tomorrow', 'in 1 hour', 'in 30 minutes', 'in 2 minutes'],
  );
  assert.deepEqual(texts([36 * minute, 23 * hour, 6 * day, 30 * second, 5 * second]), [
    'in 36 minutes',
    'in 23 hours',
    'in 6 days',
    'in 30 seconds',
    'just now',
  ]);
});

test('the age of a past time counts full units', () => {
  assert.deepEqual(texts([-(2 * hour - second), -(2 * day - second), -59 * second, -5 * second]), [
    '1 hour ago',
    'yesterday',
    '59 seconds ago',
    'just now',
  ]);
});
