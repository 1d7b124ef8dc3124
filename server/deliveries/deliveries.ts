/**
 * Deliveries as callers see them: listed, read, and sent again on request.
 *
 * Neighbours: `delivery-routes.ts` has the routes, `worker.ts` sends, `settle.ts` stores outcomes, `endpoints.ts` owns the
 * endpoints and describes the folder.
 */
import { first, type Queryable, type Tx } from '../db/pool.ts';
import { compatParameters, isSubscribed, laneAtEndpoint, placedEvents } from '../events/fan-out.ts';
import { beyondAll } from '../events/feed.ts';

export const deliveryStatuses = ['waiting', 'delivered', 'dead'] as const;
type DeliveryStatus = (typeof deliveryStatuses)[number];

/** The state of an event at an endpoint. */
export type Delivery = {
  readonly id: number;
  readonly endpoint: number;
  readonly status: DeliveryStatus;
  readonly attempts: number;
  readonly eventId: string;
  readonly type: string;
  readonly integration: string | null;
  readonly connection: string | null;
  readonly createdAt: Date;
  readonly queuedAt: Date;
  readonly lastAttemptAt: Date | null;
  readonly lastAttempt: unknown;
  readonly settledAt: Date | null;
};

/** Deliveries that one call examines for those of a type: no index has both. */
const maxLooked = 5_000;

const columns = `
  delivery.id,
  delivery.endpoint_id as endpoint,
  delivery.status,
  delivery.attempts,
  event.id as "eventId",
  event.type,
  event.data ->> 'provider_config_key' as integration,
  event.data ->> 'connection_id' as connection,
  event.created_at as "createdAt",
  delivery.queued_at as "queuedAt",
  delivery.last_attempt_at as "lastAttemptAt",
  delivery.last_attempt as "lastAttempt",
  delivery.settled_at as "settledAt"`;

/** Reads a block once; a join reads the index again for each delivery, but ends with a page of those of a type. */
const eventsOfLooked = `
  event as materialized (select * from event where id = any(array(select event_id from looked))),`;

/**
 * The deliveries before `before`, newest first, without those of deleted endpoints. `next` is the `before` of the next page;
 * undefined: this is the last one. With a type, a page may be short or empty although more pages follow.
 */
export async function listDeliveries(
  db: Queryable,
  by: {
    environmentId: number;
    endpoint?: number | undefined;
    status?: DeliveryStatus | undefined;
    type?: string | undefined;
    before?: number | undefined;
    limit: number;
  },
): Promise<{ deliveries: Delivery[]; next: number | undefined }> {
  const { environmentId, endpoint, status, type, before, limit } = by;
  const maxRead = type === undefined ? limit : maxLooked;
  const values: unknown[] = [environmentId, before ?? Number.MAX_SAFE_INTEGER, maxRead, limit];
  const ofEndpoint = endpoint === undefined ? '' : `and delivery.endpoint_id = $${values.push(endpoint)}`;
  const ofType = type === undefined ? '' : `where event.type = $${values.push(type)}`;
  // The indexes are ordered for each status; together they give at most a page of rows for each. The status is hidden from
  // the planner: for a waiting one it might read the index of all waiting deliveries of all environments.
  const newest = (status === undefined ? deliveryStatuses : [status]).map(
    (wanted) => `
      (
        select delivery.*
        from delivery
        join endpoint on endpoint.id = delivery.endpoint_id and endpoint.deleted_at is null
        where delivery.environment_id = $1
          and delivery.id < $2
          and delivery.status = (select '${wanted}')
          ${ofEndpoint}
        order by delivery.id desc
        limit $3
      )`,
  );
  const rows = await db.query<{ looked: number; oldest: number } & (Delivery | { id: null })>(
    `with looked as materialized (
       select *
       from (${newest.join(' union all ')}) as delivery
       order by delivery.id desc
       limit $3
     ),
     ${type === undefined ? eventsOfLooked : ''}
     edge as (select count(*)::integer as looked, min(id) as oldest from looked)
     select edge.*, found.*
     from edge
     left join lateral (
       select ${columns}
       from looked as delivery
       join event on event.id = delivery.event_id
       ${ofType}
       order by delivery.id desc
       limit $4
     ) as found on true
     order by found.id desc`,
    values,
  );
  const [edge] = rows;
  const deliveries = rows.filter((row) => row.id !== null);
  const last = deliveries.length === limit ? deliveries.at(-1)?.id : undefined;
  const isMoreToLook = edge !== undefined && edge.looked === maxRead;
  return { deliveries, next: last ?? (isMoreToLook ? edge.oldest : undefined) };
}

/** A delivery with its event. Undefined if the environment has none of this ID, or if its endpoint is deleted. */
export async function findDelivery(
  db: Queryable,
  { id, environmentId }: { id: number; environmentId: number },
): Promise<(Delivery & { data: Record<string, unknown> }) | undefined> {
  return first(
    await db.query<Delivery & { data: Record<string, unknown> }>(
      `select ${columns}, event.data
       from delivery
       join endpoint on endpoint.id = delivery.endpoint_id and endpoint.deleted_at is null
       join event on event.id = delivery.event_id
       where delivery.id = $1 and delivery.environment_id = $2`,
      [id, environmentId],
    ),
  );
}

