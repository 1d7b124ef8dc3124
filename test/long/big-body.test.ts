// Slow: a short form of a test of minutes.
// In a process of its own: loads and kills must not change the state of other tests.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { passBody } from './big-body.ts';

test('256 MB up and down arrive unchanged, and the service hardly grows', async (t) => {
  const passages = await passBody(256);
  for (const [way, { sent, received, grownMb }] of Object.entries(passages)) {
    t.diagnostic(`${way}: grew by ${grownMb.toFixed(1)} MB`);
    assert.equal(received, sent);
    // Bodies whose buffers are left to wait take 38 to 50 MB.
    assert.ok(grownMb < 35, `${way}: ${grownMb}`);
  }
});
