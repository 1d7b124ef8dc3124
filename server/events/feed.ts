import { type Db, first } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { type EventWire, eventTypes } from './catalogue.ts';

/**
 * The feed: the events of an environment by position.
 *
 * Owns: pages, and which positions are good. Does not own: how an event gets its position (`sequence.ts`), waiting for
 * the next one (`watch.ts`), removal by age (`retention.ts`).
 *
 * Positions count the events of all environments, so those of one have gaps. A position once given out is good for
 * ever: only where events behind it were removed it is refused, so that no reader misses one without being told.
 */
export type FeedPage = {
  events: EventWire[];
  /** Where to go on. */
  next: number;
  /** The last position there was, of all environments. */
  last: number;
};

type Row = { id: string; position: number; type: string; data: Record<string, unknown>; createdAt: Date };
type Ends = { last: number; newest: number; removedTo: number };

// Ranges of whole index rows, ordered by whole index rows. With `environment_id = $1 ... order by position` the planner may
// walk the index of positions through everybody else's events: 27,000 blocks for a rare type among a million, not 20.
/** Comes after every position. */
export const beyondAll = 9_223_372_036_854_775_807n;

/** All columns of one snapshot: a page never lacks what was removed while it was read. */
const ends = `
  select
    last_position as last,
    events_removed_to as "removedTo",
    coalesce((
      select position
      from event
      where
        (environment_id, position) > (environment.id, 0)
        and (environment_id, position) < (environment.id, ${beyondAll})
      order by environment_id desc, position desc
      limit 1
    ), 0) as newest
  from environment
  cross join sequencer
  where environment.id = $1 and sequencer.name = 'event'`;

const page = `
  select id, position, type, data, created_at as "createdAt"
  from event
  where (environment_id, position) > ($1, $2) and (environment_id, position) < ($1, ${beyondAll})
  order by environment_id, position
  limit $3`;

/**
 * Each type by its own index range, of which none is read further than the page is long. PostgreSQL 15 sees the end of a row
 * comparison only where its first column ends, so where less than a page is left of a type it reads on in the index, to the
 * end of the environment's events.
 */
const pageOfTypes = `
  select found.*
  from unnest($4::text[]) as wanted
  cross join lateral (
    select id, position, type, data, created_at as "createdAt"
    from event
    where
      (environment_id, type, position) > ($1, wanted, $2)
      and (environment_id, type, position) < ($1, wanted, ${beyondAll})
    order by environment_id, type, position
    limit $3
  ) as found
  order by position
  limit $3`;

/**
 * At most `limit` events after a position, oldest first; without one from the oldest that is kept. With `types` those
 * alone, and `next` passes over the others. Reading costs the same wherever the reader stands.
 *
 * Throws `invalid_cursor` for a position beyond the last one, and `cursor_expired` where an event after it was removed.
 */
export async function readFeed(
  db: Pick<Db, 'query'>,
  {
    of,
    after,
    limit,
    types,
  }: {
    of: { environmentId: number; environment: string };
    after: number | undefined;
    limit: number;
    types?: readonly string[] | undefined;
  },
): Promise<FeedPage> {
  // All of them are none in particular, and one range is read faster than one for each.
  const wanted = types !== undefined && types.length < eventTypes.length ? [types] : [];
  const rows = await db.query<Ends & (Row | { [name in keyof Row]: null })>(
    `with ends as (${ends})
     select *
     from ends
     left join lateral (${wanted.length === 0 ? page : pageOfTypes}) as page on true
     order by position`,
    [of.environmentId, after ?? 0, limit, ...wanted],
  );
  const known = first(rows);
  // The environment was removed a moment ago, and its keys with it.
  if (known === undefined) throw new AppError('unknown_account');
  const { last, newest, removedTo } = known;
  if (after !== undefined && after > last) {
    throw new AppError(
      'invalid_cursor',
      '`after` is no position of this feed: send next_after of an earlier answer.',
    );
  }
  if (after !== undefined && after < removedTo) {
    throw new AppError(
      'cursor_expired',
      'Events after this position were removed by age. Leave `after` out to go on with the oldest that is kept.',
    );
  }
  const found = rows.filter((row): row is Ends & Row => row.id !== null);
  const end = found.length === limit ? found.at(-1)?.position : undefined;
  return {
    events: found.map(({ id, type, data, createdAt }) => ({
      id,
      type,
      environment: of.environment,
      created_at: createdAt.toISOString(),
      data,
    })),
    next: end ?? Math.max(after ?? 0, newest, removedTo),
    last,
  };
}
