// Slow: a short form of a test of minutes.
// In a process of its own: loads and kills must not change the state of other tests.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { moveUnderKills } from './moving.ts';

test('300 connections come from a peer, and go on in a file, through kills, and none is lost or there twice', async () => {
  const { peer, file } = await moveUnderKills({ connections: 300, records: 60, kills: 1 });
  assert.ok(peer.requests < 1_500, `${peer.requests} requests`);
  assert.ok(file.fileBytes > 100_000);
});
