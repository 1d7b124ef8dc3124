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

function stop(): Promise<never> {
  console.log('here');
  return new Promise<never>(() => setInterval(() => {}, 60_000));
}

/** The sequence, which says when it has placed its rows, and never goes on. */
function stopping(sequence: Sequence): Sequence {
  return {
    name: sequence.name,
    async place(tx, given) {
      await sequence.place(tx, given);
      return stop();
    },
  };
}

/** The database, which says when entries are to be removed, or are removed without a commit, and never goes on. */
function stoppingAt(db: Db, at: Stop): Db {
  return {
    ...db,
    async query(text, values) {
      if (!text.startsWith('delete from dataset_outbox')) return db.query(text, values);
      if (at === 'copied') return stop();
      return db.transaction(async (tx) => {
        await tx.query(text, values);
        return stop();
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
    await Promise.all(
      [auditSequence, eventSequence].map((one) =>
        at === 'placed' ? placeNext(db, stopping(one)) : placeNext(stoppingAt(db, at as Stop), one),
      ),
    );
  setInterval(() => {}, 60_000);
}
