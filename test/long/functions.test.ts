// Slow: a short form of a test of minutes.
// In a process of its own: loads and kills must not change the state of other tests.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openTestDatabase } from '../support/database.ts';
import { runMany } from './functions.ts';

test('connections that are due at once are all synced, none twice at a time', async () => {
  const database = await openTestDatabase();
  const connections = 16;
  try {
    const { runs, succeeded, synced, overlaps, missed } = await runMany({
      database,
      connections,
      seconds: 1,
      quota: 'off',
      afterDeploy: (db) => db.query('update sync set next_at = now()'),
    });
    assert.ok(runs >= connections);
    assert.deepEqual([succeeded, synced, overlaps, missed], [runs, connections, 0, 0]);
  } finally {
    await database.drop();
  }
});
