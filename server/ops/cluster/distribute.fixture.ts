// Distributes a database as a process of its own, and stops before the step with this number, to be killed:
// `node <this> <target as JSON> <step>`.

import { type DbTarget, openDb } from '../../db/pool.ts';
import { distribute } from './distribute.ts';

const [target = '', stopAt] = process.argv.slice(2);
const db = openDb(JSON.parse(target) as DbTarget);
let step = 0;
await distribute({ ...db, transaction: (work) => db.transaction(work) }, () => {
  step += 1;
  if (step < Number(stopAt)) return;
  console.log('here');
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
});
console.log('done');
await db.end();
