/**
 * Retention: removes payloads and tombstones by age, as a policy says, in small steps.
 *
 * Owns: which datasets are due, stale consumers, and the events. Does not own: the steps (`retention-steps.ts`),
 * policies (`policy.ts`), consumers (`consumers.ts`), the removal of payloads (`prune.ts`), and datasets whose
 * connection is deleted (`destroy.ts`).
 */
import { chainAll } from '../../activity/audit-chain.ts';
import { type Activity, noActivity } from '../../activity/writer.ts';
import { type Db, first, recordsDb } from '../../db/pool.ts';
import { queueEvent } from '../../events/outbox.ts';
import type { Job } from '../../jobs/jobs.ts';
import { hasNodesBefore } from '../../nodes/nodes.ts';
import { cursorWriter, type Position } from '../cursor.ts';
import { type DatasetName, planByIndexAlone } from '../dataset.ts';
import { findEventOwner, queueDatasetEvent } from '../datasets.ts';
import { closeOrphans, destroyLeftovers, destroyOrphans } from './destroy.ts';
import {
  addPurges,
  createPace,
  type DueDataset,
  noPurge,
  type PurgeTotals,
  policyOfConnection,
  retainDataset,
} from './retention-steps.ts';

/** Nodes close the datasets of a connection that they delete from this migration on. */
const closedDatasetsMigration = 58;

/** The background jobs of the record cache. */
export function recordJobs(db: Db, activity = noActivity): Job<Record<string, never>>[] {
  let mayHaveUnclosed = true;
  return [
    {
      name: 'records.retention',
      run: (_, signal) => runRetention(db, { now: new Date(), signal, activity }),
    },
    {
      name: 'records.destroy-orphans',
      async run(_, signal) {
        await destroyLeftovers(db, { signal });
        if (mayHaveUnclosed) {
          // Each node looks once after the last older one has stopped.
          const hasOlderNodes = await hasNodesBefore(db, closedDatasetsMigration);
          await closeOrphans(db);
          mayHaveUnclosed = hasOlderNodes;
        }
        await destroyOrphans(db, { signal });
      },
    },
  ];
}

/**
 * Removes what is due at `now` in the next `lookedAtOnce` datasets, one by one, until done or until `signal` aborts; the
 * next call finds the rest. Several nodes may run it at once. Each step is one transaction with its receipt in the audit log. The event
 * `records.retention_done` reports the totals of an environment, also those of a run that was killed before its event.
 * A failure does not stop the other datasets, and is thrown at the end. `clock` returns milliseconds.
 */
export async function runRetention(
  db: Db,
  by: { now: Date; signal?: AbortSignal; clock?: () => number; activity?: Activity },
): Promise<PurgeTotals> {
  const { now, signal, clock = () => performance.now(), activity = noActivity } = by;
  const failures: unknown[] = [];
  const attempt = async <T>(work: Promise<T>, instead: T): Promise<T> =>
    work.catch((error: unknown) => {
      failures.push(error);
      return instead;
    });
  // If this fails, policies wait for those consumers until the next run.
  await attempt(reportStaleConsumers(db, now), undefined);
  const pace = createPace();
  let total = noPurge;
  const { due: found, next } = await attempt(findDue(db, now), { due: [] });
  for (const due of found) {
    if (signal?.aborted) break;
    total = addPurges(total, await attempt(retainDataset(db, { due, now, signal, pace, clock }), noPurge));
  }
  if (next !== undefined && !signal?.aborted) await attempt(moveWalk(db, next), undefined);
  await attempt(reportTotals(db, activity), undefined);
  if (failures.length > 0)
    throw new AggregateError(failures, 'the retention of some datasets failed; it is retried later');
  return total;
}

/** Datasets that one run looks at. */
export const lookedAtOnce = 5_000;
/** In `sequencer`: the last dataset that was looked at, 0 for none. */
const walk = 'retention';

