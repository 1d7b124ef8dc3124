import { sql } from 'kysely';
import { type Queryable, tables } from '../db/pool.ts';
import {
  type CountedStep,
  countedRows,
  countedSince,
  isCounted,
  isPartial,
  isTimed,
  keptFrom,
  partsOf,
  sumSteps,
} from './counts.ts';
import { firstIdOf, type OperationFilter } from './operations.ts';
import { fits, type Walk, walkOf } from './search.ts';
import { quantileOf } from './tally.ts';

/** The operations of one step. */
export type Point = {
  /** The beginning of the step. */
  at: Date;
  count: number;
  failed: number;
  /** The median and the 95th percentile of the durations, see `isTimed`; null if there is none. */
  p50Ms: number | null;
  p95Ms: number | null;
  /** Whether the maximum number of entries was read, so that the newest entries may represent the step. */
  isSampled: boolean;
  /** Whether `count` and `failed` may be too low. */
  isAtLeast: boolean;
};

/** Widths of steps, in seconds: a minute to a day. */
export const stepsS = [60, 300, 900, 3600, 21_600, 86_400] as const;
const dayS = 86_400;
const dayMs = dayS * 1000;
/** For one series. */
export const maxSteps = 100;
/** For one series by days: counts are kept for as many. */
export const maxDays = 400;
/** The maximum number of entries that one series reads. */
const maxLookedAt = 40_000;
/** Consecutive entries that one statement reads: some 130 blocks with their messages. */
const maxInRow = 1_800;

export type Range = { from: Date; to: Date };

/** Which operations are kept as entries. */
export type Kept = {
  /** Of the proxied calls that succeeded, 0 to 1. */
  sampleRate: number;
  keptDays: number;
};

type Series = { filter: OperationFilter & Range; stepS: number; kept: Kept; now: Date; max?: number };

/**
 * The operations of a time, step by step and oldest first; steps begin at multiples of their width (UTC).
 *
 * Counts give exact results. For a filter by connection or text, and for steps before the first complete counts, entries are
 * read instead: each step reads the same share of `max`, or fewer, its newest entries, along the index that a search would use.
 * So the cost is bounded. A caller requests `maxStepsOf` steps at most.
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

/** `start` is the begin of the step; `from` and `to` are the requested part of it. In ms. */
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
  const { along } = walkOf(filter);
  // An index leads to few entries: one statement costs less than many, each of which is planned for all days.
  const most = along === 'time' ? maxInRow : max;
  const share = Math.max(1, Math.min(Math.floor(max / steps.length), most));
  const stepsAtOnce = Math.max(1, Math.floor(most / share));
  const points: Point[] = [];
  for (let n = 0; n < steps.length; n += stepsAtOnce)
    points.push(
      ...(await lookAtPart(db, { filter, steps: steps.slice(n, n + stepsAtOnce), kept, now, share, along })),
    );
  return points;
}

/** Some consecutive steps by one statement. */
async function lookAtPart(
  db: Queryable,
  {
    filter,
    steps,
    kept,
    now,
    share,
    along,
  }: Omit<Parameters<typeof lookAtSteps>[1], 'max'> & { share: number; along: Walk['along'] },
): Promise<Point[]> {
  const from = steps.map((step) => step.from);
  const until = steps.map((step) => step.to);
  const range = { from: sql`step.begins`, to: sql`step.ends`, passed: sql`passed` };
  // A lateral join runs once a step, so each step stops at its share.
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
      with passed as materialized (${entriesOfStep(filter, along)} limit ${share})
      select
        count(*) filter (where wanted)::int as count,
        count(*) filter (where wanted and status = 'failed')::int as failed,
        percentile_cont(array[0.5, 0.95]) within group (order by duration_ms)
          filter (where wanted and is_timed) as times,
        count(*) >= ${share} as "isSampled"
      from (
        select operation.status, operation.duration_ms, (${fits(filter, range)}) as wanted,
          ${isTimed(filter)} as is_timed
        from passed as operation
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

/** From when on all operations that match the filter have entries, in ms: infinite if only a sample of them has. */
function entriesWholeSince(
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

type HourCount = { hour: Date; status: string; count: number };

const hourMs = 3_600_000;

/**
 * How many there were in each hour, by status; hours without any are left out. Oldest first. From the counts, and from
 * entries if counts cannot answer the filter or are not complete yet. `isAtLeast`: some of the entries are not kept, or
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
