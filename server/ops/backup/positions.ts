import { writeCommandAudit } from '../../activity/audit.ts';
import type { Db, Tx } from '../../db/pool.ts';
import { endSignIns } from '../../users/users.ts';

/**
 * Raises positions after a database went back in time, by a restore or by a failover that lost commits.
 *
 * Positions and row numbers of the lost time would be assigned again to other rows, and no client could detect that. So all of
 * them continue 2^32 higher: earlier cursors, positions of the feed and numbers stay valid, those of the lost time match
 * nothing, and every new change follows both.
 *
 * The audit log's positions stay: it has no gaps, and `audit verify --head` reports that its end is lost.
 */
const step = 2 ** 32;
const action = 'database.restored';

export type Raised = { datasets: number };
/** The time of the previous call, if no position was assigned since. */
type RaisedBefore = { raisedAt: Date };

/** Raises the positions, and ends all sessions, links and invitations: the data may have some that ended since. */
export async function raisePositions(db: Db): Promise<Raised> {
  return db.transaction(raiseAll);
}

/** As `raisePositions`, if a position was assigned since the last time. Otherwise it changes nothing. */
export async function raisePositionsOnce(db: Db): Promise<Raised | RaisedBefore> {
  return db.transaction(async (tx) => {
    // Of two simultaneous calls the second one finds the result of the first.
    await tx.query(`select pg_advisory_xact_lock(hashtextextended('raised positions', 0))`);
    const raisedAt = await findRaisedSince(tx);
    return raisedAt === undefined ? raiseAll(tx) : { raisedAt };
  });
}

async function raiseAll(tx: Tx): Promise<Raised> {
  await tx.query(`update sequencer set last_position = last_position + $1 where name = 'event'`, [step]);
  await tx.query('update dataset set last_seq = last_seq + $1', [step]);
  const [raised] = await tx.query<Raised>('select count(*) as datasets from dataset');
  // An import that was interrupted continues if the dataset still has the position in the ledger.
  await tx.query('update imported_dataset set last_seq = last_seq + $1 where last_seq > 0', [step]);
  await raiseNumbers(tx);
  await endSignIns(tx);
  const stand = await readStand(tx);
  await writeCommandAudit(tx, { action, target: 'positions', details: stand });
  return raised!;
}

/** The sequences of all tables of the service: cursors and API calls name rows by their numbers. */
async function raiseNumbers(tx: Tx): Promise<void> {
  await tx.query(
    `select setval(own.sequence, coalesce(known.last_value, 0) + $1)
     from pg_attribute as attribute
     join pg_class as relation on relation.oid = attribute.attrelid
     join pg_namespace as namespace on namespace.oid = relation.relnamespace
     cross join lateral (
       select pg_get_serial_sequence(
         format('%I.%I', namespace.nspname, relation.relname), attribute.attname
       )::regclass as sequence
     ) as own
     join pg_class as counter on counter.oid = own.sequence
     join pg_sequences as known
       on known.schemaname = namespace.nspname and known.sequencename = counter.relname
     where attribute.attidentity <> ''
       and relation.relkind in ('r', 'p')
       and relation.relnamespace = (select relnamespace from pg_class where oid = 'dataset'::regclass)`,
    [step],
  );
}

type Stand = { event_position: string; record_positions: string };

/** The sum of all assigned positions. As text: with millions of datasets it is beyond 2^53. */
async function readStand(tx: Tx): Promise<Stand> {
  const [stand] = await tx.query<Stand>(
    `select
       (select last_position::text from sequencer where name = 'event') as event_position,
       (select coalesce(sum(last_seq), 0)::text from dataset) as record_positions`,
  );
  return stand!;
}

async function findRaisedSince(tx: Tx): Promise<Date | undefined> {
  const [last] = await tx.query<{ at: Date; details: Stand }>(
    `select created_at as at, details
     from audit
     where action = $1 and environment_id is null
     order by audit.id desc
     limit 1`,
    [action],
  );
  if (last === undefined) return undefined;
  const stand = await readStand(tx);
  const isSame =
    stand.event_position === last.details.event_position &&
    stand.record_positions === last.details.record_positions;
  return isSame ? last.at : undefined;
}
