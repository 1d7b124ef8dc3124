import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Db, first } from '../db/pool.ts';
import { lockDataset } from './dataset.ts';
import { writeReceipt } from './receipt.ts';

/** Rows removed in one transaction: far less than a tenth of a second of work. */
const chunk = 500;

/**
 * Removes the datasets of connections that are deleted or gone, whose payloads nobody can open any more, with all
 * their rows; how many datasets. In small transactions, so that it may be stopped at any time and goes on at the next
 * call; several nodes may run it at once. Writers cannot come in between: such a connection takes no more records.
 * `signal` stops it after the current transaction.
 */
export async function destroyOrphans(db: Db, { signal }: { signal?: AbortSignal } = {}): Promise<number> {
  const orphans = await db.query<Orphan>(
    `select
       dataset.id,
       connection.environment_id as "environmentId",
       coalesce(integration.key || '/' || connection.connection_id, 'connection ' || dataset.connection) as target
     from dataset
     left join connection on connection.id = dataset.connection
     left join integration on integration.id = connection.integration_id
     where connection.id is null or connection.deleted_at is not null
     order by dataset.id`,
  );
  let count = 0;
  for (const orphan of orphans) {
    for (const table of ['payload', 'record'] as const) {
      while (!signal?.aborted && (await destroyRows(db, { datasetId: orphan.id, table }))) await nextTurn();
    }
    if (signal?.aborted) break;
    await destroyDataset(db, orphan);
    count += 1;
  }
  return count;
}

type Orphan = { id: number; environmentId: number | null; target: string };

/** Removes the emptied dataset, its receipts along with it, and notes in the audit log what it held at last. */
async function destroyDataset(db: Db, { id, environmentId, target }: Orphan): Promise<void> {
  await db.transaction(async (tx) => {
    const [gone] = await tx.query<{
      model: string;
      variant: string;
      until: number;
      count: number;
      bytes: number;
    }>(
      `delete from dataset
       where id = $1
       returning model, variant, last_seq as until, records + deleted as count, payload_bytes as bytes`,
      [id],
    );
    // Another node was faster.
    if (gone === undefined) return;
    const { model, variant, ...rest } = gone;
    const by = { environmentId: environmentId ?? undefined, actor: 'service', target };
    await writeReceipt(tx, by, { action: 'records.destroyed', dataset: { id, model, variant }, ...rest });
  });
}

/** Whether there may be more. */
async function destroyRows(db: Db, of: { datasetId: number; table: 'payload' | 'record' }): Promise<boolean> {
  return db.transaction(async (tx) => {
    if ((await lockDataset(tx, of.datasetId)) === undefined) return false;
    const rows = await tx.query<{ count: number }>(
      `with gone as (
         delete from ${of.table}
         using (
           select ctid as row_id
           from ${of.table}
           where dataset_id = $1
           order by seq
           limit $2
         ) as part
         where ${of.table}.ctid = part.row_id
         returning 1
       )
       select count(*) as count from gone`,
      [of.datasetId, chunk],
    );
    return (first(rows)?.count ?? 0) > 0;
  });
}
