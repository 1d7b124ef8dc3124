import { writeAudit } from '../activity/audit.ts';
import type { Db, Tx } from '../db/pool.ts';
import { queueEvent } from '../events/outbox.ts';
import {
  afterFailure,
  afterOurFault,
  afterPause,
  type Breaker,
  isGivenUp,
  isOverdue,
  pauseMs,
  retryDelayMs,
} from './breaker.ts';
import { type Claim, findHeads } from './claims.ts';
import { disableEndpoint } from './endpoints.ts';

import { type Attempt, evidenceOf } from './send.ts';

type Settling = {
  claim: Claim;
  attempt: Attempt;
  nowMs: number;
  /** 0 to 1. */
  random: number;
};

/**
 * Notes that an attempt failed: it is repeated later, or the delivery is a dead letter. The endpoint's breaker judges,
 * and one that is gone or has failed for days is disabled. What has happened meanwhile under another lease stays; and an
 * attempt at an address that the endpoint has no longer counts for nothing: its lane is given back, to go to the new one.
 */
export async function settleFailed(db: Db, settling: Settling): Promise<void> {
  const { claim, attempt, nowMs, random } = settling;
  const { delivery, endpoint, environmentId, lane } = claim;
  const now = new Date(nowMs);
  await db.transaction(async (tx) => {
    if (!(await holdLane(tx, claim))) return;
    const before = await holdBreaker(tx, claim);
    if (before === undefined) return giveBack(tx, claim);
    const isDead = isOverdue(delivery.queuedAt, nowMs);
    await tx.query(
      `update delivery
       set attempts = attempts + 1,
         last_attempt_at = $3,
         last_attempt = $4,
         status = case when $5 then 'dead' else status end,
         settled_at = case when $5 then $3::timestamptz end
       where id = $1 and environment_id = $2 and status = 'waiting'`,
      [delivery.id, environmentId, now, JSON.stringify(evidenceOf(attempt)), isDead],
    );
    const dueAt = new Date(nowMs + retryDelayMs(delivery.attempts + 1, random));
    if (isDead) await goOn(tx, settling);
    else {
      await tx.query(
        `update delivery_lane
         set owner = null, lease_until = null, failures = failures + 1, due_at = $3
         where endpoint_id = $1 and lane = $2`,
        [endpoint.id, lane, dueAt],
      );
    }
    if (attempt.error === 'internal') await noteOurFault(tx, { claim, before, dueAt });
    else await noteFailure(tx, { ...settling, before });
  });
}

/**
 * Locks the lane and the delivery, in the order of `settle.ts`; false where the lease has come to an end and another holds
 * it, or nothing waits there any more.
 */
async function holdLane(tx: Tx, { delivery, endpoint, lane, owner }: Claim): Promise<boolean> {
  const rows = await tx.query(
    `select set_config('idle_in_transaction_session_timeout', '10000', true)
     from delivery_lane
     join delivery on delivery.id = $4
     where delivery_lane.endpoint_id = $1
       and delivery_lane.lane = $2
       and delivery_lane.owner = $3
     for update of delivery_lane, delivery`,
    [endpoint.id, lane, owner, delivery.id],
  );
  return rows.length > 0;
}

type Held = Breaker & { readonly pausedUntil: Date | null };

/** Undefined where the endpoint has another address by now. */
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

/** The lane as it was before it was claimed. */
async function giveBack(tx: Tx, { endpoint, lane }: Claim): Promise<void> {
  await tx.query(
    'update delivery_lane set owner = null, lease_until = null where endpoint_id = $1 and lane = $2',
    [endpoint.id, lane],
  );
}

/** On to what waits behind a dead letter, at once; without any the lane is closed. */
async function goOn(tx: Tx, { claim, nowMs }: Settling): Promise<void> {
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

async function noteFailure(
  tx: Tx,
  { claim, attempt, nowMs, random, before }: Settling & { before: Held },
): Promise<void> {
  const { endpoint, environmentId } = claim;
  const { askedPauseMs } = attempt;
  const at = { nowMs, random };
  const breaker =
    askedPauseMs === undefined ? afterFailure(before, at) : afterPause(before, { ...at, askedPauseMs });
  const pausedUntil = askedPauseMs === undefined ? null : new Date(nowMs + pauseMs(askedPauseMs));
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
      ...[endpoint.id, environmentId, breaker.failures, breaker.failingSince, breaker.openings],
      ...[breaker.openUntil, pausedUntil, now, JSON.stringify(evidenceOf(attempt))],
    ],
  );
  if (attempt.httpStatus === 410) await disable(tx, { claim, attempt, cause: 'gone', now });
  else if (isGivenUp(breaker, nowMs)) await disable(tx, { claim, attempt, cause: 'failing', now });
}

/** A probe that we could not send has probed nothing: the next one is due when it is. */
async function noteOurFault(
  tx: Tx,
  { claim: { endpoint, environmentId }, before, dueAt }: { claim: Claim; before: Held; dueAt: Date },
): Promise<void> {
  const { openUntil } = afterOurFault(before, dueAt);
  await tx.query('update endpoint set open_until = $3 where id = $1 and environment_id = $2', [
    ...[endpoint.id, environmentId, openUntil],
  ]);
}

const nextSteps = {
  gone: 'The endpoint answered 410: it is gone for good. Delete it, or enable it again and replay what it missed.',
  failing:
    'Nothing has arrived at the endpoint for five days. Fix the endpoint, enable it again, and replay what it missed.',
};

async function disable(
  tx: Tx,
  {
    claim: { endpoint, environmentId },
    attempt,
    cause,
    now,
  }: { claim: Claim; attempt: Attempt; cause: 'gone' | 'failing'; now: Date },
): Promise<void> {
  const at = { id: endpoint.id, environmentId };
  if (!(await disableEndpoint(tx, { at, cause, now }))) return;
  const { httpStatus, error } = attempt;
  await queueEvent(tx, {
    environmentId,
    type: 'endpoint.disabled',
    data: {
      endpoint_id: endpoint.id,
      // The rest of a receiver's address may be its secret, and this goes to all the others.
      url: new URL(endpoint.url).origin,
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
