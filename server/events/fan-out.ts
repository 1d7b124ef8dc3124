/**
 * Assigns events to endpoints: rows of `delivery`, and the lanes that keep their order.
 *
 * Owns: the choice of endpoints. Does not own: endpoints and the sending (`deliveries/`), and a connection's own
 * address, which is stored with the event (`outbox.ts`).
 */
import type { Queryable } from '../db/pool.ts';
import { alertDelayS } from './alerts.ts';
import { compatTypes } from './compat-types.ts';

const compat = Object.entries(compatTypes);

/** The parameters $1 and $2 of `placedEvents`. */
export const compatParameters = [
  compat.map(([type]) => type),
  compat.map(([, rule]) => rule.switch ?? null),
] as const;

/**
 * SQL: the events that match `where`, each with its lane, and whether the addresses of the settings receive it. $1 and
 * $2 are `compatParameters`. A lane belongs to a connection; all events without a connection share one. If the hashes
 * of two connections collide, they share a lane, and their events wait for each other. At an endpoint for alerts, a lane
 * belongs to a type and an integration: one message reports all its waiting events.
 */
export const placedEvents = (where: string) => `
  select
    event.id,
    event.environment_id,
    event.position,
    event.type,
    event.created_at,
    coalesce(
      -- The bits of the hash that a JavaScript number can hold.
      hashtextextended(
        (event.data ->> 'provider_config_key') || E'\\n' || (event.data ->> 'connection_id'),
        0
      ) & 9007199254740991,
      0
    ) as lane,
    hashtextextended(
      event.type || E'\\n' || coalesce(event.data ->> 'provider_config_key', ''),
      0
    ) & 9007199254740991 as alert_lane,
    compat.type is not null
      and coalesce((to_jsonb(event_settings) ->> compat.switch)::boolean, true) as is_compat,
    event.override
  from event
  left join unnest($1::text[], $2::text[]) as compat (type, switch)
    on compat.type = event.type
  left join event_settings
    on event_settings.environment_id = event.environment_id
  where ${where}`;

/** SQL: the lane of a placed event at an endpoint. */
export const laneAtEndpoint = `case endpoint.format when 'standard' then placed.lane else placed.alert_lane end`;

/** SQL: whether an endpoint of the kind `events` is subscribed to the type of a placed event. */
export const isSubscribed = `(
  cardinality(endpoint.types) = 0
  or placed.type = any (endpoint.types)
  or split_part(placed.type, '.', 1) || '.*' = any (endpoint.types)
)`;

/**
 * Queues the events of a range of positions for their endpoints, in the transaction that gives them these positions.
 * Returns the number of deliveries. A second call changes nothing.
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
  // The row of a lane is locked although it does not change: a node that finds a lane empty removes it.
  const [result] = await tx.query<{ count: number }>(
    `with placed as materialized (${placedEvents(range)}), wanted as (
       select
         placed.id,
         placed.environment_id,
         placed.position,
         ${laneAtEndpoint} as lane,
         placed.created_at,
         endpoint.id as endpoint
       from placed
       join endpoint
         on endpoint.environment_id = placed.environment_id
         and endpoint.kind in ('events', 'primary', 'secondary')
       where endpoint.deleted_at is null
         and endpoint.disabled_at is null
         and case endpoint.kind
           when 'events' then ${isSubscribed}
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
       select
         endpoint_id,
         lane,
         min(queued_at)
           + case endpoint.format when 'standard' then interval '0' else interval '${alertDelayS} seconds' end
       from queued
       join endpoint on endpoint.id = queued.endpoint_id
       group by endpoint_id, lane, endpoint.format
       order by endpoint_id, lane
       on conflict on constraint delivery_lane_pkey do update set due_at = delivery_lane.due_at
     )
     select count(*) as count
     from queued`,
    values,
  );
  return result?.count ?? 0;
}
