// A node of its own that prunes and empties a dataset, and stops where the test says, to be killed:
// `node <this> <target as JSON> <connection> <cursor> <place to stop at>`.

import { auditSequence } from '../activity/audit-chain.ts';
import { type Db, type DbTarget, openDb } from '../db/pool.ts';
import { placeNext, type Sequence } from '../db/sequencer.ts';
import { eventSequence } from '../events/sequence.ts';
import { findDataset } from './dataset.ts';
import { pruneRecords } from './retention/prune.ts';
import { emptyDataset } from './write/delete.ts';

export const stops = ['committed', 'placed', 'copied', 'removed'] as const;
type Stop = (typeof stops)[number];

/** The sequence, which says when it is at the place, and never goes on. */
function stopping(sequence: Sequence, at: Stop): Sequence {
  const stop = () => {
    console.log('here');
    return new Promise<never>(() => setInterval(() => {}, 60_000));
  };
  return {
    name: sequence.name,
    async place(tx, given) {
      const placed = await sequence.place(tx, given);
      return at === 'placed' ? stop() : placed;
    },
    async removeCopied(db, given) {
      if (at === 'copied') return stop();
      await db.transaction(async (tx) => {
        await sequence.removeCopied?.({ ...db, ...tx } as Db, given);
        await stop();
      });
    },
  };
}

if (import.meta.main) {
  const [target = '', connection, untilCursor = '', at] = process.argv.slice(2);
  const db = openDb(JSON.parse(target) as DbTarget);
  const name = { connection: Number(connection), model: 'Row', variant: 'base' };
  const by = { environmentId: undefined, actor: 'test', target: 'test' };
  await pruneRecords(db, { ...name, untilCursor, limit: 1000, by });
  const dataset = await findDataset(db, name);
  await db.transaction((tx) => emptyDataset(tx, dataset!.id));
  if (at === 'committed') console.log('here\nhere');
  else
    await Promise.all([auditSequence, eventSequence].map((one) => placeNext(db, stopping(one, at as Stop))));
  setInterval(() => {}, 60_000);
}
