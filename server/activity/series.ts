import { sql } from 'kysely';
import { type Queryable, tables } from '../db/pool.ts';
import { type CountedStep, countedSince, isCounted, keptFrom, partsOf, sumSteps } from './counts.ts';
import { fits } from './fits.ts';
import { quantileOf } from './histogram.ts';
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
  /** Whether there may be more of them, and more that failed, than `count` and `failed` say. */
  isAtLeast: boolean;
};

/** Widths of steps, in seconds: a minute to a day. */
export const stepsS = [60, 300, 900, 3600, 21_600, 86_400] as const;
const dayS = 86_400;
const dayMs = dayS * 1000;
/** Of one series. */
export const maxSteps = 100;
/** Of one series by days: as many as counts are kept for. */
export const maxDays = 400;
/** Entries looked at for a whole series, however many there are. */
const maxLookedAt = 40_000;

export type Range = { from: Date; to: Date };

/** What of the operations is kept as entries. */
export type Kept = {
  /** Of the proxied calls that succeeded, 0 to 1. */
  sampleRate: number;
  keptDays: number;
};

type Series = { filter: OperationFilter & Range; stepS: number; kept: Kept; now: Date; max?: number };

/**
 * How operations went over a time, step by step and oldest first; steps begin at multiples of their width (UTC).
 *
 * Steps are answered from the counts, which are exact. A filter by connection or text, and steps from before there are
 * complete counts, are answered from entries: each step looks at the same share of `max`, its newest, found by the index
 * that a search would take. So the cost is bounded. A caller asks for `maxStepsOf` steps at most.
 */
export async function seriesOf(db: Queryable, { filter, stepS, kept, now, max }: Series): Promise<Point[]> {
  const steps = stepsOf(filter, stepS);
  const since = isCounted(filter)
    ? Math.max(await countedSince(db, filter), keptFrom(stepS, now.getTime()))
    : Number.POSITIVE_INFINITY;
  const counted = steps.filter(({ from }) => from >= since);
  const looked = steps.slice(0, steps.length - counted.length);
  return [
    ...(await lookAtSteps(db, { filter, steps: looked, kept, now, max: max ?? maxLookedAt })),
    ...(await countedPoints(db, { filter, steps: counted, stepS, now })),
  ];
}

/** `start` is when it begins; `from` and `to` are the part of it that is wanted. In ms. */
type Step = { start: number; from: number; to: number };

async function countedPoints(
  db: Queryable,
  { filter, steps, stepS, now }: { filter: OperationFilter; steps: Step[]; stepS: number; now: Date },
): Promise<Point[]> {
  if (steps.length === 0) return [];
  const parts = partsOf({ from: steps[0]!.from, to: steps.at(-1)!.to }, stepS, now.getTime());
  const sums = new Map((await sumSteps(db, { filter, parts, stepS })).map((sum) => [sum.number, sum]));
  return steps.map(({ start }) => countedPoint(start, sums.get(start / (stepS * 1000))));
}

function countedPoint(start: number, sum: CountedStep | undefined): Point {
  const histogram = sum?.histogram ?? [];
  return {
    at: new Date(start),
    count: sum?.count ?? 0,
    failed: sum?.failed ?? 0,
    p50Ms: quantileOf(histogram, 0.5),
    p95Ms: quantileOf(histogram, 0.95),
    isSampled: false,
    isAtLeast: sum?.isPartial ?? false,
  };
}

async function lookAtSteps(
  db: Queryable,
  {
    filter,
    steps,
    kept,
    now,
    max,
  }: { filter: OperationFilter & Range; steps: Step[]; kept: Kept; now: Date; max: number },
): Promise<Point[]> {
  if (steps.length === 0) return [];
  const from = steps.map((step) => step.from);
  const until = steps.map((step) => step.to);
  const { along } = walkOf(filter);
  const share = Math.max(1, Math.floor(max / steps.length));
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
  const wholeSince = entriesWholeSince(filter, { kept, now });
  return rows.map(({ number, times, ...counted }) => ({
    at: new Date(steps[number - 1]!.start),
    ...counted,
    p50Ms: times?.[0] ?? null,
    p95Ms: times?.[1] ?? null,
    isAtLeast: counted.isSampled || steps[number - 1]!.from < wholeSince,
  }));
}

/** From when on all operations that fit the filter have entries, in ms: infinite where a sample of them has. */
export function entriesWholeSince(
  { type = 'proxy', status }: OperationFilter,
  { kept: { sampleRate, keptDays }, now }: { kept: Kept; now: Date },
): number {
  if (sampleRate < 1 && type === 'proxy' && status !== 'failed') return Number.POSITIVE_INFINITY;
  return Math.floor(now.getTime() / dayMs - keptDays) * dayMs;
}

/** How many steps a time takes. */
export function countSteps(range: Range, stepS: number): number {
  const stepMs = stepS * 1000;
  const count = Math.ceil(range.to.getTime() / stepMs) - Math.floor(range.from.getTime() / stepMs);
  return Math.max(0, count);
}

/** How many steps of this width a series has at most. */
export function maxStepsOf(stepS: number): number {
  return stepS === dayS ? maxDays : maxSteps;
}

function stepsOf(range: Range, stepS: number): Step[] {
  const stepMs = stepS * 1000;
  const first = Math.floor(range.from.getTime() / stepMs);
  return Array.from({ length: countSteps(range, stepS) }, (_, index) => {
    const start = (first + index) * stepMs;
    const from = Math.max(start, range.from.getTime());
    return { start, from, to: Math.min(start + stepMs, range.to.getTime()) };
  });
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
