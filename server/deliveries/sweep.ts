import type { Db } from '../db/pool.ts';
import { lockSequence } from '../db/sequencer.ts';
import type { Job } from '../jobs/jobs.ts';
import { overdueBefore } from './retry-policy.ts';

/** Rows of one transaction, which takes far less than a tenth of a second. */
const step = 1_000;
const dayMs = 24 * 3_600_000;
/** After this time no transaction queues for an endpoint that was deleted meanwhile. */
const minuteMs = 60_000;

type SweepOptions = {
  db: Db;
  now: () => Date;
  /** The days for which delivered rows are kept. */
  keptDays: number;
};

/**
 * Deletes, in small transactions that any number of nodes may run: deliveries that arrived `keptDays` ago; the deliveries of
 * a deleted endpoint, then its row; and endpoints for addresses that no connection has any more. A delivery that waits for a
 * disabled endpoint longer than the time for attempts becomes a dead letter. Dead letters are deleted with their event.
 */
export function deliverySweepJob({ db, now, keptDays }: SweepOptions): Job<Record<string, never>> {
  return {
    name: 'deliveries.sweep',
    async run(_, signal) {
      /** Repeats `work` until it finds less than a full step. */
      const all = async (work: () => Promise<number>) => {
        while (!signal.aborted && (await work()) === step);
      };
      const nowMs = now().getTime();
      await all(async () => (await db.query(removeOld, [new Date(nowMs - keptDays * dayMs), step])).length);
      const overdue = new Date(overdueBefore(nowMs));
      for (const { id } of await db.query<{ id: number }>(disabledWithOverdue, [overdue])) {
        await all(() => expireWaiting(db, { id, overdue, now: now() }));
      }
      for (const { id } of await db.query<{ id: number }>(deletedEndpoints)) {
        await all(async () => (await db.query(removeOfDeleted, [id, step])).length);
      }
      await all(() => deleteUnused(db, now()));
      if (!signal.aborted) await db.query(removeDeleted, [new Date(nowMs - minuteMs)]);
    },
  };
}

const removeOld = `
  delete from delivery
  where id in (
    select id
    from delivery
    where status = 'delivered' and settled_at < $1
    order by settled_at
    limit $2
    for update skip locked
  )
  returning id`;

const disabledWithOverdue = `
  select id
  from endpoint
  where disabled_at is not null
    and deleted_at is null
    and exists (
      select
      from delivery
      where delivery.endpoint_id = endpoint.id
        and delivery.status = 'waiting'
        and delivery.queued_at < $1
    )`;

/** Also deletes lanes without a waiting delivery, which each look would examine. */
async function expireWaiting(
  db: Db,
  { id, overdue, now }: { id: number; overdue: Date; now: Date },
): Promise<number> {
  return db.transaction(async (tx) => {
    const dead = await tx.query<{ lane: number }>(
      `update delivery
       set status = 'dead', settled_at = $3
       where id in (
         select delivery.id
         from delivery
         join endpoint on endpoint.id = delivery.endpoint_id and endpoint.disabled_at is not null
         where delivery.endpoint_id = $1 and delivery.status = 'waiting' and delivery.queued_at < $2
         order by delivery.queued_at
         limit $4
         for update of delivery skip locked
       )
       returning lane`,
      [id, overdue, now, step],
    );
    const lanes = [...new Set(dead.map(({ lane }) => lane))];
    // Locked by a separate statement, so that the next one includes what was queued until then.
    const idle = await tx.query<{ lane: number }>(
      `select lane
       from delivery_lane
       where endpoint_id = $1 and lane = any ($2) and coalesce(lease_until <= clock_timestamp(), true)
       for update skip locked`,
      [id, lanes],
    );
    await tx.query(
      `delete from delivery_lane
       where endpoint_id = $1
         and lane = any ($2)
         and not exists (
           select
           from delivery
           where delivery.endpoint_id = delivery_lane.endpoint_id
             and delivery.lane = delivery_lane.lane
             and delivery.status = 'waiting'
         )`,
      [id, idle.map(({ lane }) => lane)],
    );
    return dead.length;
  });
}

const deletedEndpoints = `
  select id
  from endpoint
  where deleted_at is not null
  order by id`;

const removeOfDeleted = `
  delete from delivery
  where id in (
    select id
    from delivery
    where endpoint_id = $1
    limit $2
    for update skip locked
  )
  returning id`;

const removeDeleted = `
  delete from endpoint
  where deleted_at < $1
    and not exists (select from delivery where delivery.endpoint_id = endpoint.id)`;

/**
 * A transaction that queues holds the same row of the sequence, so none queues for these endpoints meanwhile. The long search
 * comes first, without that lock. Its result is checked again under the lock.
 */
async function deleteUnused(db: Db, now: Date): Promise<number> {
  const found = await db.query<{ id: number }>(
    `select endpoint.id
     from endpoint
     where ${isUnused}
     limit $1`,
    [step],
  );
  if (found.length === 0) return 0;
  const deleted = await db.transaction(async (tx) => {
    await lockSequence(tx, { name: 'event', lock: 'for update' });
    return tx.query(
      `update endpoint
       set deleted_at = $1
       where id in (
         select endpoint.id
         from endpoint
         where endpoint.id = any ($2) and ${isUnused}
         for update skip locked
       )
       returning id`,
      [now, found.map(({ id }) => id)],
    );
  });
  return deleted.length;
}

const isUnused = `
  endpoint.kind = 'override'
  and endpoint.deleted_at is null
  and not exists (
    select
    from connection
    where connection.environment_id = endpoint.environment_id
      and md5(connection.webhook_url_override) = md5(endpoint.url)
      and connection.deleted_at is null
  )
  and not exists (
    select
    from delivery
    where delivery.endpoint_id = endpoint.id and delivery.status in ('waiting', 'dead')
  )`;
