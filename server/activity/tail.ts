import { type Queryable, tables } from '../db/pool.ts';
import { fits } from './fits.ts';
import { timeOfId } from './operation-id.ts';
import { type OperationFilter, type OperationRow, operationColumns } from './operations.ts';

/**
 * How much later than it was logged an entry may get into the database and still be told: nodes write in batches, and
 * their clocks differ.
 */
const lateMs = 5_000;
/** Told in one go. */
const maxAtOnce = 200;
const dayMs = 86_400_000;

export type Tail = {
  /**
   * What came since the last call, oldest first as far as it is known, each once: entries of one moment may come in
   * another order, since they are written by several nodes. `hasMore` where there is more than is told at once.
   */
  next(): Promise<{ operations: OperationRow[]; hasMore: boolean }>;
};

/**
 * Follows the log on all nodes from `since`, in ms. It asks the database, so it costs a look at the entries of the last
 * five seconds each time.
 */
export function tailOperations(
  db: Queryable,
  { filter, since, nowMs }: { filter: OperationFilter; since: number; nowMs: () => number },
): Tail {
  const told = new Set<string>();
  /** All that was in the database when it was this late has been told, but for what comes late. */
  let reached = since + lateMs;

  return {
    async next() {
      const at = nowMs();
      const from = new Date(Math.max(since, reached - lateMs));
      for (const id of told) if (timeOfId(id) < from) told.delete(id);
      const range = { from, to: new Date(Math.max(at, from.getTime()) + dayMs) };
      const rows = tables
        .selectFrom('operation')
        .where('environment_id', '=', filter.environmentId)
        .where('created_at', '>=', range.from)
        .where('created_at', '<', range.to);
      const found = await db.run(
        rows
          .select('id')
          .where(fits(filter, range))
          .orderBy('created_at')
          .orderBy('id')
          .limit(told.size + maxAtOnce + 1),
      );
      const fresh = found.map(({ id }) => id).filter((id) => !told.has(id));
      const ids = fresh.slice(0, maxAtOnce);
      const hasMore = fresh.length > ids.length;
      const last = ids.at(-1);
      reached = hasMore && last !== undefined ? timeOfId(last).getTime() : Math.max(at, reached);
      if (last === undefined) return { operations: [], hasMore };
      const operations = await db.run(
        rows.select(operationColumns).where('id', 'in', ids).orderBy('created_at').orderBy('id'),
      );
      for (const { id } of operations) told.add(id);
      return { operations, hasMore };
    },
  };
}

/** The time from which to follow, so that a reader who has the log up to this operation misses nothing. */
export function sinceOperation(id: string): number {
  return timeOfId(id).getTime() - lateMs;
}
