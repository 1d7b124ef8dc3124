// Slow: a short form of a test of minutes.
// In a process of its own: loads and kills must not change the state of other tests.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { killInTurn } from './kills.ts';

test('a kill in the middle of saves and prunes loses nothing acknowledged and leaves exact counters', async () => {
  const { saved, pruned } = await killInTurn(['service', 'postgres'], 1);
  assert.ok(saved > 0 && pruned > 0);
});
