/**
 * Reads the exact counts of operations and removes old ones: the table `operation_count`, which `tally.ts` writes.
 *
 * Counts know environment, integration, type, status, endpoint and function, so they cannot answer a filter by connection
 * or text: `series.ts` counts rows for these, up to a bound.
 */
import { type RawBuilder, sql } from 'kysely';
import { type Db, type Queryable, tables } from '../db/pool.ts';
import type { OperationFilter } from './operations.ts';
import type { Range } from './series.ts';
import { bucketCount, quantileOf, type SpanS, spansS } from './tally.ts';

const dayMs = 86_400_000;

/** How long counts are kept, by their span. */
const keptMs: Readonly<Record<SpanS, number>> = {
  60: 14 * dayMs,
  3600: 32 * dayMs,
  86400: 400 * dayMs,
};

/** Counts of one span, in ms; both are multiples of it. */
type Part = { spanS: SpanS; from: number; to: number };

/** Whether counts can answer this filter. */
export function isCounted({ connection, accounts, text }: OperationFilter): boolean {
  return connection === undefined && accounts === undefined && text === undefined;
}

/**
 * The time from which counts are complete for this filter, in ms; infinite if its integration does not exist. Calls that
 * name an integration that does not exist are counted without one.
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
 * The counts of a time, for steps of this width: by the largest span as far as possible, and the edges by smaller ones. The
 * time is widened to whole minutes, or to whole hours or days if smaller spans are no longer kept.
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

/** Whether the duration of an operation is measured: a connect flow lasts as long as the user needs at the provider. */
export function isTimed({ type }: OperationFilter): RawBuilder<boolean> {
  return type === undefined ? sql`type <> 'connect'` : sql`true`;
}

/** The rows of these counts that fit a filter, as a relation `counted`. */
export function countedRows(filter: OperationFilter, parts: readonly Part[]): RawBuilder<unknown> {
  const { environmentId, integration, type, status, endpoint, sync, variant } = filter;
  const conditions = [sql`true`];
  if (integration !== undefined) conditions.push(sql`operation_count.integration = ${integration}`);
  if (type !== undefined) conditions.push(sql`operation_count.type = ${type}`);
  if (status !== undefined) conditions.push(sql`operation_count.status = ${status}`);
  // Operations that were counted without a name may match: see `CountNames`.
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
      select operation_count.*, ${isWanted} as is_wanted, ${isTimed(filter)} as is_timed
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

/** An aggregate over `countedRows`. */
type CountedSum = {
  count: number;
  failed: number;
  /** Whether operations that may match were counted without their name. */
  isPartial: boolean;
  histogram: number[];
};

// By position: to unnest the arrays and group by position takes twice as long (28,800 rows: 180 ms and 90 ms).
const buckets = sql.raw(
  Array.from(
    { length: bucketCount },
    (_, index) => `coalesce(sum(histogram[${index + 1}]) filter (where is_wanted and is_timed), 0)::bigint`,
  ).join(', '),
);
const countedSums = sql<CountedSum>`
  coalesce(sum(count) filter (where is_wanted), 0)::bigint as count,
  coalesce(sum(count) filter (where is_wanted and status = 'failed'), 0)::bigint as failed,
  bool_or(not is_wanted) as "isPartial",
  array[${buckets}]::float8[] as histogram`;

export type CountedStep = CountedSum & { number: number };

/** Sums by step, without empty steps. `number` counts the steps of this width since 1970. */
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

const removedAtOnce = 5_000;
/** The sweep runs each minute; an older node that it has found may still write until the next run. */
const untilNextRunS = 120;

/**
 * Runs each minute: removes counts that are older than their span is kept, and those of deleted environments. While a node
 * runs that does not count its entries (`hasOlderNodes`), it moves the time from which counts are complete.
 */
export async function sweepCounts(
  db: Db,
  { now, hasOlderNodes, signal }: { now: Date; hasOlderNodes: boolean; signal: AbortSignal },
): Promise<void> {
  if (hasOlderNodes) {
    await db.query(
      `insert into operation_count_start (environment_id, at)
       select id, clock_timestamp() + make_interval(secs => $1)
       from environment
       on conflict (environment_id) do update set at = excluded.at`,
      [untilNextRunS],
    );
  }
  for (const { environmentId, isThere } of await listCounted(db)) {
    for (const spanS of spansS) {
      // One span more: the edge of a time may lie within it.
      const before = new Date(now.getTime() - keptMs[spanS] - spanS * 1000);
      const of = { environmentId, spanS, before: isThere ? before : undefined };
      while (!signal.aborted && (await removeSome(db, of)) === removedAtOnce);
    }
  }
}

/** Environments that have counts, by steps through the index, and whether they still exist. */
function listCounted(db: Db): Promise<{ environmentId: number; isThere: boolean }[]> {
  return db.query(
    `with recursive counted as (
       (select environment_id from operation_count order by environment_id limit 1)
       union all
       select (
         select operation_count.environment_id
         from operation_count
         where operation_count.environment_id > counted.environment_id
         order by operation_count.environment_id
         limit 1
       )
       from counted
       where counted.environment_id is not null
     )
     select
       environment_id as "environmentId",
       exists (select from environment where id = environment_id) as "isThere"
     from counted
     where environment_id is not null`,
  );
}

/** Removes the oldest, up to `removedAtOnce`; rows that a batch is updating are left to the next run. */
async function removeSome(
  db: Db,
  { environmentId, spanS, before }: { environmentId: number; spanS: number; before: Date | undefined },
): Promise<number> {
  const [removed] = await db.query<{ count: number }>(
    `with old as (
       select ctid
       from operation_count
       where environment_id = $1 and span_s = $2 and begins_at < coalesce($3, 'infinity'::timestamptz)
       order by begins_at
       limit $4
       for update skip locked
     ), removed as (
       delete from operation_count
       where ctid = any(array(select ctid from old))
       returning 1
     )
     select count(*) as count from removed`,
    [environmentId, spanS, before ?? null, removedAtOnce],
  );
  return removed?.count ?? 0;
}

/** The columns that operations are grouped by; endpoints and functions exist for one type of operation each. */
export const groupings = ['integration', 'type', 'endpoint', 'function'] as const;
export type Grouping = (typeof groupings)[number];

export type Group = {
  /** '' for none, as in the table; null if it is not a column of the grouping. */
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
