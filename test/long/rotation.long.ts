import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rotateUnderLoad } from './rotation.ts';

test('ten rotations of two thousand connections under load fail no call', async () => {
  const { calls, failures, rewrapped } = await rotateUnderLoad({
    rotations: 10,
    connections: 2_000,
    pauseMs: 5,
  });
  assert.deepEqual(failures, []);
  assert.ok(calls > 5_000 && rewrapped > 9_000);
});
