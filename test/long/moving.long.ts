import assert from 'node:assert/strict';
import { test } from 'node:test';
import { moveUnderKills } from './moving.ts';

test('5,000 connections come from a peer through five kills, and none is lost or there twice', async (context) => {
  const { peer, file } = await moveUnderKills({ connections: 5_000, records: 200, kills: 5 });
  const told = ({ wholeMs, lastMs, peakBytes }: typeof peer) =>
    `${(wholeMs / 1000).toFixed(1)} s with all kills, ${(lastMs / 1000).toFixed(1)} s the last run, ${Math.ceil(peakBytes / 1024 ** 2)} MB at most`;
  context.diagnostic(`from the peer: ${told(peer)}, ${peer.requests} requests`);
  context.diagnostic(`by a file of ${Math.ceil(file.fileBytes / 1024 ** 2)} MB: ${told(file)}`);
  // One for each connection and one for its models; a killed run has read at most what was under way more, and lists all again.
  assert.ok(peer.requests < 2 * 5_000 + 2_000, `${peer.requests} requests`);
});
