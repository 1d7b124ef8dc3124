import { auditSequence } from '../../server/activity/audit-chain.ts';
import type { Db } from '../../server/db/pool.ts';
import { placeAll } from '../../server/db/sequencer.ts';
import { eventSequence } from '../../server/events/sequence.ts';

/** Brings all that waits into the audit log and the feed, as the sequencers of a node do it ten times a second. */
export async function placeEntries(db: Db): Promise<void> {
  for (const sequence of [auditSequence, eventSequence]) await placeAll(db, sequence);
}

/** What the owner of the table can do to the audit log and nobody else: the statements run without its triggers. */
export async function asOwnerOfAudit(db: Db, statements: string[]): Promise<void> {
  const all = [
    'alter table audit disable trigger user',
    ...statements,
    'alter table audit enable trigger user',
  ];
  await db.query(all.join(';'));
}
