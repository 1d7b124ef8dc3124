// A process that does nothing but give events their positions. Started by events.ts, with the database's address.

import { setTimeout as sleep } from 'node:timers/promises';
import { type Db, openDb } from '../../server/db/pool.ts';
import { keepPlacing } from '../../server/db/sequencer.ts';
import { eventSequence } from '../../server/events/sequence.ts';

// `node --test` without a pattern takes every file under test/ for a test.
if (process.argv[2] !== undefined && process.send) {
  const db = openDb({ url: process.argv[2] }, { maxConnections: 2 });
  /** Tells when it is in the middle of a step, after the positions are written and before they are committed. */
  const slow: Db = {
    ...db,
    transaction: (work) =>
      db.transaction(async (tx) => {
        const result = await work(tx);
        process.send?.('in a step');
        await sleep(Math.random() * 20);
        return result;
      }),
  };
  const onError = (error: unknown) => {
    throw error;
  };
  keepPlacing(slow, { sequences: [eventSequence], everyMs: 20, onError });
  process.on('disconnect', () => process.exit());
}
