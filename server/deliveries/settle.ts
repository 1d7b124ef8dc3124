import type { Db, Tx } from '../db/pool.ts';
import { type Claim, forShortWork, type Head, headSql } from './claims.ts';
import { hastenFailing } from './endpoints.ts';

import { type Attempt, evidenceOf } from './send.ts';

/** A delivery that arrived. */
export type Arrived = {
  readonly claim: Claim;
  readonly attempt: Attempt;
  readonly nowMs: number;
  /** Goes on with the lane for so long, in ms; undefined gives it back. */
  readonly renewMs: number | undefined;
};

/**
 * Notes deliveries that arrived, in one transaction, and gives their lanes back or goes on with them. Answers for each the
 * claim of what is next, where `renewMs` asks for it, something waits, and the endpoint may still be sent to.
 *
 * It counts as arrived also where the lease has ended meanwhile and another node has the lane: the receiver said so.
 */
export async function settleDelivered(db: Db, arrived: readonly Arrived[]): Promise<(Claim | undefined)[]> {
  return db.transaction(async (tx) => {
    const leasedAtMs = performance.now();
    const held = await noteDelivered(tx, arrived);
    const next = await advance(
      tx,
      arrived.filter(({ claim }) => held.has(rightOf(claim))),
    );
    for (const { claim, nowMs } of arrived) {
      // It is back: what waits for its next attempt need not wait any longer.
      if (claim.endpoint.isProbe) await tx.query(hastenFailing, [claim.endpoint.id, new Date(nowMs)]);
    }
    return arrived.map(({ claim }) => {
      const found = next.get(rightOf(claim));
      if (found === undefined) return undefined;
      const { url, delivery } = found;
      return { ...claim, leasedAtMs, endpoint: { ...claim.endpoint, url, isProbe: false }, delivery };
    });
  });
}

/** Gives a lane back as it was: its attempt was broken off, and nobody knows whether it arrived, or was never begun. */
export async function release(db: Db, { endpoint, lane, owner }: Claim): Promise<void> {
  await db.query(
    `update delivery_lane
     set owner = null, lease_until = null
     where endpoint_id = $1 and lane = $2 and owner = $3`,
    [endpoint.id, lane, owner],
  );
}

/** What a claim is told from others by: two of one lane have two owners. */
const rightOf = ({ owner, lane }: { owner: string; lane: number }) => `${owner} ${lane}`;

/**
 * Locks the lanes that are still held, and answers whose they are.
 *
 * Everything is locked in one order, lanes, deliveries, endpoints, each by its key, so that two nodes never wait for each
 * other. An endpoint's row is written only where it says something new, so that deliveries of many lanes do not queue up
 * for it; and nothing is said about an address that it has no longer.
 */
