import assert from 'node:assert/strict';
import { test } from 'node:test';
import { killInTurn } from './kills.ts';

test('fifty kills of the service or PostgreSQL lose nothing acknowledged and leave exact counters', async () => {
  const victims = Array.from({ length: 50 }, (_, n) => (n % 2 === 0 ? 'service' : 'postgres'));
  const { saved, pruned } = await killInTurn(victims, 2);
  assert.ok(saved > 10_000 && pruned > 1000);
});
