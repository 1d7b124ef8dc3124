/**
 * Reading exact counts of operations: the table `operation_count`, which `tally.ts` writes and `count-sweep.ts` bounds.
 *
 * Counts know environment, integration, type, status, endpoint and function, so they cannot answer a filter by connection
 * or text: `series.ts` counts rows for these, up to a bound.
 */
import { type RawBuilder, sql } from 'kysely';
import { type Queryable, tables } from '../db/pool.ts';
import { bucketCount } from './histogram.ts';
import type { OperationFilter } from './operations.ts';
import { type SpanS, spansS } from './tally.ts';

const dayMs = 86_400_000;

/** How long counts are kept, by their span. */
export const keptMs: Readonly<Record<SpanS, number>> = {
  60: 14 * dayMs,
  3600: 32 * dayMs,
  86400: 400 * dayMs,
};

/** Counts of one span, in ms; both are multiples of it. */
type Part = { spanS: SpanS; from: number; to: number };

/** Whether counts can answer this filter. */
export function isCounted({ connection, text }: OperationFilter): boolean {
  return connection === undefined && text === undefined;
}

/**
 * From when on counts are complete for this filter, in ms: infinite where its integration does not exist. Calls that name
 * an integration that does not exist are counted without one.
 */
export async function countedSince(
  q: Queryable,
  { environmentId, integration }: OperationFilter,
): Promise<number> {
  const [found] = await q.query<{ environment: number | null; integration: number | null }>(
    `select
       (
         select extract(epoch from at)::float8 * 1000
         from operation_count_start
         where environment_id = $1
       ) as environment,
       (
         select extract(epoch from created_at)::float8 * 1000
         from integration
         where environment_id = $1 and key = $2
       ) as integration`,
    [environmentId, integration ?? null],
  );
  const ofIntegration = integration === undefined ? 0 : (found?.integration ?? Number.POSITIVE_INFINITY);
  return Math.max(found?.environment ?? 0, ofIntegration);
}

/** How far back counts reach for steps of this width, in ms. */
export function keptFrom(stepS: number, nowMs: number): number {
  const largest = spansOf(stepS)[0]!;
  return nowMs - keptMs[largest];
}

/**
 * The counts that make up a time, for steps of this width: as many as can be by the largest span, the edges by smaller
 * ones. The time is widened to whole minutes, and where these are no longer kept to whole hours or days.
 */
export function partsOf(time: { from: number; to: number }, stepS: number, nowMs: number): Part[] {
  return cover(time, spansOf(stepS), nowMs);
}

/** Largest first. */
function spansOf(stepS: number): SpanS[] {
  return spansS.filter((spanS) => spanS <= stepS).toReversed();
}

function cover(
  { from, to }: { from: number; to: number },
  [spanS, ...smaller]: SpanS[],
  nowMs: number,
): Part[] {
  if (spanS === undefined || from >= to) return [];
  const spanMs = spanS * 1000;
  const [next] = smaller;
  const isWhole = (edge: number) => next === undefined || edge < nowMs - keptMs[next];
  const down = (ms: number) => Math.floor(ms / spanMs) * spanMs;
  const up = (ms: number) => Math.ceil(ms / spanMs) * spanMs;
  const begin = isWhole(from) ? down(from) : up(from);
  const end = isWhole(down(to)) ? up(to) : down(to);
  if (begin >= end) return cover({ from, to }, smaller, nowMs);
  return [
    ...cover({ from, to: begin }, smaller, nowMs),
    { spanS, from: begin, to: end },
    ...cover({ from: end, to }, smaller, nowMs),
  ];
}

