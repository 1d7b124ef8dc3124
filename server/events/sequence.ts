import type { Placed, Sequence } from '../db/sequencer.ts';
import { fanOut } from './fan-out.ts';

/** The maximum number of events in one step. */
const maxEvents = 1_000;
/**
 * The approximate number of deliveries in one step: a tenth of a second of work, for which readers of the feed wait.
 */
const maxDeliveries = 2_500;

/**
 * Gives events their positions in the feed, in the order in which the events of a step were written: see `Sequence`.
 * With its position an event gets its deliveries.
 */
export const eventSequence: Sequence = {
  name: 'event',
  async place(tx, { lastPosition, from }) {
    // Some events may be removed with their environment meanwhile. Locked events stay, and only these get a position.
    const [found] = await tx.query<{ count: number; seen: number }>(
      `with oldest as materialized (
         select id, environment_id, ordinal
         from event
         where position is null and written_in >= $2::xid8
         order by ordinal
         limit $3
         for update skip locked
       ), reached as (
         select environment_id, count(*) as endpoints
         from endpoint
         where environment_id in (select environment_id from oldest)
           and kind in ('events', 'primary', 'secondary')
           and deleted_at is null
           and disabled_at is null
         group by environment_id
       ), ranked as (
         select
           oldest.id,
           row_number() over (order by oldest.ordinal) as rank,
           sum(1 + coalesce(reached.endpoints, 0)) over (order by oldest.ordinal) as deliveries
         from oldest
         left join reached on reached.environment_id = oldest.environment_id
       ), placed as (
         update event
         set position = $1 + ranked.rank
         from ranked
         where event.id = ranked.id
           and (ranked.rank = 1 or ranked.deliveries <= $4)
         returning event.id
       )
       select (select count(*) from placed) as count, (select count(*) from oldest) as seen`,
      [lastPosition, from, maxEvents, maxDeliveries],
    );
    const { count, seen } = found ?? { count: 0, seen: 0 };
    if (count > 0) await fanOut(tx, { afterPosition: lastPosition, upTo: lastPosition + count });
    return { count, isMore: count < seen || seen === maxEvents } satisfies Placed;
  },
};
