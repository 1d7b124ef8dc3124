import type { Queryable } from '../../server/db/pool.ts';
import { type EventType, eventCatalogue } from '../../server/events/event-types.ts';

/** Events that were really raised and carry anything else than their type says; none where there is no such table. */
export async function listMisfits(db: Queryable): Promise<unknown[]> {
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
