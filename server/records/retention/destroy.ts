import { setImmediate as nextTurn } from 'node:timers/promises';
import { closeDatasets } from '../../connections/store/save.ts';
import { type Db, first, recordsDb } from '../../db/pool.ts';
import { inDataset, lockDataset } from '../dataset.ts';
import { listWithLeftovers, removeLeftovers } from '../leftovers.ts';
import { writeReceipt } from './receipt.ts';

/** Removes the rows of datasets from before they were emptied, in steps. */
export async function destroyLeftovers(db: Db, { signal }: { signal?: AbortSignal } = {}): Promise<void> {
  for (const datasetId of await listWithLeftovers(db)) await removeLeftovers(db, datasetId, { signal });
}

/** The maximum number of rows removed in one transaction: far less than a tenth of a second of work. */
const chunk = 500;

/** Closes the datasets of connections that nodes of earlier versions have deleted. Looks at all datasets. */
export async function closeOrphans(db: Db): Promise<void> {
  await db.transaction(async (tx) => {
    const orphans = await tx.query<{ id: number }>(
      `select dataset_name.id
       from dataset_name
       left join connection on connection.id = dataset_name.connection
       where connection.id is null or connection.deleted_at is not null
       order by dataset_name.id`,
    );
    await closeDatasets(tx, orphans);
  });
}

/**
 * Removes the closed datasets, which are those of deleted connections, with all their rows, and returns the number of datasets. Their payloads
 * can no longer be opened. It uses small transactions: `signal` stops it after the current one, and the next call
 * continues. Several nodes may run it at once. No writer interferes, since a deleted connection accepts no records.
 */
export async function destroyOrphans(db: Db, { signal }: { signal?: AbortSignal } = {}): Promise<number> {
  const orphans = await db.query<{ id: number; connection: number }>(
    'select id, connection from dataset where closed order by id',
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

/** Removes the emptied dataset and its receipts, and writes to the audit log how much it had last. */
async function destroyDataset(db: Db, { id, connection }: { id: number; connection: number }): Promise<void> {
  const [owner] = await db.query<{ environmentId: number; target: string }>(
    `select connection.environment_id as "environmentId", integration.key || '/' || connection.connection_id as target
     from connection
     join integration on integration.id = connection.integration_id
     where connection.id = $1`,
    [connection],
  );
  const { environmentId, target } = owner ?? { target: `connection ${connection}` };
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
    // Another node has removed it.
    if (gone === undefined) return;
    const { model, variant, ...rest } = gone;
    const by = { environmentId, actor: 'service', target };
    writeReceipt(tx, by, { action: 'records.destroyed', dataset: { id, model, variant }, ...rest });
    // On a cluster, a row of its own.
    await tx.query('delete from dataset_name where id = $1', [id]);
  });
}

/** Returns whether there may be more rows. */
async function destroyRows(db: Db, of: { datasetId: number; table: 'payload' | 'record' }): Promise<boolean> {
  return recordsDb(db, of.datasetId).transaction(async (tx) => {
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
         where ${of.table}.ctid = part.row_id and ${of.table}.${inDataset}
         returning 1
       )
       select count(*) as count from gone`,
      [of.datasetId, chunk],
    );
    return (first(rows)?.count ?? 0) > 0;
  });
}
