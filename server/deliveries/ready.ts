import type { Db } from '../db/pool.ts';

/**
 * Endpoints that something may be sent to by `now`, of the next `maxLooked` after `after` for which something waits;
 * after which to look next, 0 where these were the last; and the database's time, in milliseconds since the epoch.
 *
 * They are found by jumping along the index of lanes, whose rows exist only while something waits: with nothing to do
 * that is one jump, with a million waiting deliveries as many as endpoints, and with any number of endpoints whose
 * breaker is open no more than `maxLooked`.
 */
export async function findReady(
  db: Db,
  of: { now: Date; after: number; maxOfEndpoint: number; maxLooked: number },
): Promise<{ ready: number[]; lookOnAfter: number; databaseMs: number }> {
  const rows = await db.query<{ lookOnAfter: number; databaseMs: number; id: number | null }>(readySql, [
    ...[of.now, of.after, of.maxOfEndpoint, of.maxLooked],
  ]);
  const [looked] = rows;
  if (looked === undefined) throw new Error('A statement without a condition had no row.');
  return {
    ready: rows.flatMap(({ id }) => id ?? []),
    lookOnAfter: looked.lookOnAfter,
    databaseMs: looked.databaseMs,
  };
}

// A probe needs no lane that is due: by the time of its attempts alone, the only lane of an endpoint that is back would
// wait up to an hour.
export const readySql = `
  with recursive busy (endpoint_id, nth) as (
    (select endpoint_id, 1 from delivery_lane where endpoint_id > $2 order by endpoint_id limit 1)
    union all
    select next.endpoint_id, busy.nth + 1
    from busy
    cross join lateral (
      select delivery_lane.endpoint_id
      from delivery_lane
      where delivery_lane.endpoint_id > busy.endpoint_id
      order by delivery_lane.endpoint_id
      limit 1
    ) as next
    where busy.nth < $4
  ), ready as (
    select endpoint.id
    from busy
    join endpoint on endpoint.id = busy.endpoint_id
    where endpoint.deleted_at is null
      and endpoint.disabled_at is null
      and coalesce(endpoint.open_until <= $1, true)
      and coalesce(endpoint.paused_until <= $1, true)
      and (
        select endpoint.open_until is not null or due_at <= greatest($1, now())
        from delivery_lane
        where delivery_lane.endpoint_id = busy.endpoint_id
          and coalesce(lease_until <= clock_timestamp(), true)
        order by due_at
        limit 1
      )
      and (
        select count(*)
        from delivery_lane
        where delivery_lane.endpoint_id = busy.endpoint_id
          and owner is not null
          and lease_until > clock_timestamp()
      ) < case when endpoint.open_until is null then $3::bigint else 1 end
  )
  select
    looked.last as "lookOnAfter",
    extract(epoch from clock_timestamp())::float8 * 1000 as "databaseMs",
    ready.id
  from (select coalesce(max(endpoint_id) filter (where nth = $4), 0) as last from busy) as looked
  left join ready on true`;
