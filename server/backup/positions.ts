import { writeAudit } from '../activity/audit.ts';
import { type Db, first, type Tx } from '../db/pool.ts';
import { endSignIns } from '../users/users.ts';

/**
 * What follows from having gone back in time, as after a restored backup, or a failover that lost commits.
 *
 * Positions, and numbers of rows, that were given out in the time that is lost would be given out once more, to something
 * else, and nothing could tell it. So all go on 2^32 further: cursors, positions of the feed and numbers from before stay
 * good, those of the lost time stand for nothing, and every new change comes after both.
 *
 * The audit log's positions stay: it has no gaps, and that its end is lost is what `audit verify --head` is to tell.
 */
const step = 2 ** 32;
const action = 'database.restored';
const actor = 'command line';

export type Raised = { datasets: number };
/** When it was done already: no position was given out since. */
type RaisedBefore = { raisedAt: Date };

/** Raises them, and ends sessions, links and invitations of people, since some would be back that had ended. */
export async function raisePositions(db: Db): Promise<Raised> {
  return db.transaction(raiseAll);
}

/** As `raisePositions`, where a position was given out since the last time. Otherwise it changes nothing. */
export async function raisePositionsOnce(db: Db): Promise<Raised | RaisedBefore> {
  return db.transaction(async (tx) => {
    // Of two at once the other one finds that it was done.
    await tx.query(`select pg_advisory_xact_lock(hashtextextended('raised positions', 0))`);
    const raisedAt = await findRaisedSince(tx);
    return raisedAt === undefined ? raiseAll(tx) : { raisedAt };
  });
}

async function raiseAll(tx: Tx): Promise<Raised> {
  await tx.query(`update sequencer set last_position = last_position + $1 where name = 'event'`, [step]);
  const [raised] = await tx.query<Raised>(
    `with raised as (
       update dataset set last_seq = last_seq + $1 returning id
     )
     select count(*) as datasets from raised`,
    [step],
  );
  // An import that was cut off goes on where the dataset still has the position that it noted.
  await tx.query('update imported_dataset set last_seq = last_seq + $1 where last_seq > 0', [step]);
  await raiseNumbers(tx);
  await endSignIns(tx);
  const stand = await readStand(tx);
  await writeAudit(tx, { environmentId: undefined, actor, action, target: 'positions', details: stand });
  return raised!;
}

/** The numbers of rows, of all tables of ours: a cursor names its dataset by one, and so does a call its endpoint. */
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

/** How far positions have been given out. As text: the sum is beyond 2^53 where there are millions of datasets. */
async function readStand(tx: Tx): Promise<Stand> {
  const [stand] = await tx.query<Stand>(
    `select
       (select last_position::text from sequencer where name = 'event') as event_position,
       (select coalesce(sum(last_seq), 0)::text from dataset) as record_positions`,
  );
  return stand!;
}

async function findRaisedSince(tx: Tx): Promise<Date | undefined> {
  const last = first(
    await tx.query<{ at: Date; details: Stand }>(
      `select created_at as at, details
       from audit
       where action = $1 and environment_id is null
       order by audit.id desc
       limit 1`,
      [action],
    ),
  );
  if (last === undefined) return undefined;
  const stand = await readStand(tx);
  const isSame =
    stand.event_position === last.details.event_position &&
    stand.record_positions === last.details.record_positions;
  return isSame ? last.at : undefined;
}
