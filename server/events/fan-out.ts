import type { Queryable } from '../db/pool.ts';
import { compatTypes } from './compat-types.ts';

/**
 * Which event goes to which endpoint: rows of `delivery`, and the lanes that keep their order.
 *
 * Owns: the choice. Does not own: endpoints and the sending (`deliveries/`), and the address that a connection has
 * instead of those of the settings, which stands with the event (`outbox.ts`).
 */

const compat = Object.entries(compatTypes);
/** Parameters of `placedEvents`. */
export const compatParameters = [
  compat.map(([type]) => type),
  compat.map(([, rule]) => rule.switch ?? null),
] as const;

/**
 * The events that `where` picks, each with its lane (its connection's; without one that of all such events) and
 * whether the addresses of the settings get it. $1 and $2 are `compatParameters`. Two connections that fall into one
 * lane by their hash wait for each other, and nothing else happens.
 */
export const placedEvents = (where: string) => `
  select
    event.id,
    event.environment_id,
    event.position,
    event.type,
    event.created_at,
    coalesce(
      -- As much of the hash as a number of JavaScript holds.
      hashtextextended(
        (event.data ->> 'provider_config_key') || E'\\n' || (event.data ->> 'connection_id'),
        0
      ) & 9007199254740991,
      0
    ) as lane,
    compat.type is not null
      and coalesce((to_jsonb(event_settings) ->> compat.switch)::boolean, true) as is_compat,
    event.override
  from event
  left join unnest($1::text[], $2::text[]) as compat (type, switch)
    on compat.type = event.type
  left join event_settings
    on event_settings.environment_id = event.environment_id
  where ${where}`;

/** Whether an endpoint of the kind `events` asks for the type of a placed event. */
export const isAskedFor = `(
  cardinality(endpoint.types) = 0
  or placed.type = any (endpoint.types)
  or split_part(placed.type, '.', 1) || '.*' = any (endpoint.types)
)`;

/**
 * Queues the events of a range of positions for the endpoints that want them, in the transaction that gives them these
 * positions; how many deliveries that makes. Again, it changes nothing.
 */
export async function fanOut(
  tx: Queryable,
  { afterPosition, upTo }: { afterPosition: number; upTo: number },
): Promise<number> {
  const range = 'event.position > $3 and event.position <= $4';
  const values = [...compatParameters, afterPosition, upTo];
  await tx.query(
    `with placed as (${placedEvents(range)})
     insert into endpoint (environment_id, kind, url)
     select distinct environment_id, 'override', override
     from placed
     where is_compat and override is not null
     on conflict (environment_id, md5(url)) where kind = 'override' and deleted_at is null do nothing`,
    values,
  );
  // The row of a lane is locked although nothing in it changes: a node that finds a lane empty removes it.
  const [result] = await tx.query<{ count: number }>(
    `with placed as materialized (${placedEvents(range)}), wanted as (
       select placed.id, placed.environment_id, placed.position, placed.lane, placed.created_at, endpoint.id as endpoint
       from placed
       join endpoint
         on endpoint.environment_id = placed.environment_id
         and endpoint.kind in ('events', 'primary', 'secondary')
       where endpoint.deleted_at is null
         and endpoint.disabled_at is null
         and case endpoint.kind
           when 'events' then ${isAskedFor}
           else placed.is_compat and placed.override is null
         end
       union all
       select placed.id, placed.environment_id, placed.position, placed.lane, placed.created_at, endpoint.id
       from placed
       join endpoint
         on endpoint.environment_id = placed.environment_id
         and md5(endpoint.url) = md5(placed.override)
       where placed.is_compat
         and endpoint.kind = 'override'
         and endpoint.deleted_at is null
         and endpoint.disabled_at is null
     ), queued as (
       insert into delivery (environment_id, endpoint_id, event_id, position, lane, queued_at)
       select environment_id, endpoint, id, position, lane, created_at
       from wanted
       order by position, endpoint
       on conflict on constraint delivery_once do nothing
       returning endpoint_id, lane, queued_at
     ), opened as (
       insert into delivery_lane (endpoint_id, lane, due_at)
       select endpoint_id, lane, min(queued_at)
       from queued
       group by endpoint_id, lane
       order by endpoint_id, lane
       on conflict on constraint delivery_lane_pkey do update set due_at = delivery_lane.due_at
     )
     select count(*) as count
     from queued`,
    values,
  );
  return result?.count ?? 0;
}