/** The rows of these counts that fit a filter, as a relation `counted`. */
export function countedRows(filter: OperationFilter, parts: readonly Part[]): RawBuilder<unknown> {
  const { environmentId, integration, type, status, endpoint, sync, variant } = filter;
  const conditions = [sql`true`];
  if (integration !== undefined) conditions.push(sql`operation_count.integration = ${integration}`);
  if (type !== undefined) conditions.push(sql`operation_count.type = ${type}`);
  if (status !== undefined) conditions.push(sql`operation_count.status = ${status}`);
  // Those that are counted without a name may be the ones that are wanted: see `CountNames`.
  if (endpoint !== undefined) {
    conditions.push(
      sql`operation_count.type = 'delivery' and operation_count.target in (${String(endpoint)}, '')`,
    );
  }
  if (sync !== undefined) {
    conditions.push(sql`operation_count.type = 'run' and operation_count.target in (${`sync/${sync}`}, '')`);
  }
  // Only runs have a variant; other operations are counted with ''.
  if (variant !== undefined) {
    conditions.push(sql`operation_count.type = 'run' and operation_count.variant in (${variant}, '')`);
  }
  const isWanted = sql.join(
    [
      sql`true`,
      ...(endpoint !== undefined || sync !== undefined ? [sql`target <> ''`] : []),
      ...(variant !== undefined ? [sql`variant <> ''`] : []),
    ],
    sql` and `,
  );
  // The offset keeps the planner from joining all counts of the environment at once: each part is read by the key.
  return sql`
    select found.*
    from unnest(
      ${parts.map(({ spanS }) => spanS)}::integer[],
      ${parts.map(({ from }) => new Date(from))}::timestamptz[],
      ${parts.map(({ to }) => new Date(to))}::timestamptz[]
    ) as part (span_s, begins, ends)
    cross join lateral (
      select operation_count.*, ${isWanted} as is_wanted
      from operation_count
      where
        operation_count.environment_id = ${environmentId}
        and operation_count.span_s = part.span_s
        and operation_count.begins_at >= part.begins
        and operation_count.begins_at < part.ends
        and ${sql.join(conditions, sql` and `)}
      offset 0
    ) as found`;
}

/** Whether some operations that may fit the filter were counted without their name. */
export async function isPartial(
  q: Queryable,
  { filter, parts }: { filter: OperationFilter; parts: readonly Part[] },
): Promise<boolean> {
  if ([filter.endpoint, filter.sync, filter.variant].every((name) => name === undefined)) return false;
  const query = sql<{ any: boolean }>`
    select exists (select from (${countedRows(filter, parts)}) as counted where not is_wanted) as any`;
  const [found] = await q.run({ compile: () => query.compile(tables) });
  return found?.any ?? false;
}

/** What an aggregate over `countedRows` has. */
export type CountedSum = {
  count: number;
  failed: number;
  /** Whether some that may be wanted were counted without their name. */
  isPartial: boolean;
  histogram: number[];
};

// By position: to unnest the arrays and group by position takes twice as long (28,800 rows: 180 ms and 90 ms).
const buckets = sql.raw(
  Array.from(
    { length: bucketCount },
    (_, index) => `coalesce(sum(histogram[${index + 1}]) filter (where is_wanted), 0)::bigint`,
  ).join(', '),
);
export const countedSums = sql<CountedSum>`
  coalesce(sum(count) filter (where is_wanted), 0)::bigint as count,
  coalesce(sum(count) filter (where is_wanted and status = 'failed'), 0)::bigint as failed,
  bool_or(not is_wanted) as "isPartial",
  array[${buckets}]::float8[] as histogram`;

export type CountedStep = CountedSum & { number: number };

/** Sums by step; steps without any are left out. `number` is how many steps of this width have passed since 1970. */
export async function sumSteps(
  q: Queryable,
  { filter, parts, stepS }: { filter: OperationFilter; parts: readonly Part[]; stepS: number },
): Promise<CountedStep[]> {
  if (parts.length === 0) return [];
  const query = sql<CountedStep>`
    select floor(extract(epoch from begins_at) / ${stepS})::bigint as number, ${countedSums}
    from (${countedRows(filter, parts)}) as counted
    group by 1`;
  return q.run({ compile: () => query.compile(tables) });
}