/**
 * Finds, among the next datasets after the last run's, those whose oldest payload or tombstone is older than their policy
 * allows, by two index probes each. `next` is what the last run has looked at when it has removed what is due.
 *
 * What is due changes with every save, restore and policy, so no index of due datasets is kept: it would cost each write. A
 * policy counts days, and a run looks at 5,000 datasets a minute.
 */
async function findDue(db: Db, now: Date): Promise<{ due: DueDataset[]; next?: number }> {
  const [last] = await db.query<{ position: number }>(
    `select coalesce((select last_position from sequencer where name = $1), 0) as position
     where exists (select from retention)`,
    [walk],
  );
  if (last === undefined) return { due: [] };
  return db.transaction(async (tx) => {
    await planByIndexAlone(tx);
    const [end] = await tx.query<{ id: number }>(
      'select id from dataset_name where id > $1 order by id limit 1 offset $2',
      [last.position, lookedAtOnce - 1],
    );
    const kept = await tx.query<DueDataset & { pruneDays: number | null; removeDays: number | null }>(
      `select
         dataset_name.id,
         dataset_name.connection,
         dataset_name.model,
         dataset_name.variant,
         connection.environment_id as "environmentId",
         integration.key || '/' || connection.connection_id as target,
         policy.prune_after_days as "pruneDays",
         policy.remove_tombstones_after_days as "removeDays"
       from dataset_name
       join connection on connection.id = dataset_name.connection
       join integration on integration.id = connection.integration_id
       ${policyOfConnection}
       where
         dataset_name.id > $1
         and dataset_name.id <= $2
         and connection.deleted_at is null`,
      [last.position, end?.id ?? Number.MAX_SAFE_INTEGER],
    );
    const before = (days: number | null) => (days === null ? null : new Date(now.getTime() - days * dayMs));
    const found = await tx.query<{ id: number }>(
      `select dataset.id
       from unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) as kept (id, prune_before, remove_before)
       join dataset on dataset.id = kept.id
       where
         (
           dataset.pruned < dataset.records + dataset.deleted
           and (
             select last_modified_at
             from record
             where dataset_id = dataset.id and seq >= (
               select seq
               from payload
               where dataset_id = dataset.id and seq > dataset.prune_floor
               order by seq
               limit 1
             )
             order by seq
             limit 1
           ) < kept.prune_before
         ) or (
           dataset.deleted > 0
           and (
             select last_modified_at
             from record
             where dataset_id = dataset.id and deleted_at is not null
             order by seq
             limit 1
           ) < kept.remove_before
         )`,
      [
        kept.map(({ id }) => id),
        kept.map(({ pruneDays }) => before(pruneDays)),
        kept.map(({ removeDays }) => before(removeDays)),
      ],
    );
    const byId = new Map(kept.map(({ pruneDays: _, removeDays: __, ...due }) => [due.id, due]));
    // An order in SQL would start from all datasets.
    const due = found.map(({ id }) => byId.get(id) as DueDataset).sort((a, b) => a.id - b.id);
    const next = end?.id ?? 0;
    return next === last.position ? { due } : { due, next };
  });
}

async function moveWalk(db: Db, to: number): Promise<void> {
  await db.query(
    `insert into sequencer (name, last_position)
     values ($1, $2)
     on conflict on constraint sequencer_pkey do update set last_position = excluded.last_position`,
    [walk, to],
  );
}

const dayMs = 86_400_000;
/** A consumer that is silent for longer is stale. */
const staleAfterDays = 30;
/** A silent consumer that has taken all changes is looked at again after one or two days, those of all datasets in turn. */
const lookAgainDays = (datasetId: number) => 1 + (datasetId % 1440) / 1440;
/** SQL: since when a consumer that is not stale is silent, as the index has it. */
const silence = 'case when stale_at is null then greatest(acknowledged_at, silent_from) end';
/** Consumers that one statement finds. */
const consumersAtOnce = 100;

/**
 * Raises `consumer.stale` once for each consumer that has been silent for 30 days while changes wait for it. From then
 * on, no policy waits for it until it acknowledges again. A consumer that has taken all changes is not stale, however
 * long ago that was, but the consumer of a quiet dataset should acknowledge its position from time to time: it is looked at
 * every day or two.
 */
