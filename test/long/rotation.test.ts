// Slow: a short form of a test of minutes.
// In a process of its own: loads and kills must not change the state of other tests.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rotateUnderLoad } from './rotation.ts';

test('a rotation under load fails no call, survives a kill, and leaves the old master key unneeded', async () => {
  const { calls, failures, rewrapped } = await rotateUnderLoad({
    rotations: 1,
    connections: 60,
    pauseMs: 25,
  });
  assert.deepEqual(failures, []);
  assert.ok(calls > 100 && rewrapped > 0);
});
