import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import type { Db } from '../db/pool.ts';
import { createLog } from '../log.ts';
import type { Operation } from './operations.ts';
import { createActivity } from './writer.ts';

export type Logged = Partial<Operation> & { at: string };

/** Logs each at its time, and waits until all are in the database: a stop may end before. */
export async function logAll(db: Db, entries: Logged[]): Promise<void> {
  const [before] = await db.query<{ count: number }>('select count(*) as count from operation');
  let atMs = 0;
  const activity = createActivity({
    db,
    log: createLog({ level: 'silent', format: 'json' }),
    settings: { sampleRate: 1 },
    nowMs: () => atMs,
  });
  for (const { at, ...more } of entries) {
    atMs = Date.parse(at);
    activity.log({ environmentId: 1, type: 'proxy', status: 'success', ...more });
  }
  await activity.stop();
  for (;;) {
    assert.equal(activity.dropped, 0);
    const [now] = await db.query<{ count: number }>('select count(*) as count from operation');
    if (now!.count >= before!.count + entries.length) return;
    await pause(10);
  }
}