async function reportStaleConsumers(db: Db, now: Date): Promise<void> {
  const ago = (days: number) => new Date(now.getTime() - days * dayMs);
  const silentSince = ago(staleAfterDays);
  for (;;) {
    const silent = await db.transaction(async (tx) => {
      await planByIndexAlone(tx);
      return tx.query<SilentConsumer>(
        `select
           consumer.dataset_id as "datasetId",
           consumer.name,
           consumer.seq,
           coalesce(
             consumer.seq < (
               select seq from record where dataset_id = consumer.dataset_id order by seq desc limit 1
             ),
             false
           ) as "isBehind"
         from consumer
         where ${silence} < $1
         order by ${silence}, consumer.id
         limit ${consumersAtOnce}`,
        [silentSince],
      );
    });
    for (const { datasetId, name, seq, isBehind } of silent) {
      // A consumer that was moved meanwhile, or that another node has marked, stays as it is.
      const isSame = `dataset_id = $1 and name = $2 and seq = $3 and ${silence} < $4`;
      const values = [datasetId, name, seq, silentSince];
      if (!isBehind) {
        const silentFrom = ago(staleAfterDays - lookAgainDays(datasetId));
        await recordsDb(db, datasetId).query(`update consumer set silent_from = $5 where ${isSame}`, [
          ...values,
          silentFrom,
        ]);
        continue;
      }
      const [named] = await recordsDb(db, datasetId).query<DatasetName>(
        'select connection, model, variant from dataset where id = $1',
        [datasetId],
      );
      // Destroyed meanwhile.
      if (named === undefined) continue;
      const owner = await findEventOwner(db, named.connection);
      await recordsDb(db, datasetId).transaction(async (tx) => {
        const [marked] = await tx.query<Position & { acknowledgedAt: Date }>(
          `update consumer
           set stale_at = $5
           where ${isSame}
           returning since, acknowledged_at as "acknowledgedAt"`,
          [...values, now],
        );
        if (marked === undefined) return;
        const cursor = seq === 0 ? null : cursorWriter(datasetId, marked.since)(seq);
        const data = { consumer: name, cursor, acknowledged_at: marked.acknowledgedAt.toISOString() };
        const dataset = { id: datasetId, ...named };
        queueDatasetEvent(tx, { dataset, owner }, { type: 'consumer.stale', data });
      });
    }
    if (silent.length < consumersAtOnce) return;
  }
}

type SilentConsumer = { datasetId: number; name: string; seq: number; isBehind: boolean };

/** Raises `records.retention_done` in each environment for the totals that were not reported yet, and logs it. */
async function reportTotals(db: Db, activity: Activity): Promise<void> {
  // The totals of a step arrive with its entry in the log.
  await chainAll(db);
  const rows = await db.query<{ environmentId: number }>(
    'select distinct environment_id as "environmentId" from retained',
  );
  for (const { environmentId } of rows) {
    const reported = await db.transaction(async (tx) => {
      const totals = first(
        await tx.query<PurgeTotals & { datasets: number }>(
          `with reported as (
             delete from retained
             where environment_id = $1
             returning payloads, bytes, tombstones
           )
           select
             count(*) as datasets,
             sum(payloads)::bigint as payloads,
             sum(bytes)::bigint as bytes,
             sum(tombstones)::bigint as tombstones
           from reported`,
          [environmentId],
        ),
      );
      // Another node has reported them.
      if (totals === undefined || totals.datasets === 0) return undefined;
      const { datasets, payloads: pruned, bytes, tombstones: tombstones_removed } = totals;
      const details = { datasets, pruned, bytes, tombstones_removed };
      await queueEvent(tx, { environmentId, type: 'records.retention_done', data: details });
      return details;
    });
    if (reported === undefined) continue;
    const operation = { environmentId, type: 'records.retention', actor: 'retention' } as const;
    activity.log({ ...operation, status: 'success', details: reported });
  }
}
