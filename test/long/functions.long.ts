// FUNCTION_CONNECTIONS and FUNCTION_SECONDS say how many and how long: 1000 and 600.

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { startEmbedded } from '../../server/db/embedded/embedded.ts';
import { migrate } from '../../server/db/migrate.ts';
import { type Db, type DbTarget, openDb } from '../../server/db/pool.ts';
import { runMany } from './functions.ts';

const connections = Number(process.env.FUNCTION_CONNECTIONS ?? 1_000);
const seconds = Number(process.env.FUNCTION_SECONDS ?? 600);
/** Before, memory still grows to what it needs; a window of a minute at either end. */
const minSecondsForMemory = 300;

test(`${connections} connections are synced once a minute for ${seconds} s`, async (t) => {
  const { others, ...outcome } = await onDisk((database) =>
    runMany({ database, connections, seconds, quota: 'off', tell: (line) => t.diagnostic(line) }),
  );
  t.diagnostic(JSON.stringify(outcome));
  const { runs, succeeded, synced, overlaps, missed, memory } = outcome;
  assert.deepEqual(others.slice(0, 5), []);
  assert.deepEqual([succeeded, synced, overlaps, missed], [runs, connections, 0, 0]);
  if (seconds < minSecondsForMemory || memory.early.service === 0) return;
  assert.ok(memory.late.service <= memory.early.service * 1.1, JSON.stringify(memory));
  assert.ok(memory.late.functions <= memory.early.functions * 1.1, JSON.stringify(memory));
});

const quota = { connections: 200, seconds: 150 };
/** Google's 300 reads a minute, and the 60 that go at once. */
const allowedReads = 300 * (quota.seconds / 60) + 60;

// Each run reads twice: a third more is asked for than there is.
test("two hundred connections wait for Google's quota, and none fails", async (t) => {
  const { others, ...outcome } = await onDisk((database) =>
    runMany({ ...quota, database, quota: 'on', tell: (line) => t.diagnostic(line) }),
  );
  t.diagnostic(JSON.stringify(outcome));
  const { runs, succeeded, synced, overlaps, refused } = outcome;
  assert.deepEqual(others.slice(0, 5), []);
  assert.deepEqual([succeeded, synced, overlaps, refused], [runs, quota.connections, 0, 0]);
  assert.ok(2 * runs > allowedReads, `${runs} runs do not need to wait`);
});

/** A PostgreSQL of its own that waits for its disk, as an installation's does. */
async function onDisk<T>(work: (database: { db: Db; target: DbTarget }) => Promise<T>): Promise<T> {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'trellis-functions-database-'));
  const postgres = await startEmbedded({ dataDir });
  const target = postgres.connection;
  const db = openDb(target);
  try {
    await migrate(db);
    return await work({ db, target });
  } finally {
    await db.end();
    await postgres.stop();
    await rm(dataDir, { recursive: true, force: true });
  }
}
