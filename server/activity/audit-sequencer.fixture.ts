// A node's sequencer of the audit log as a process of its own, to be killed. With `hold` it takes one step, says so, and
// never commits it.

import { openDb } from '../db/pool.ts';
import { keepPlacing, placeNext } from '../db/sequencer.ts';
import { auditSequence } from './audit-chain.ts';

const [, , url = '', mode] = process.argv;
const db = openDb({ url }, { maxConnections: 1 });
if (mode === 'hold') {
  const holding = new Promise<never>(() => setInterval(() => {}, 60_000));
  await placeNext(db, {
    ...auditSequence,
    async place(tx, at) {
      const count = await auditSequence.place(tx, at);
      console.log('placed');
      await holding;
      return count;
    },
  });
} else {
  console.log('placing');
  keepPlacing(db, { sequences: [auditSequence], everyMs: 1, onError: (error) => console.error(error) });
}