async function noteDelivered(tx: Tx, arrived: readonly Arrived[]): Promise<Set<string>> {
  const held = await tx.query<{ owner: string; lane: number }>(
    `with arrived as materialized (
       select *
       from unnest(
         $1::bigint[], $2::bigint[], $3::uuid[], $4::bigint[], $5::bigint[], $6::text[], $7::timestamptz[], $8::text[]
       ) as arrived (endpoint_id, lane, owner, environment_id, delivery_id, url, at, evidence)
     ), held as materialized (
       select arrived.owner, arrived.lane
       from arrived
       join delivery_lane
         on delivery_lane.endpoint_id = arrived.endpoint_id
         and delivery_lane.lane = arrived.lane
         and delivery_lane.owner = arrived.owner
       order by delivery_lane.endpoint_id, delivery_lane.lane
       for update of delivery_lane
     ), waiting as materialized (
       select delivery.id, arrived.at, arrived.evidence
       from (select count(*) from held) as after_lanes
       cross join arrived
       join delivery
         on delivery.id = arrived.delivery_id
         and delivery.environment_id = arrived.environment_id
         and delivery.status = 'waiting'
       order by delivery.id
       for update of delivery
     ), noted as (
       update delivery
       set attempts = attempts + 1,
         last_attempt_at = waiting.at,
         last_attempt = waiting.evidence::jsonb,
         status = 'delivered',
         settled_at = waiting.at
       from waiting
       where delivery.id = waiting.id
     ), succeeded as materialized (
       select endpoint_id, environment_id, url, max(at) as at
       from arrived
       group by endpoint_id, environment_id, url
     ), behind as materialized (
       select endpoint.id, succeeded.at
       from (select count(*) from waiting) as after_deliveries
       cross join succeeded
       join endpoint
         on endpoint.id = succeeded.endpoint_id
         and endpoint.environment_id = succeeded.environment_id
         and endpoint.url = succeeded.url
       where endpoint.failures > 0
         or endpoint.failing_since is not null
         or endpoint.open_until is not null
         or endpoint.last_success_at is null
         or endpoint.last_success_at < succeeded.at - interval '10 seconds'
       order by endpoint.id
       for no key update of endpoint
     ), healthy as (
       update endpoint
       set failures = 0,
         failing_since = null,
         openings = 0,
         open_until = null,
         last_success_at = greatest(last_success_at, behind.at)
       from behind
       where endpoint.id = behind.id
     )
     select owner, lane, ${forShortWork}
     from held`,
    [
      arrived.map(({ claim }) => claim.endpoint.id),
      arrived.map(({ claim }) => claim.lane),
      arrived.map(({ claim }) => claim.owner),
      arrived.map(({ claim }) => claim.environmentId),
      arrived.map(({ claim }) => claim.delivery.id),
      arrived.map(({ claim }) => claim.endpoint.url),
      arrived.map(({ nowMs }) => new Date(nowMs)),
      arrived.map(({ attempt }) => JSON.stringify(evidenceOf(attempt))),
    ],
  );
  return new Set(held.map(rightOf));
}

type Next = { url: string; delivery: Head };

/** On to what waits next in lanes that the transaction has locked in a statement before; one without any is closed. */
async function advance(tx: Tx, arrived: readonly Arrived[]): Promise<Map<string, Next>> {
  if (arrived.length === 0) return new Map();
  const rows = await tx.query<Head & { owner: string; lane: number; url: string }>(
    `with held as (
       select *
       from unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::timestamptz[], $5::float8[])
         as held (endpoint_id, lane, owner, at, renew_s)
     ), next as materialized (
       select held.*, endpoint.url, head.*
       from held
       left join endpoint
         on endpoint.id = held.endpoint_id
         and held.renew_s is not null
         and endpoint.deleted_at is null
         and endpoint.disabled_at is null
         and endpoint.open_until is null
         and coalesce(endpoint.paused_until <= held.at, true)
       left join lateral (${headSql({ endpointId: 'held.endpoint_id', lane: 'held.lane' })}) as head on true
     ), closed as (
       delete from delivery_lane
       using next
       where delivery_lane.endpoint_id = next.endpoint_id
         and delivery_lane.lane = next.lane
         and next.id is null
     ), kept as (
       update delivery_lane
       set failures = 0,
         due_at = next.at,
         owner = case when next.url is not null then next.owner end,
         lease_until = case
           when next.url is not null then clock_timestamp() + make_interval(secs => next.renew_s)
         end
       from next
       where delivery_lane.endpoint_id = next.endpoint_id
         and delivery_lane.lane = next.lane
         and next.id is not null
     )
     select owner, lane, url, id, attempts, "queuedAt", "eventId", type, "createdAt", data
     from next
     where id is not null and url is not null`,
    [
      arrived.map(({ claim }) => claim.endpoint.id),
      arrived.map(({ claim }) => claim.lane),
      arrived.map(({ claim }) => claim.owner),
      arrived.map(({ nowMs }) => new Date(nowMs)),
      arrived.map(({ renewMs }) => (renewMs === undefined ? null : renewMs / 1000)),
    ],
  );
  return new Map(
    rows.map(({ url, owner, lane, ...delivery }) => [rightOf({ owner, lane }), { url, delivery }]),
  );
}
