import type { Activity } from '../activity/writer.ts';
import { type Db, first, type Tx } from '../db/pool.ts';
import { queueEvent } from '../events/outbox.ts';

/** The totals that retention has removed: `bytes` are sealed bytes of payloads and of contents of tombstones. */
export type PurgeTotals = { payloads: number; bytes: number; tombstones: number };

export const nothing: PurgeTotals = { payloads: 0, bytes: 0, tombstones: 0 };

export function sum(a: PurgeTotals, b: PurgeTotals): PurgeTotals {
  return {
    payloads: a.payloads + b.payloads,
    bytes: a.bytes + b.bytes,
    tombstones: a.tombstones + b.tombstones,
  };
}

/** Stores the totals of a step in its transaction, so that they are reported even if the run does not finish. */
export async function noteRetained(
  tx: Tx,
  of: { environmentId: number; datasetId: number },
  went: PurgeTotals,
): Promise<void> {
  await tx.query(
    `insert into retained (environment_id, dataset_id, payloads, bytes, tombstones)
     values ($1, $2, $3, $4, $5)
     on conflict on constraint retained_pkey do update
     set
       payloads = retained.payloads + excluded.payloads,
       bytes = retained.bytes + excluded.bytes,
       tombstones = retained.tombstones + excluded.tombstones`,
    [of.environmentId, of.datasetId, went.payloads, went.bytes, went.tombstones],
  );
}

/**
 * Raises `records.retention_done` in each environment for what it has not been told of yet, once for each step, and logs
 * it.
 */
export async function tellRetained(db: Db, activity: Activity): Promise<void> {
  const rows = await db.query<{ environmentId: number }>(
    'select distinct environment_id as "environmentId" from retained',
  );
  for (const { environmentId } of rows) {
    const told = await db.transaction(async (tx) => {
      const gone = first(
        await tx.query<PurgeTotals & { datasets: number }>(
          `with told as (
             delete from retained
             where environment_id = $1
             returning payloads, bytes, tombstones
           )
           select
             count(*) as datasets,
             sum(payloads)::bigint as payloads,
             sum(bytes)::bigint as bytes,
             sum(tombstones)::bigint as tombstones
           from told`,
          [environmentId],
        ),
      );
      // Another node was faster.
      if (gone === undefined || gone.datasets === 0) return undefined;
      const details = {
        datasets: gone.datasets,
        pruned: gone.payloads,
        bytes: gone.bytes,
        tombstones_removed: gone.tombstones,
      };
      await queueEvent(tx, { environmentId, type: 'records.retention_done', data: details });
      return details;
    });
    if (told === undefined) continue;
    const operation = { environmentId, type: 'records.retention', actor: 'retention' } as const;
    activity.log({ ...operation, status: 'success', details: told });
  }
}
