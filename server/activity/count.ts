import { type Queryable, tables } from '../db/pool.ts';
import { fits } from './fits.ts';
import type { OperationFilter } from './operations.ts';

/** How many there were in each hour, by status; hours without any are left out. Oldest first. */
export async function countOperations(
  db: Queryable,
  filter: OperationFilter & { from: Date; to: Date },
): Promise<{ hour: Date; status: string; count: number }[]> {
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
