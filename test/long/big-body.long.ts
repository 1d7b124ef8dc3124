import assert from 'node:assert/strict';
import { test } from 'node:test';
import { passBody } from './big-body.ts';

test('5 GB up and 5 GB down arrive unchanged, and the service grows by less than 50 MB', async (t) => {
  const passages = await passBody(5 * 1024);
  for (const [way, { sent, received, grownMb, mbPerSecond }] of Object.entries(passages)) {
    t.diagnostic(`${way}: grew by ${grownMb.toFixed(1)} MB at ${mbPerSecond.toFixed(0)} MB/s`);
    assert.equal(received, sent);
    assert.ok(grownMb < 50, `${way}: ${grownMb}`);
  }
});
