import { type Expression, type RawBuilder, type SqlBool, sql } from 'kysely';
import { type Queryable, tables } from '../db/pool.ts';
import { firstIdOf, type OperationFilter, operationColumns, timeOfId } from './operations.ts';
import { listDays, timesOf } from './partitions.ts';

/**
 * Searches operations, newest first, in a bounded time for any number of operations.
 *
 * The search goes back in steps, none longer than a day, along the index that fits best, and applies the other conditions
 * to the entries found there. A search with rare results reads a bounded number of entries, reports until when it has
 * searched, and continues from there with the next call: a search of a million entries for a text takes seconds.
 */
type Found = {
  operations: Operations;
  /** The cursor of the next call; undefined: there are no more. */
  next: string | undefined;
  /** The search covered everything from this time on; undefined: everything. */
  searchedUntil: Date | undefined;
};
type Operations = Awaited<ReturnType<typeof lookAt>>;

type Search = {
  filter: OperationFilter;
  /** Only operations before this one: the `next` of an earlier call. */
  before?: string | undefined;
  limit: number;
  /** The maximum number of entries that it reads. */
  max?: number;
};

/** Entries of which a processor reads path and messages in some tens of milliseconds. */
const maxLookedAt = 20_000;
/** Other costs, in consecutive entries: one entry that only an index leads to, and a day. */
const strayCosts = 3;
const dayCosts = 300;
/** Consecutive entries that one statement reads: some 120 blocks, and their messages. */
const maxInRow = 2_500;

export async function searchOperations(
  db: Queryable,
  { filter: { accounts, ...filter }, ...search }: Search,
): Promise<Found> {
  if (accounts === undefined) return searchAlong(db, { filter, ...search });
  const parts: Found[] = [];
  for (const account of accounts)
    parts.push(await searchAlong(db, { filter: { ...filter, ...account }, ...search }));
  return merged(parts, search.limit);
}

/** The newest operations of several searches, back to where all of them have searched. */
function merged(parts: Found[], limit: number): Found {
  const ends = parts.flatMap(({ next }) => next ?? []).sort();
  const end = ends.at(-1);
  const operations = parts
    .flatMap((part) => part.operations)
    .filter(({ id }) => end === undefined || id >= end)
    .sort((a, b) => (a.id < b.id ? 1 : -1));
  if (operations.length > limit) return goOn(operations.slice(0, limit), operations[limit - 1]!.id);
  return end === undefined
    ? { operations, next: undefined, searchedUntil: undefined }
    : goOn(operations, end);
}

async function searchAlong(
  db: Queryable,
  { filter, before, limit, max = maxLookedAt }: Search,
): Promise<Found> {
  const walk = walkOf(filter);
  const from = filter.from?.getTime() ?? 0;
  const end = filter.to === undefined ? undefined : firstIdOf(filter.to.getTime());
  let until = before !== undefined && (end === undefined || before < end) ? before : end;
  const operations: Operations = [];
  let left = max;
  const [costs, maxOfStep] = walk.along === 'time' ? [1, maxInRow] : [strayCosts, max];
  for (const day of (await listDays(db)).toReversed()) {
    const times = timesOf(day);
    if (times.to <= from) break;
    const begin = new Date(Math.max(times.from, from));
    while (until === undefined || until > firstIdOf(begin.getTime())) {
      if (until !== undefined && left <= 0) return goOn(operations, until);
      const before = until !== undefined && until < firstIdOf(times.to) ? until : undefined;
      const to = before === undefined ? new Date(times.to) : new Date(timeOfId(before).getTime() + 1);
      const step = {
        filter,
        walk,
        range: { from: begin, to, before },
        max: Math.ceil(Math.min(left, maxOfStep) / costs),
      };
      // An index that finds only matching entries returns a page immediately, or all that the day has.
      const way = walk.isExact ? undefined : await measureWay(db, step);
      const oldest = way?.oldest;
      const wanted = limit + 1 - operations.length;
      const found = await lookAt(db, { ...step, oldest, wanted });
      operations.push(...found);
      if (operations.length > limit) {
        const page = operations.slice(0, limit);
        return goOn(page, page.at(-1)!.id);
      }
      const cost = (way?.count ?? found.length) * costs;
      left -= oldest === undefined ? Math.max(cost, dayCosts) : cost;
      until = oldest ?? firstIdOf(begin.getTime());
    }
  }
  return { operations, next: undefined, searchedUntil: undefined };
}

function goOn(operations: Operations, next: string): Found {
  return { operations, next, searchedUntil: timeOfId(next) };
}

/** The index for a day, and whether it finds only matching entries. */
export type Walk = { along: 'connection' | 'type' | 'failed' | 'time'; isExact: boolean };

export function walkOf({ connection, integration, type, status, text }: OperationFilter): Walk {
  const conditions = [connection, integration, type, status, text].filter((one) => one !== undefined).length;
  if (connection !== undefined) return { along: 'connection', isExact: conditions === 1 };
  if (type !== undefined && type !== 'proxy') return { along: 'type', isExact: conditions === 1 };
  if (status === 'failed') return { along: 'failed', isExact: conditions === 1 };
  return { along: 'time', isExact: conditions === 0 };
}

type Range = { from: Date; to: Date; before: string | undefined };
type Step = { filter: OperationFilter; walk: Walk; range: Range; max: number };

