/**
 * Stores the outcome of attempts: in the delivery, its lane and its endpoint, under the lease of the claim.
 *
 * Each statement locks lanes, then deliveries, then endpoints, each in the order of their keys, so two nodes never wait for
 * each other in a circle.
 */
import { writeAudit } from '../activity/audit.ts';
import type { Db, Queryable, Tx } from '../db/pool.ts';
import { alertIntervalMs } from '../events/alerts.ts';
import { queueEvent } from '../events/outbox.ts';
import { type Claim, findHeads, forShortWork, type Head, headSql } from './claims.ts';
import { disableEndpoint, hastenFailing, originOf } from './endpoints.ts';
import {
  afterFailure,
  afterInternalError,
  afterPause,
  type Breaker,
  isGivenUp,
  isOverdue,
  overdueBefore,
  pauseMs,
  retryDelayMs,
} from './retry-policy.ts';
import { type Attempt, evidenceOf } from './send.ts';

/** An attempt that arrived. */
export type Arrived = {
  readonly claim: Claim;
  readonly attempt: Attempt;
  readonly nowMs: number;
  /** The new lease of the lane, to continue with its next delivery. Undefined releases the lane. */
  readonly renewMs: number | undefined;
};

/**
 * Stores deliveries that arrived, in one transaction, and releases or keeps their lanes. Returns for each the claim of the
 * next delivery in its lane, if `renewMs` is given, a delivery waits, and the endpoint may still be sent to. After an alert
 * the lane stays, even without a delivery: its next alert is due after `alertIntervalMs`.
 *
 * A delivery counts as arrived even if the lease has ended and another node has the lane: the receiver confirmed it.
 */
export async function settleDelivered(db: Db, arrived: readonly Arrived[]): Promise<(Claim | undefined)[]> {
  return db.transaction(async (tx) => {
    const leasedAtMs = performance.now();
    const held = await storeDelivered(tx, arrived.flatMap(withReported));
    const next = await advance(
      tx,
      arrived.filter(({ claim }) => held.has(claimKey(claim))),
    );
    for (const { claim, nowMs } of arrived) {
      // The endpoint works again: deliveries that wait for their next attempt are due now.
      if (claim.endpoint.isProbe) await tx.query(hastenFailing, [claim.endpoint.id, new Date(nowMs)]);
    }
    return arrived.map(({ claim }) => {
      const found = next.get(claimKey(claim));
      if (found === undefined) return undefined;
      const { url, delivery } = found;
      return { ...claim, leasedAtMs, endpoint: { ...claim.endpoint, url, isProbe: false }, delivery };
    });
  });
}

/** The outcome for each delivery that the attempt reported. */
function withReported(one: Arrived): Arrived[] {
  const { claim } = one;
  const others = claim.others.map((id) => ({
    ...one,
    claim: { ...claim, delivery: { ...claim.delivery, id } },
  }));
  return [one, ...others];
}

/** Releases a lane as it was before the claim: its attempt was aborted and may have arrived, or it does not count. */
export async function release(db: Queryable, { endpoint, lane, owner }: Claim): Promise<void> {
  await db.query(
    `update delivery_lane
     set owner = null, lease_until = null
     where endpoint_id = $1 and lane = $2 and owner = $3`,
    [endpoint.id, lane, owner],
  );
}

/** Identifies a claim: two claims of a lane have different owners. */
const claimKey = ({ owner, lane }: { owner: string; lane: number }) => `${owner} ${lane}`;

/**
 * Stores the deliveries, and locks and returns the lanes that their claims still hold.
 *
 * An endpoint's row is written only for a change of its state, so deliveries of many lanes do not wait for its lock; and
 * only while the endpoint still has the address that the delivery was sent to.
 */
async function storeDelivered(tx: Tx, arrived: readonly Arrived[]): Promise<Set<string>> {
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
     ), stored as (
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
  return new Set(held.map(claimKey));
}

/**
 * The next delivery of lanes that the transaction locked in an earlier statement. A lane without one is deleted, unless it
 * limits alerts.
 */
