import { sql } from 'kysely';
import { type Queryable, tables } from '../db/pool.ts';
import { fits } from './fits.ts';
import { firstIdOf, timeOfId } from './operation-id.ts';
import { type OperationFilter, operationColumns } from './operations.ts';
import { listDays, timesOf } from './partitions.ts';

/**
 * Looks operations up, newest first, in a bounded time for any number of operations.
 *
 * The search goes back day by day, along the index that fits best, and applies the other conditions to the entries found
 * there. A search with rare results reads a bounded number of entries, reports until when it has searched, and continues
 * from there with the next call: a search of a million entries for a text takes seconds.
 */
type Found = {
  operations: Operations;
  /** Where the next call goes on; undefined: there are no more. */
  next: string | undefined;
  /** Everything from then on was looked at; undefined: everything. */
  searchedUntil: Date | undefined;
};
type Operations = Awaited<ReturnType<typeof lookAt>>;

type Search = {
  filter: OperationFilter;
  /** Those before this one alone: the `next` of an earlier call. */
  before?: string | undefined;
  limit: number;
  /** How many entries it may look at. */
  max?: number;
};

/** Entries of which a processor reads path and messages in some tens of milliseconds. */
const maxLookedAt = 20_000;
/** What else costs time, in entries that follow each other: one that an index leads to alone, and a day. */
const strayCosts = 3;
const dayCosts = 300;

export async function searchOperations(
  db: Queryable,
  { filter, before, limit, max = maxLookedAt }: Search,
): Promise<Found> {
  const walk = walkOf(filter);
  const from = filter.from?.getTime() ?? 0;
  const end = filter.to === undefined ? undefined : firstIdOf(filter.to.getTime());
  let until = before !== undefined && (end === undefined || before < end) ? before : end;
  const operations: Operations = [];
  let left = max;
  for (const day of (await listDays(db)).toReversed()) {
    const times = timesOf(day);
    if (times.to <= from) break;
    if (until !== undefined && until <= firstIdOf(times.from)) continue;
    if (until !== undefined && left <= 0) return goOn(operations, until);
    const range = {
      from: new Date(Math.max(times.from, from)),
      to: new Date(times.to),
      before: until !== undefined && until < firstIdOf(times.to) ? until : undefined,
    };
    const costs = walk.along === 'time' ? 1 : strayCosts;
    const step = { filter, walk, range, max: Math.ceil(left / costs) };
    // Along an index that finds nothing else, a page is found at once, or the day has no more.
    const way = walk.isExact ? undefined : await measureWay(db, step);
    const oldest = way?.oldest;
    const wanted = limit + 1 - operations.length;
    const found = await lookAt(db, { ...step, oldest, wanted });
    operations.push(...found);
    if (operations.length > limit) {
      const page = operations.slice(0, limit);
      return goOn(page, page.at(-1)!.id);
    }
    if (oldest !== undefined) return goOn(operations, oldest);
    until = firstIdOf(range.from.getTime());
    left -= Math.max((way?.count ?? found.length) * costs, dayCosts);
  }
  return { operations, next: undefined, searchedUntil: undefined };
}

function goOn(operations: Operations, next: string): Found {
  return { operations, next, searchedUntil: timeOfId(next) };
}

/** Which index leads through a day, and whether it finds nothing else than what is wanted. */
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

/** How many of a day are on the way, `max` of them at most, and where there are so many the last of these. */
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

/** Up to `wanted` that fit, of a day on the way down to `oldest`, where it is given. */
function lookAt(db: Queryable, step: Omit<Step, 'max'> & { oldest: string | undefined; wanted: number }) {
  const { filter, walk, oldest, wanted } = step;
  const range = oldest === undefined ? step.range : { ...step.range, from: timeOfId(oldest) };
  let passed = onTheWay({ ...step, range }).select(operationColumns);
  // Not by their number: entries that have come since they were counted must push none of them out.
  if (oldest !== undefined) passed = passed.where('id', '>=', oldest);
  const fitting = tables
    // The offset keeps the planner from mixing the other conditions into the choice of the way.
    .selectFrom((walk.isExact ? passed.limit(wanted) : passed.offset(0)).as('operation'))
    .select(operationColumns)
    .where(fits(filter, range))
    .limit(wanted);
  // In the order of the way, so that the last one wanted ends the search.
  if (walk.along !== 'time') return db.run(fitting.orderBy('id', 'desc'));
  return db.run(fitting.orderBy('created_at', 'desc').orderBy('id', 'desc'));
}

/**
 * Ids ascend with the time, so both orders are one. Which of them is written decides the index: the primary key has the
 * time, the others have the id, and however a value is spread over the days, the planner cannot prefer another.
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
  // Proxied calls, which most are, are not in its index.
  if (along === 'type') rows = rows.where('type', '=', type!).where('type', '!=', 'proxy');
  return rows.orderBy('id', 'desc');
}
