import { sql } from 'kysely';
import { type Queryable, tables } from '../db/pool.ts';
import { countedRows, countedSince, isCounted, isPartial, keptFrom, partsOf } from './counts.ts';
import { fits } from './fits.ts';
import type { OperationFilter } from './operations.ts';
import { entriesWholeSince, type Kept, type Range } from './series.ts';

type HourCount = { hour: Date; status: string; count: number };

const hourMs = 3_600_000;

/**
 * How many there were in each hour, by status; hours without any are left out. Oldest first. From the counts, and from
 * entries where counts cannot answer the filter or are not complete yet. `isAtLeast`: some of the entries are not kept, or
 * some were counted without the name.
 */
export async function countOperations(
  q: Queryable,
  { filter, kept, now }: { filter: OperationFilter & Range; kept: Kept; now: Date },
): Promise<{ hours: HourCount[]; isAtLeast: boolean }> {
  const isWhole = filter.from.getTime() >= entriesWholeSince(filter, { kept, now });
  if (!isCounted(filter)) return { hours: await countEntries(q, filter), isAtLeast: !isWhole };
  const since = Math.max(await countedSince(q, filter), keptFrom(hourMs / 1000, now.getTime()));
  const { from, to } = filter;
  const limit = since <= from.getTime() ? from.getTime() : Math.ceil(since / hourMs) * hourMs;
  const border = new Date(Math.min(limit, to.getTime()));
  const hasEntries = border > from;
  const entries = hasEntries ? await countEntries(q, { ...filter, to: border }) : [];
  const parts = partsOf({ from: border.getTime(), to: to.getTime() }, hourMs / 1000, now.getTime());
  const query = sql<HourCount>`
    select date_trunc('hour', begins_at, 'UTC') as hour, status, sum(count)::bigint as count
    from (${countedRows(filter, parts)}) as counted
    where is_wanted
    group by 1, status
    order by 1, status`;
  return {
    hours: [...entries, ...(await q.run({ compile: () => query.compile(tables) }))],
    isAtLeast: (hasEntries && !isWhole) || (await isPartial(q, { filter, parts })),
  };
}

function countEntries(db: Queryable, filter: OperationFilter & Range): Promise<HourCount[]> {
  return db.run(
    tables
      .selectFrom('operation')
      .where('environment_id', '=', filter.environmentId)
      .where('created_at', '>=', filter.from)
      .where('created_at', '<', filter.to)
      .where(fits(filter, filter))
      .select(({ fn, val, cast, ref }) => [
        fn<Date>('date_trunc', [cast(val('hour'), 'text'), ref('created_at'), cast(val('UTC'), 'text')]).as(
          'hour',
        ),
        'status',
        fn.countAll<number>().as('count'),
      ])
      .groupBy(['hour', 'status'])
      .orderBy('hour')
      .orderBy('status'),
  );
}
