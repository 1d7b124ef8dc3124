import type { Queryable } from '../../server/db/pool.ts';
import { isCluster } from './citus.ts';

/**
 * How many sessions of this database wait for a lock, of one kind where it is named, with a statement that has the text near
 * its start. The server is shared, and what others wait for there is none of a test's business.
 */
export async function countWaiting(
  db: Pick<Queryable, 'query'>,
  kind?: 'relation' | 'virtualxid',
  text = '',
): Promise<number> {
  // On each machine of a Citus cluster.
  const activity = isCluster ? 'citus_stat_activity' : 'pg_stat_activity';
  const waiting = await db.query(
    `select from ${activity}
     where datname = current_database()
       and wait_event_type = 'Lock'
       and wait_event = coalesce($1, wait_event)
       and strpos(query, $2) > 0`,
    [kind ?? null, text],
  );
  return waiting.length;
}
