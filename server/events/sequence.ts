import { maxPlaced, type Sequence } from '../db/sequencer.ts';
import { fanOut } from './fan-out.ts';

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
  async place(tx, { lastPosition, from, sent: read }) {
    // Some events may be removed with their environment meanwhile. Locked events stay, and only these get a position.
    // Between events from the outbox and others, the time decides: each has the latest time of those before it.
    const [found] = await tx.query<{ count: number; seen: number; left: string[] }>(
      `with own as materialized (
         select id, environment_id, created_at, ordinal
         from event
         where position is null and written_in >= $2::xid8
         order by ordinal
         limit $3
         for update skip locked
       ), sent as materialized (
         select *
         from (
           select *, (entry ->> 'environment_id')::bigint as environment_id
           from unnest($5::uuid[], $6::jsonb[], $7::timestamptz[], $8::bigint[]) as read (id, entry, written_at, ordinal)
         ) as read
         where (select true from event where event.id = read.id) is null
           and (select true from environment where environment.id = read.environment_id)
       ), oldest as (
         select id, environment_id, row_number() over (order by latest, is_sent, ordinal) as rank
         from (
           select id, environment_id, ordinal, false as is_sent, max(created_at) over (order by ordinal) as latest
           from own
           union all
           select id, environment_id, ordinal, true, max(written_at) over (order by ordinal)
           from sent
         ) as waiting
         order by rank
         limit $3
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
           oldest.rank,
           sum(1 + coalesce(reached.endpoints, 0)) over (order by oldest.rank) as deliveries
         from oldest
         left join reached on reached.environment_id = oldest.environment_id
       ), placed as (
         update event
         set position = $1 + ranked.rank
         from ranked
         where event.id = ranked.id
           and (ranked.rank = 1 or ranked.deliveries <= $4)
         returning event.id
       ), copied as (
         insert into event (id, environment_id, type, data, created_at, position)
         select sent.id, environment_id, entry ->> 'type', entry -> 'data', written_at, $1 + ranked.rank
         from ranked
         join sent on sent.id = ranked.id
         where ranked.rank = 1 or ranked.deliveries <= $4
         returning event.id
       )
       select
         (select count(*) from placed) + (select count(*) from copied) as count,
         (select count(*) from oldest) as seen,
         array(select id::text from sent except select id::text from copied) as left`,
      [
        lastPosition,
        from,
        maxPlaced,
        maxDeliveries,
        read.map(({ id }) => id),
        read.map(({ entry }) => entry),
        read.map(({ writtenAt }) => writtenAt),
        read.map(({ ordinal }) => ordinal),
      ],
    );
    const { count, seen, left } = found ?? { count: 0, seen: 0, left: [] };
    const waiting = new Set(left);
    const copied = read.filter(({ id }) => !waiting.has(id));
    if (count > 0) await fanOut(tx, { afterPosition: lastPosition, upTo: lastPosition + count });
    const isMore = count < seen || seen === maxPlaced || read.length === maxPlaced;
    return { count, isMore, copied };
  },
};
