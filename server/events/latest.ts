import type { Db } from '../db/pool.ts';
import type { EventWire } from './catalogue.ts';
import { beyondAll } from './feed.ts';

type Row = { id: string; position: number; type: string; data: Record<string, unknown>; createdAt: Date };

// Whole index rows, as in `feed.ts`: the planner has no other way through the events of an environment.
const page = `
  select id, position, type, data, created_at as "createdAt"
  from event
  where (environment_id, position) > ($1, 0) and (environment_id, position) < ($1, $2)
  order by environment_id desc, position desc
  limit $3`;
const pageOfTypes = `
  select found.*
  from unnest($4::text[]) as wanted
  cross join lateral (
    select id, position, type, data, created_at as "createdAt"
    from event
    where
      (environment_id, type, position) > ($1, wanted, 0)
      and (environment_id, type, position) < ($1, wanted, $2)
    order by environment_id desc, type desc, position desc
    limit $3
  ) as found
  order by position desc
  limit $3`;

/**
 * The newest events of an environment, newest first, or those before a position: for people who look. A follower reads
 * `readFeed`, which tells where it missed some. `next` is undefined where there are no older ones.
 */
export async function readLatest(
  db: Pick<Db, 'query'>,
  {
    of,
    before,
    limit,
    types,
  }: {
    of: { environmentId: number; environment: string };
    before: number | undefined;
    limit: number;
    types: readonly string[] | undefined;
  },
): Promise<{ events: EventWire[]; next: number | undefined }> {
  const rows = await db.query<Row>(types === undefined ? page : pageOfTypes, [
    of.environmentId,
    before ?? beyondAll,
    limit + 1,
    ...(types === undefined ? [] : [types]),
  ]);
  const shown = rows.slice(0, limit);
  return {
    events: shown.map(({ id, type, data, createdAt }) => ({
      id,
      type,
      environment: of.environment,
      created_at: createdAt.toISOString(),
      data,
    })),
    next: rows.length > limit ? shown.at(-1)?.position : undefined,
  };
}
