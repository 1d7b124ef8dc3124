import { sql } from 'kysely';
import { type Queryable, tables } from '../db/pool.ts';
import { fits } from './fits.ts';
import { firstIdOf } from './operation-id.ts';
import type { OperationFilter } from './operations.ts';
import { type Walk, walkOf } from './search.ts';

/** How the operations of one step went. */
export type Point = {
  /** When the step begins. */
  at: Date;
  count: number;
  failed: number;
  /** The times that half of them, and 95 of a hundred, were done within; null where none has one. */
  p50Ms: number | null;
  p95Ms: number | null;
  /** Whether as many entries were looked at as are at most, and its newest may stand for the step. */
  isSampled: boolean;
};

/** Widths of steps, in seconds: a minute to a day. */
export const stepsS = [60, 300, 900, 3600, 21_600, 86_400] as const;
/** Of one series. */
export const mostSteps = 100;
/** Entries looked at for a whole series, however many there are. */
const mostLookedAt = 40_000;

/**
 * How operations went over a time, step by step and oldest first; steps begin at multiples of their width (UTC).
 *
 * Its cost is bounded: each step looks at the same share of `most` entries, its newest, found by the index that a search
 * would take. A caller asks for `mostSteps` at most.
 */
export async function seriesOf(
  db: Queryable,
  {
    filter,
    stepS,
    most = mostLookedAt,
  }: { filter: OperationFilter & { from: Date; to: Date }; stepS: number; most?: number },
): Promise<Point[]> {
  const starts = startsOf(filter, stepS);
  if (starts.length === 0) return [];
  const endOf = (start: number) => Math.min(start + stepS * 1000, filter.to.getTime());
  const from = starts.map((start) => Math.max(start, filter.from.getTime()));
  const until = starts.map(endOf);
  const { along } = walkOf(filter);
  const share = Math.max(1, Math.floor(most / starts.length));
  // A lateral join runs its part once a step, so each is cut off where it has seen its share.
  const query = sql<{
    number: number;
    count: number;
    failed: number;
    times: (number | null)[] | null;
    isSampled: boolean;
  }>`
    select
      step.number::int as number,
      counted.count,
      counted.failed,
      counted.times,
      counted."isSampled"
    from unnest(
      ${from.map((ms) => new Date(ms))}::timestamptz[],
      ${until.map((ms) => new Date(ms))}::timestamptz[],
      ${from.map(firstIdOf)}::uuid[],
      ${until.map(firstIdOf)}::uuid[]
    ) with ordinality as step (begins, ends, first_id, end_id, number)
    cross join lateral (
      select
        count(*) filter (where wanted)::int as count,
        count(*) filter (where wanted and status = 'failed')::int as failed,
        percentile_cont(array[0.5, 0.95]) within group (order by duration_ms) filter (where wanted) as times,
        count(*) >= ${share} as "isSampled"
      from (
        select operation.status, operation.duration_ms, (${fits(filter, filter)}) as wanted
        from (${entriesOfStep(filter, along)} limit ${share}) as operation
      ) as looked_at
    ) as counted
    order by number`;
  const rows = await db.run({ compile: () => query.compile(tables) });
  return rows.map(({ number, times, ...counted }) => ({
    at: new Date(starts[number - 1]!),
    ...counted,
    p50Ms: times?.[0] ?? null,
    p95Ms: times?.[1] ?? null,
  }));
}

/** How many steps a time takes. */
export function countSteps(range: { from: Date; to: Date }, stepS: number): number {
  const stepMs = stepS * 1000;
  const count = Math.ceil(range.to.getTime() / stepMs) - Math.floor(range.from.getTime() / stepMs);
  return Math.max(0, count);
}

function startsOf(range: { from: Date; to: Date }, stepS: number): number[] {
  const first = Math.floor(range.from.getTime() / (stepS * 1000));
  return Array.from({ length: countSteps(range, stepS) }, (_, index) => (first + index) * stepS * 1000);
}

/** Newest first. The order that is written decides the index, as in `search.ts`. */
function entriesOfStep({ environmentId, connection, type }: OperationFilter, along: Walk['along']) {
  const rows = sql`
    select id, created_at, type, status, integration, connection, path, error_code, duration_ms
    from operation
    where environment_id = ${environmentId} and created_at >= step.begins and created_at < step.ends`;
  if (along === 'time') return sql`${rows} order by created_at desc, id desc`;
  const ways = {
    connection: sql`connection = ${connection}`,
    failed: sql`status = 'failed'`,
    type: sql`type = ${type} and type <> 'proxy'`,
  };
  return sql`${rows} and ${ways[along]} and id >= step.first_id and id < step.end_id order by id desc`;
}