async function advance(
  tx: Tx,
  arrived: readonly Arrived[],
): Promise<Map<string, { url: string; delivery: Head }>> {
  if (arrived.length === 0) return new Map();
  const rows = await tx.query<Head & { owner: string; lane: number; url: string }>(
    `with held as (
       select *
       from unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::timestamptz[], $5::float8[], $6::timestamptz[])
         as held (endpoint_id, lane, owner, at, renew_s, quiet_until)
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
         and next.quiet_until is null
     ), kept as (
       update delivery_lane
       set failures = 0,
         due_at = coalesce(next.quiet_until, next.at),
         owner = case when next.url is not null then next.owner end,
         lease_until = case
           when next.url is not null then clock_timestamp() + make_interval(secs => next.renew_s)
         end
       from next
       where delivery_lane.endpoint_id = next.endpoint_id
         and delivery_lane.lane = next.lane
         and (next.id is not null or next.quiet_until is not null)
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
      arrived.map(({ claim, nowMs }) =>
        claim.endpoint.format === 'standard' ? null : new Date(nowMs + alertIntervalMs),
      ),
    ],
  );
  return new Map(
    rows.map(({ url, owner, lane, ...delivery }) => [claimKey({ owner, lane }), { url, delivery }]),
  );
}

type Settling = {
  claim: Claim;
  attempt: Attempt;
  nowMs: number;
  /** 0 to 1. */
  random: number;
};

/**
 * Stores a failed attempt: it is repeated later, or the delivery is a dead letter. The breaker of the endpoint counts the
 * failure, and an endpoint that is gone or has failed for days is disabled. Changes under another lease stay. An attempt
 * at an address that the endpoint no longer has does not count: its lane is released, for the new address.
 */
export async function settleFailed(db: Db, settling: Settling): Promise<void> {
  const { claim, attempt, nowMs, random } = settling;
  const { delivery, endpoint, environmentId, lane } = claim;
  const now = new Date(nowMs);
  await db.transaction(async (tx) => {
    if (!(await holdLane(tx, claim))) return;
    const before = await holdBreaker(tx, claim);
    if (before === undefined) return release(tx, claim);
    const isDead = isOverdue(delivery.queuedAt, nowMs);
    await tx.query(
      `update delivery
       set attempts = attempts + 1,
         last_attempt_at = $3,
         last_attempt = $4,
         status = case when queued_at <= $5 then 'dead' else status end,
         settled_at = case when queued_at <= $5 then $3::timestamptz end
       where id = any ($1) and environment_id = $2 and status = 'waiting'`,
      [
        [delivery.id, ...claim.others],
        environmentId,
        now,
        JSON.stringify(evidenceOf(attempt)),
        new Date(overdueBefore(nowMs)),
      ],
    );
    const dueAt = new Date(nowMs + retryDelayMs(delivery.attempts + 1, random));
    if (isDead) await releaseForNext(tx, settling);
    else {
      await tx.query(
        `update delivery_lane
         set owner = null, lease_until = null, failures = failures + 1, due_at = $3
         where endpoint_id = $1 and lane = $2`,
        [endpoint.id, lane, dueAt],
      );
    }
    if (attempt.error === 'internal') {
      // A probe that was not sent proves nothing: the next probe is due with the next attempt.
      const { openUntil } = afterInternalError(before, dueAt);
      await tx.query('update endpoint set open_until = $3 where id = $1 and environment_id = $2', [
        endpoint.id,
        environmentId,
        openUntil,
      ]);
    } else await storeFailure(tx, { ...settling, before });
  });
}

/**
 * Locks the lane and the deliveries of the claim. False if another claim holds the lane by now, or if no delivery exists any
 * more.
 */
async function holdLane(tx: Tx, { delivery, others, endpoint, lane, owner }: Claim): Promise<boolean> {
  const rows = await tx.query(
    `select set_config('idle_in_transaction_session_timeout', '10000', true)
     from delivery_lane
     join delivery on delivery.id = any ($4)
     where delivery_lane.endpoint_id = $1
       and delivery_lane.lane = $2
       and delivery_lane.owner = $3
     order by delivery.id
     for update of delivery_lane, delivery`,
    [endpoint.id, lane, owner, [delivery.id, ...others]],
  );
  return rows.length > 0;
}

type Held = Breaker & { readonly pausedUntil: Date | null };

/** Undefined if the endpoint has another address by now. */
async function holdBreaker(tx: Tx, { endpoint, environmentId }: Claim): Promise<Held | undefined> {
  const [before] = await tx.query<Held>(
    `select
       failures,
       failing_since as "failingSince",
       openings,
       open_until as "openUntil",
       paused_until as "pausedUntil"
     from endpoint
     where id = $1 and environment_id = $2 and url = $3
     for no key update`,
    [endpoint.id, environmentId, endpoint.url],
  );
  return before;
}

/** The delivery behind a dead letter is due at once. A lane without one is deleted. */
async function releaseForNext(tx: Tx, { claim, nowMs }: Settling): Promise<void> {
  const { endpoint, lane } = claim;
  const [next] = await findHeads(tx, { endpointId: endpoint.id, lanes: [lane] });
  if (next === undefined) return;
  await tx.query(
    `update delivery_lane
     set owner = null, lease_until = null, failures = 0, due_at = $3
     where endpoint_id = $1 and lane = $2`,
    [endpoint.id, lane, new Date(nowMs)],
  );
}

async function storeFailure(
  tx: Tx,
  { claim, attempt, nowMs, random, before }: Settling & { before: Held },
): Promise<void> {
  const { endpoint, environmentId } = claim;
  const { requestedPauseMs } = attempt;
  const at = { nowMs, random };
  const breaker =
    requestedPauseMs === undefined
      ? afterFailure(before, at)
      : afterPause(before, { ...at, requestedPauseMs });
  const pausedUntil = requestedPauseMs === undefined ? null : new Date(nowMs + pauseMs(requestedPauseMs));
  const now = new Date(nowMs);
  await tx.query(
    `update endpoint
     set failures = $3,
       failing_since = $4,
       openings = $5,
       open_until = $6,
       paused_until = greatest(paused_until, $7),
       last_failure_at = $8,
       last_failure = $9
     where id = $1 and environment_id = $2`,
    [
      endpoint.id,
      environmentId,
      breaker.failures,
      breaker.failingSince,
      breaker.openings,
      breaker.openUntil,
      pausedUntil,
      now,
      JSON.stringify(evidenceOf(attempt)),
    ],
  );
  if (attempt.httpStatus === 410) await disable(tx, { claim, attempt, cause: 'gone', now });
  else if (isGivenUp(breaker, nowMs)) await disable(tx, { claim, attempt, cause: 'failing', now });
}

const nextSteps = {
  gone: 'The endpoint responded with 410 (permanently gone). Delete it, or enable it again and replay the missed events.',
  failing:
    'All deliveries to the endpoint have failed for five days. Fix the endpoint, enable it again, and replay the missed events.',
};

async function disable(
  tx: Tx,
  of: { claim: Claim; attempt: Attempt; cause: 'gone' | 'failing'; now: Date },
): Promise<void> {
  const { cause, now } = of;
  const { endpoint, environmentId } = of.claim;
  const at = { id: endpoint.id, environmentId };
  if (!(await disableEndpoint(tx, { at, cause, now }))) return;
  const { httpStatus, error } = of.attempt;
  await queueEvent(tx, {
    environmentId,
    type: 'endpoint.disabled',
    data: {
      endpoint_id: endpoint.id,
      // The rest of a receiver's address may be its secret, and all other endpoints get this event.
      url: originOf(endpoint.url),
      cause,
      evidence: { ...(error && { error }), ...(httpStatus !== undefined && { http_status: httpStatus }) },
      next_step: nextSteps[cause],
    },
  });
  await writeAudit(tx, {
    environmentId,
    actor: 'service',
    action: 'endpoint.disabled',
    target: String(endpoint.id),
    details: { cause },
  });
}
