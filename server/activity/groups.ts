import { sql } from 'kysely';
import { type Queryable, tables } from '../db/pool.ts';
import {
  type CountedSum,
  countedRows,
  countedSince,
  countedSums,
  isPartial,
  keptFrom,
  partsOf,
} from './counts.ts';
import { quantileOf } from './histogram.ts';
import type { OperationFilter } from './operations.ts';
import type { Range } from './series.ts';

/** What operations are grouped by: all of one type where it has endpoints or functions. */
export const groupings = ['integration', 'type', 'endpoint', 'function'] as const;
export type Grouping = (typeof groupings)[number];

export type Group = {
  /** '' for none, as in the table; null where it is not what they are grouped by. */
  integration: string | null;
  type: string | null;
  target: string | null;
  variant: string | null;
  count: number;
  failed: number;
  p50Ms: number | null;
  p95Ms: number | null;
};

const columnsOf: Readonly<Record<Grouping, readonly string[]>> = {
  integration: ['integration'],
  type: ['type'],
  endpoint: ['type', 'target'],
  function: ['type', 'integration', 'target', 'variant'],
};
const typeOf: Partial<Record<Grouping, string>> = { endpoint: 'delivery', function: 'run' };
const daySpanS = 86_400;
export const maxGroups = 100;

/**
 * The counts of a time by integration, type, endpoint or function, those with most failures first, `maxGroups` at most.
 * The filter must be one that counts can answer. `isAtLeast`: part of the time is from before counts are complete, or some
 * operations were counted without their name.
 */
export async function groupsOf(
  q: Queryable,
  { filter, by, now }: { filter: OperationFilter & Range; by: Grouping; now: Date },
): Promise<{ groups: Group[]; hasMore: boolean; isAtLeast: boolean }> {
  const since = Math.max(await countedSince(q, filter), keptFrom(daySpanS, now.getTime()));
  const from = Math.max(filter.from.getTime(), since);
  const parts = partsOf({ from, to: filter.to.getTime() }, daySpanS, now.getTime());
  const columns = columnsOf[by];
  const type = typeOf[by];
  const selected = ['integration', 'type', 'target', 'variant'].map((name) =>
    columns.includes(name) ? sql.ref(name) : sql`null::text as ${sql.ref(name)}`,
  );
  const query = sql<Omit<Group, 'p50Ms' | 'p95Ms'> & CountedSum>`
    select ${sql.join(selected)}, ${countedSums}
    from (${countedRows(filter, parts)}) as counted
    where is_wanted ${type === undefined ? sql`` : sql`and type = ${type}`}
    group by ${sql.join(columns.map((name) => sql.ref(`counted.${name}`)))}
    order by failed desc, count desc, ${sql.join(columns.map((name) => sql.ref(`counted.${name}`)))}
    limit ${maxGroups + 1}`;
  const found = await q.run({ compile: () => query.compile(tables) });
  return {
    groups: found.slice(0, maxGroups).map(({ histogram, isPartial: _, ...group }) => ({
      ...group,
      p50Ms: quantileOf(histogram, 0.5),
      p95Ms: quantileOf(histogram, 0.95),
    })),
    hasMore: found.length > maxGroups,
    isAtLeast: filter.from.getTime() < since || (await isPartial(q, { filter, parts })),
  };
}
