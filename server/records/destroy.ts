import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Db, first } from '../db/pool.ts';
import { lockDataset } from './dataset.ts';

/** Rows removed in one transaction: far less than a tenth of a second of work. */
const chunk = 2000;

/**
 * Removes the datasets of connections that are deleted or gone, whose payloads nobody can open any more, with all
 * their rows; how many datasets. In small transactions, so that it may be stopped at any time and goes on at the next
 * call; several nodes may run it at once. Writers cannot come in between: such a connection takes no more records.
 */
export async function destroyOrphans(db: Db): Promise<number> {
  const orphans = await db.query<{ id: number }>(
    `select dataset.id
     from dataset
     left join connection on connection.id = dataset.connection
     where connection.id is null or connection.deleted_at is not null
     order by dataset.id`,
  );
  for (const { id } of orphans) {
    for (const table of ['payload', 'record'] as const) {
      while (await destroyRows(db, { datasetId: id, table })) await nextTurn();
    }
    // Takes the receipts along.
    await db.query('delete from dataset where id = $1', [id]);
  }
  return orphans.length;
}

/** Whether there may be more. */
async function destroyRows(db: Db, of: { datasetId: number; table: 'payload' | 'record' }): Promise<boolean> {
  return db.transaction(async (tx) => {
    if ((await lockDataset(tx, of.datasetId)) === undefined) return false;
    const rows = await tx.query<{ count: number }>(
      `with gone as (
         delete from ${of.table}
         where dataset_id = $1 and seq < (
           select seq from ${of.table} where dataset_id = $1 order by seq limit 1
         ) + $2
         returning 1
       )
       select count(*) as count from gone`,
      [of.datasetId, chunk],
    );
    return (first(rows)?.count ?? 0) > 0;
  });
}
