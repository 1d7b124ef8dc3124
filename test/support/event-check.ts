import type { Queryable } from '../../server/db/pool.ts';
import { type EventType, eventCatalogue } from '../../server/events/event-types.ts';

/** The events whose data does not match the schema of their type. Empty if the database has no table of events. */
export async function listInvalidEvents(db: Queryable): Promise<unknown[]> {
  const [found] = await db.query<{ isThere: boolean }>(
    `select to_regclass('public.event') is not null as "isThere"`,
  );
  if (!found?.isThere) return [];
  const events = await db.query<{ type: EventType; data: unknown }>('select distinct type, data from event');
  return events.flatMap(({ type, data }) => {
    const { error } = eventCatalogue[type].data.safeParse(data);
    return error === undefined ? [] : [{ type, data, issues: error.issues }];
  });
}
