import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lastRelease, upgradeUnderLoad } from './upgrade.ts';

// UPGRADE_FROM names another version than the last release, as git does.
const ref = process.env.UPGRADE_FROM ?? lastRelease();

test(`two nodes of ${ref} become two of this version while they are used, and nobody notices`, async (t) => {
  const { calls, again, failed } = await upgradeUnderLoad({ ref, calmMs: 10_000 });
  t.diagnostic(`calls: ${JSON.stringify(calls)}, made again after a 503: ${again}`);
  assert.deepEqual(failed, []);
  for (const kind of ['proxy', 'save', 'list', 'prune', 'connect', 'disconnect', 'follow'])
    assert.ok((calls[kind] ?? 0) > 20, `${kind} was under way`);
});
