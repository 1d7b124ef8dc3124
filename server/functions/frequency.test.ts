import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readFrequency } from './frequency.ts';

test('a frequency is read as people write it', () => {
  const written: Record<string, number> = {
    'every 30s': 30,
    'every 5 minutes': 300,
    'Every 5m': 300,
    '15m': 900,
    'every hour': 3600,
    'every 1h': 3600,
    'every 2 hours': 7200,
    'every half hour': 1800,
    'every quarter hour': 900,
    'every half day': 43_200,
    'every day': 86_400,
    '1d': 86_400,
    'every week': 604_800,
    'every month': 2_592_000,
  };
  for (const [text, seconds] of Object.entries(written)) {
    assert.deepEqual(readFrequency(text), { seconds }, text);
  }
});

test('what is no frequency, or too often, is refused with the reason', () => {
  for (const text of ['', 'every', '*/5 * * * *', 'every constructor', '5', 'every -5m', '1e9h', 'every 5 m m']) {
    const read = readFrequency(text);
    assert.ok('fault' in read && /no frequency/.test(read.fault), text);
  }
  const often = readFrequency('every 29s');
  assert.ok('fault' in often && /more often/.test(often.fault));
  const rare = readFrequency('9999999999d');
  assert.ok('fault' in rare && /longer/.test(rare.fault));
});
