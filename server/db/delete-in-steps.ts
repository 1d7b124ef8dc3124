import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Db, first } from './pool.ts';

/** The maximum number of rows that one statement deletes, beside those that go with them. */
const perStep = 500;

/**
 * Deletes the rows of `table` that match the condition, each step in a transaction of its own, so that no row stays locked for
 * long. A caller that is killed between two steps may call it again. Rows that others write meanwhile may be left.
 */
export async function deleteInSteps(
  db: Db,
  { table, where, values }: { table: string; where: string; values: readonly unknown[] },
): Promise<void> {
  for (;;) {
    const rows = await db.query<{ count: number }>(
      `with gone as (
         delete from ${table}
         using (select ctid as row_id from ${table} where ${where} limit ${perStep}) as part
         where ${table}.ctid = part.row_id
         returning 1
       )
       select count(*) as count from gone`,
      values,
    );
    if ((first(rows)?.count ?? 0) < perStep) return;
    await nextTurn();
  }
}
