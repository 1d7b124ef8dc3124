import type { Tx } from '../db/pool.ts';
import { compatParameters, isAskedFor, placedEvents } from '../events/fan-out.ts';
import { beyondAll } from '../events/feed.ts';

/** Of one call. */
export const maxReplayed = 1_000;
/** Events of one call that are looked at, so that a range of which little is wanted takes no longer. */
const maxLookedAt = 10_000;

/** Which events are meant: all conditions that are given. */
export type ReplayRange = {
  /** Those after this position of the feed. */
  readonly after: number;
  /** Inclusive. */
  readonly from?: Date | undefined;
  /** Exclusive. */
  readonly to?: Date | undefined;
  /** Those that have not arrived at the endpoint. */
  readonly undeliveredOnly: boolean;
};

/**
 * Sends one delivery again, under its event's id, with all its time before it; false where there is none. One that waits
 * is left as it is.
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
     on conflict on constraint delivery_lane_pkey do update set due_at = delivery_lane.due_at`,
    [found.endpoint, found.lane, now],
  );
  return true;
}

/**
 * Queues the events of a range for an endpoint again, oldest first and at most `maxReplayed` of them, also those that were
 * never queued for it because it was disabled or not there yet: what it asks for by its types, and what its settings let
 * through, as both are now. Answers how many, and the position up to which the range is done; undefined where all of it is.
 * Events that are removed by age at that moment are left out.
 */
export async function replayRange(
  tx: Tx,
  {
    endpoint,
    environmentId,
    range,
    now,
  }: { endpoint: { id: number; kind: string }; environmentId: number; range: ReplayRange; now: Date },
): Promise<{ count: number; doneUpTo: number | undefined }> {
  const chosen = `
    (event.environment_id, event.position) > ($4, $5)
    and (event.environment_id, event.position) < ($4, ${beyondAll})
    and ($6::timestamptz is null or event.created_at >= $6)
    and ($7::timestamptz is null or event.created_at < $7)`;
  const isWanted =
    endpoint.kind === 'events'
      ? isAskedFor
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
       select placed.id, placed.position, placed.lane
       from placed
       join endpoint on endpoint.id = $3 and endpoint.environment_id = $4
       left join delivery on delivery.event_id = placed.id and delivery.endpoint_id = endpoint.id
       where ${isWanted}
         and delivery.status is distinct from 'waiting'
         and not ($8 and delivery.status is not distinct from 'delivered')
       order by placed.position
       limit $9
     ), kept as materialized (
       -- None goes before its delivery is there, and one that goes now is not waited for.
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
       on conflict on constraint delivery_lane_pkey do update set due_at = delivery_lane.due_at
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