/** The number of entries of a step on the index, up to `max`, and the last one if there are more. */
async function measureWay(db: Queryable, step: Step): Promise<{ count: number; oldest: string | undefined }> {
  const passed = onTheWay(step).select('id').limit(step.max).as('passed');
  const [row] = await db.run(
    tables
      .selectFrom(passed)
      .select(({ fn }) => [
        fn.countAll<number>().as('count'),
        sql<string | null>`(array_agg(passed.id))[${step.max}::bigint]`.as('oldest'),
      ]),
  );
  return { count: row?.count ?? 0, oldest: row?.oldest ?? undefined };
}

/** Up to `wanted` matching entries of a step, down to `oldest` if it is given. */
function lookAt(db: Queryable, step: Omit<Step, 'max'> & { oldest: string | undefined; wanted: number }) {
  const { filter, walk, oldest, wanted } = step;
  const range = oldest === undefined ? step.range : { ...step.range, from: timeOfId(oldest) };
  let passed = onTheWay({ ...step, range }).select(operationColumns);
  // Bounded by ID, not by number: entries that arrived after the count must not displace counted ones.
  if (oldest !== undefined) passed = passed.where('id', '>=', oldest);
  const fitting = tables
    // The offset keeps the planner from using the other conditions in its choice of an index.
    .selectFrom((walk.isExact ? passed.limit(wanted) : passed.offset(0)).as('operation'))
    .select(operationColumns)
    .where(fits(filter, range))
    .limit(wanted);
  // In the order of the index, so that the search ends with the last wanted entry.
  if (walk.along !== 'time') return db.run(fitting.orderBy('id', 'desc'));
  return db.run(fitting.orderBy('created_at', 'desc').orderBy('id', 'desc'));
}

/**
 * IDs ascend with the time, so both orders are equal. The written order decides the index: the primary key has the time, the
 * other indexes have the ID, so the planner cannot prefer another index, however a value is spread over the days.
 */
function onTheWay({
  filter: { environmentId, connection, type },
  walk: { along },
  range,
}: Omit<Step, 'max'>) {
  let rows = tables
    .selectFrom('operation')
    .where('environment_id', '=', environmentId)
    .where('created_at', '>=', range.from)
    .where('created_at', '<', range.to);
  const { before } = range;
  if (before !== undefined) {
    rows = rows.where('created_at', '<=', timeOfId(before)).where('id', '<', before);
  }
  if (along === 'time') return rows.orderBy('created_at', 'desc').orderBy('id', 'desc');
  if (along === 'connection') rows = rows.where('connection', '=', connection!);
  if (along === 'failed') rows = rows.where('status', '=', 'failed');
  // The index omits proxied calls, which are most operations.
  if (along === 'type') rows = rows.where('type', '=', type!).where('type', '!=', 'proxy');
  return rows.orderBy('id', 'desc');
}

/**
 * Whether a row of `operation` matches the filter, except for environment and time: the caller selects those by an index.
 * Messages are searched within `range` only, which must contain the times of the rows. If `passed` has all rows with their
 * times, the messages of these are read at once.
 */
export function fits(
  filter: OperationFilter,
  { from, to, passed }: Record<'from' | 'to', Date | RawBuilder<unknown>> & { passed?: RawBuilder<unknown> },
): Expression<SqlBool> {
  const { integration, connection, accounts, type, status, text, endpoint, sync, variant } = filter;
  const conditions = [sql<SqlBool>`true`];
  if (accounts !== undefined) {
    conditions.push(sql`(operation.integration, operation.connection) in (
      select * from unnest(
        ${accounts.map((one) => one.integration)}::text[], ${accounts.map((one) => one.connection)}::text[]
      )
    )`);
  }
  if (integration !== undefined) conditions.push(sql`operation.integration = ${integration}`);
  if (connection !== undefined) conditions.push(sql`operation.connection = ${connection}`);
  if (type !== undefined) conditions.push(sql`operation.type = ${type}`);
  if (status !== undefined) conditions.push(sql`operation.status = ${status}`);
  if (endpoint !== undefined) conditions.push(sql`operation.details ->> 'endpoint' = ${String(endpoint)}`);
  if (sync !== undefined) {
    conditions.push(
      sql`operation.details ->> 'kind' = 'sync' and operation.details ->> 'function' = ${sync}`,
    );
  }
  if (variant !== undefined) conditions.push(sql`operation.details ->> 'variant' = ${variant}`);
  if (text !== undefined) {
    const ofRange = sql`line.created_at >= ${from} and line.created_at < ${to}
      and strpos(lower(line.message || line.details::text), lower(${text}::text)) > 0`;
    const hasMessage = passed
      ? sql`(operation.created_at, operation.id) in (
        select line.created_at, line.operation_id
        from operation_message as line
        where line.created_at = any(array(select created_at from ${passed})) and ${ofRange}
      )`
      : sql`exists (
        select from operation_message as line
        where line.created_at = operation.created_at and line.operation_id = operation.id and ${ofRange}
      )`;
    conditions.push(sql`(
      strpos(lower(operation.path), lower(${text}::text)) > 0
      or strpos(operation.error_code, lower(${text}::text)) > 0
      or strpos(lower(operation.connection), lower(${text}::text)) > 0
      or ${hasMessage}
    )`);
  }
  return sql<SqlBool>`${sql.join(conditions, sql` and `)}`;
}
