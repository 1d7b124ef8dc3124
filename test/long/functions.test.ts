import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runMany } from './functions.ts';

test('forty connections are all synced in their turn, none twice at a time', async () => {
  const { succeeded, otherwise, overlaps } = await runMany({ connections: 40, seconds: 10 });
  assert.ok(succeeded > 0);
  assert.deepEqual([otherwise, overlaps], [0, 0]);
});
