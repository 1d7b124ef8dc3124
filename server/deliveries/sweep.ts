import type { Db } from '../db/pool.ts';
import { lockSequence } from '../db/sequencer.ts';
import type { Job } from '../jobs/jobs.ts';
import { overdueBefore } from './breaker.ts';

/** Rows of one transaction: far less than a tenth of a second of work. */
const step = 1_000;
const dayMs = 24 * 3_600_000;
/** By then nobody is queueing for an endpoint who found it before it was deleted. */
const minuteMs = 60_000;

type Deps = {
  db: Db;
  now: () => Date;
  /** How many days deliveries that arrived are kept. */
  keptDays: number;
};

/**
 * Clears away, in small transactions that any number of nodes may run: deliveries that arrived `keptDays` ago, all of a
 * deleted endpoint and then its row, and endpoints of connections whose address nobody has any more. What waits for a
 * disabled endpoint longer than an event is tried becomes a dead letter. Those go with their event.
 */
export function deliverySweepJob({ db, now, keptDays }: Deps): Job<Record<string, never>> {
  return {
    name: 'deliveries.sweep',
    async run(_, signal) {
      /** Steps until one finds less than it might take. */
      const all = async (work: () => Promise<number>) => {
        while (!signal.aborted && (await work()) === step);
      };
      const nowMs = now().getTime();
      await all(async () => (await db.query(removeOld, [new Date(nowMs - keptDays * dayMs), step])).length);
      const overdue = new Date(overdueBefore(nowMs));
      for (const { id } of await db.query<{ id: number }>(disabledWithOverdue, [overdue])) {
        await all(() => letDie(db, { id, overdue, now: now() }));
      }
      for (const { id } of await db.query<{ id: number }>(deletedEndpoints)) {
        await all(async () => (await db.query(removeOfDeleted, [id, step])).length);
      }
      await all(() => forgetUnused(db, now()));
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

/** Lanes in which nothing waits any more are closed with it: an open one is looked at again and again. */
async function letDie(
  db: Db,
  { id, overdue, now }: { id: number; overdue: Date; now: Date },
): Promise<number> {
  return db.transaction(async (tx) => {
    const died = await tx.query<{ lane: number }>(
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
    const lanes = [...new Set(died.map(({ lane }) => lane))];
    // Locked first, in a statement of its own, so that the next one sees what somebody queued until then.
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
    return died.length;
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
 * Nobody queues for one meanwhile: who does holds the same row of the sequence. The long look comes before, without that
 * lock, and under it what was found is looked at again.
 */
async function forgetUnused(db: Db, now: Date): Promise<number> {
  const found = await db.query<{ id: number }>(
    `select endpoint.id
     from endpoint
     where ${isUnused}
     limit $1`,
    [step],
  );
  if (found.length === 0) return 0;
  const forgotten = await db.transaction(async (tx) => {
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
  return forgotten.length;
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
