// A node of its own that runs retention, a moment at each step, until it is killed: `node <this> <target as JSON>`.

import { setTimeout as sleep } from 'node:timers/promises';
import { type Db, type DbTarget, openDb } from '../db/pool.ts';
import { startJobs } from '../jobs/jobs.ts';
import { recordJobs } from './retention/retention.ts';

const db = openDb(JSON.parse(process.argv[2] ?? '') as DbTarget);
const slow: Db = {
  ...db,
  async transaction(work, mode) {
    await sleep(30);
    return db.transaction(work, mode);
  },
};
const jobs = await startJobs(db, {
  onError: console.error,
  rhythm: { pollS: 1, heartbeatS: 10, superviseS: 1 },
});
for (const job of recordJobs(slow)) await jobs.work(job);
await jobs.send('records.retention', {});