/** SQL: a replay does not wait for the time between two alerts. A lane with failures keeps the time of its next attempt. */
const hastenUnfailed = `
  due_at = case delivery_lane.failures
    when 0 then least(delivery_lane.due_at, excluded.due_at)
    else delivery_lane.due_at
  end`;

/** The maximum number of events that one call replays. */
export const maxReplayed = 1_000;
/** The maximum number of events that one call examines, so that a range with few matches takes no longer. */
const maxLookedAt = 10_000;

/** A range of events. All given conditions apply. */
export type ReplayRange = {
  /** Events after this position of the feed. */
  readonly after: number;
  /** Inclusive. */
  readonly from?: Date | undefined;
  /** Exclusive. */
  readonly to?: Date | undefined;
  /** Only events that have not arrived at the endpoint. */
  readonly undeliveredOnly: boolean;
};

/**
 * Queues one delivery again, under the ID of its event and with the full time for attempts. False if it does not exist. A
 * delivery that waits stays as it is.
 */
export async function replayOne(
  tx: Tx,
  { id, environmentId, now }: { id: number; environmentId: number; now: Date },
): Promise<boolean> {
  const [found] = await tx.query<{ status: string; endpoint: number; lane: number }>(
    `select delivery.status, delivery.endpoint_id as endpoint, delivery.lane
     from delivery
     join endpoint on endpoint.id = delivery.endpoint_id
     where delivery.id = $1
       and delivery.environment_id = $2
       and endpoint.deleted_at is null
     for no key update of delivery`,
    [id, environmentId],
  );
  if (found === undefined) return false;
  if (found.status === 'waiting') return true;
  await tx.query(
    `update delivery
     set status = 'waiting', attempts = 0, queued_at = $3, settled_at = null
     where id = $1 and environment_id = $2`,
    [id, environmentId, now],
  );
  await tx.query(
    `insert into delivery_lane (endpoint_id, lane, due_at)
     values ($1, $2, $3)
     on conflict on constraint delivery_lane_pkey do update set ${hastenUnfailed}`,
    [found.endpoint, found.lane, now],
  );
  return true;
}

/**
 * Queues the events of a range for an endpoint again, oldest first, at most `maxReplayed`. It includes events that were never
 * queued for the endpoint because it was disabled or did not exist, and applies the present types and settings of the
 * endpoint. Returns the number of events, and the position up to which the range is done; undefined: all of it is done.
 * Events that retention is deleting at the same time are left out.
 */
export async function replayRange(
  tx: Tx,
  by: { endpoint: { id: number; kind: string }; environmentId: number; range: ReplayRange; now: Date },
): Promise<{ count: number; doneUpTo: number | undefined }> {
  const { endpoint, environmentId, range, now } = by;
  const chosen = `
    (event.environment_id, event.position) > ($4, $5)
    and (event.environment_id, event.position) < ($4, ${beyondAll})
    and ($6::timestamptz is null or event.created_at >= $6)
    and ($7::timestamptz is null or event.created_at < $7)`;
  const isWanted =
    endpoint.kind === 'events'
      ? isSubscribed
      : `(placed.is_compat and case endpoint.kind
          when 'override' then placed.override = endpoint.url
          else placed.override is null
        end)`;
  const [result] = await tx.query<{ count: number; doneUpTo: number | null }>(
    `with placed as materialized (
       ${placedEvents(chosen)}
       order by event.environment_id, event.position
       limit $11
     ), wanted as materialized (
       select placed.id, placed.position, ${laneAtEndpoint} as lane
       from placed
       join endpoint on endpoint.id = $3 and endpoint.environment_id = $4
       left join delivery on delivery.event_id = placed.id and delivery.endpoint_id = endpoint.id
       where ${isWanted}
         and delivery.status is distinct from 'waiting'
         and not ($8 and delivery.status is not distinct from 'delivered')
       order by placed.position
       limit $9
     ), kept as materialized (
       -- Keeps each event until its delivery exists, without a wait for events that are being deleted.
       select wanted.id, wanted.position, wanted.lane
       from wanted
       join event on event.id = wanted.id
       order by wanted.position
       for key share of event skip locked
     ), queued as (
       insert into delivery (environment_id, endpoint_id, event_id, position, lane, queued_at)
       select $4, $3, id, position, lane, $10
       from kept
       order by position
       on conflict on constraint delivery_once do update
       set status = 'waiting', attempts = 0, queued_at = excluded.queued_at, settled_at = null
       returning lane
     ), opened as (
       insert into delivery_lane (endpoint_id, lane, due_at)
       select distinct $3::bigint, lane, $10::timestamptz
       from queued
       order by lane
       on conflict on constraint delivery_lane_pkey do update set ${hastenUnfailed}
     )
     select
       (select count(*) from queued) as count,
       case
         when (select count(*) from wanted) = $9 then (select max(position) from wanted)
         when (select count(*) from placed) = $11 then (select max(position) from placed)
       end as "doneUpTo"`,
    [
      ...compatParameters,
      endpoint.id,
      environmentId,
      range.after,
      range.from ?? null,
      range.to ?? null,
      range.undeliveredOnly,
      maxReplayed,
      now,
      maxLookedAt,
    ],
  );
  return { count: result?.count ?? 0, doneUpTo: result?.doneUpTo ?? undefined };
}
