import type { Activity } from '../activity/writer.ts';
import type { Brand } from '../brand.ts';
import { inBatches, limitConcurrency } from '../concurrency.ts';
import { type Db, mayPass } from '../db/pool.ts';
import type { Logger } from '../log.ts';
import { metrics } from '../metrics/metrics.ts';
import { spanned } from '../tracing/tracing.ts';
import { TtlCache } from '../ttl-cache.ts';
import type { Vault } from '../vault.ts';
import { type Claim, claimLanes } from './claims.ts';
import { createClock } from './clock.ts';
import { type Attempt, type Fetch, send } from './send.ts';
import { type Arrived, release, settleDelivered } from './settle.ts';
import { settleFailed } from './settle-failed.ts';
import { type SigningKeys, signingKeys } from './signing-keys.ts';
import { createSlots, type Slot } from './slots.ts';
import { findWebhookBody } from './webhook-bodies.ts';

/** Sends what is due. One on each node; together they send each delivery once, unless one of them is killed. */
export type Deliverer = {
  /** From now on until `stop`. */
  start(): void;
  /** Sends until nothing is due any more and nothing is under way. */
  deliverDue(): Promise<void>;
  /**
   * Begins nothing more. What is under way may end within `graceMs`; then it is broken off and given back, to be sent
   * again by another node under the same id.
   */
  stop(graceMs?: number): Promise<void>;
  /** To be called when an environment's signing keys were changed here: this node signs with the new ones at once. */
  forgetKeys(environmentId: number): void;
};

type Deps = {
  db: Db;
  vault: Vault;
  fetch: Fetch;
  brand: Brand;
  log: Pick<Logger, 'warn'>;
  activity: Activity;
  authModeOf: (provider: string) => string | undefined;
  nowMs: () => number;
  /** The machine's clock: see `createClock`. */
  machineMs?: () => number;
  random?: () => number;
  limits?: Partial<DelivererLimits>;
};

export type DelivererLimits = {
  /** How long a receiver may take to answer. */
  timeoutMs: number;
  /**
   * Added to the time limit: until a lane is free again whose node was killed. An attempt that is not begun within it is
   * not begun at all.
   */
  leaseMarginMs: number;
  /** Under way at once, from this node, without those that let it wait. */
  max: number;
  /** Then an attempt lets it wait. */
  slowAfterMs: number;
  /** Under way at once to one endpoint, from all nodes together. */
  maxOfEndpoint: number;
  pollMs: number;
};

const ordinary: DelivererLimits = {
  timeoutMs: 20_000,
  leaseMarginMs: 10_000,
  max: 256,
  slowAfterMs: 1_000,
  maxOfEndpoint: 8,
  pollMs: 200,
};
/** Then the other lanes of the endpoint get their turn. */
const maxInARow = 10;
const graceOrdinaryMs = 3_000;
/** Of the connections to the database, beside the one that settles what arrived: requests need them too. */
const maxSettling = 3;
const maxInBatch = 64;
/** Endpoints of one look, 10 ms or so. With 20,000 broken ones for which something waits each has its turn in 4 s. */
const maxLooked = 1_000;

export function createDeliverer({
  db,
  vault,
  fetch,
  brand,
  log,
  activity,
  authModeOf,
  nowMs: uncorrectedMs,
  machineMs = Date.now,
  random = Math.random,
  limits,
}: Deps): Deliverer {
  const { timeoutMs, leaseMarginMs, max, slowAfterMs, maxOfEndpoint, pollMs } = { ...ordinary, ...limits };
  const leaseMs = timeoutMs + leaseMarginMs;
  const clock = createClock({
    ...{ nowMs: uncorrectedMs, machineMs },
    onFarOff: (aheadMs) =>
      log.warn({ ahead_ms: Math.round(aheadMs) }, "this machine's clock differs from the database's"),
  });
  const { nowMs } = clock;
  const underWay = new Set<Promise<void>>();
  const slots = createSlots({ max, slowAfterMs, random, onFree: () => wake() });
  const inTurn = limitConcurrency(maxSettling);
  const settleArrived = inBatches((arrived: readonly Arrived[]) => settleDelivered(db, arrived), {
    max: maxInBatch,
  });
  const breakingOff = new AbortController();
  const keys = new TtlCache<number, SigningKeys>({
    load: (environmentId) => signingKeys(db, { environmentId, vault, now: new Date(nowMs()) }),
    keyOf: (environmentId) => environmentId,
    // A key that retires within a second may sign for as long.
    max: 1_000,
  });
  let isStopping = false;
  let isFailing = false;
  let lookAfter = 0;
  let ended = 0;
  let loop: Promise<void> | undefined;
  let wake = () => {};

  function report(error: unknown): void {
    if (!isFailing) log.warn({ err: error }, 'deliveries go on later');
    isFailing = true;
  }

  /** How many were begun. What was claimed before a failure is under way by then. */
  async function begin(): Promise<number> {
    if (slots.free() === 0 || isStopping) return 0;
    const ready = await look();
    const now = new Date(nowMs());
    let begun = 0;
    for (const endpointId of slots.inOrder(ready)) {
      const free = slots.free();
      if (free === 0 || isStopping) break;
      const claims = await claimLanes(db, { endpointId, now, max: free, maxOfEndpoint, leaseMs });
      for (const claim of claims) start(claim);
      begun += claims.length;
    }
    isFailing = false;
    return begun;
  }

  async function look(): Promise<number[]> {
    const at = { now: new Date(nowMs()), after: lookAfter, maxOfEndpoint, maxLooked };
    const { ready, lookOnAfter } = await clock.compare(() => findReady(db, at));
    lookAfter = lookOnAfter;
    return ready;
  }

  function start(claim: Claim): void {
    const slot = slots.take(claim.endpoint.id);
    const running: Promise<void> = deliverLane(claim, slot)
      // The lease ends by itself.
      .catch(report)
      .finally(() => {
        slot.end();
        underWay.delete(running);
        ended += 1;
        wake();
      });
    underWay.add(running);
  }

  /** The claimed delivery, and those behind it in its lane while they arrive. */
  async function deliverLane(claimed: Claim, slot: Slot): Promise<void> {
    let claim: Claim | undefined = claimed;
    for (let turn = 1; claim !== undefined; turn += 1) {
      const held: Claim = claim;
      const attempt = await tryOnce(held, slot);
      if (attempt === undefined) return inTurn(() => release(db, held));
      note(held, attempt);
      if (!attempt.isDelivered) {
        const settling = { claim: held, attempt, nowMs: nowMs(), random: random() };
        return inTurn(() => settleFailed(db, settling));
      }
      const renewMs = turn < maxInARow && !isStopping ? leaseMs : undefined;
      claim = await settleArrived({ claim: held, attempt, nowMs: nowMs(), renewMs });
    }
  }

  /** Undefined where it was broken off, or not begun because the lease might end before the attempt does. */
  async function tryOnce(claim: Claim, slot: Slot): Promise<Attempt | undefined> {
    try {
      const signedWith = await keys.get(claim.environmentId);
      const webhook = await webhookOf(claim);
      if (performance.now() - claim.leasedAtMs > leaseMarginMs) return undefined;
      const sending = { fetch, brand, authModeOf, webhook, timeoutMs, nowMs, signal: breakingOff.signal };
      return await slot.during(() => sendMeasured(claim, { ...sending, keys: signedWith }));
    } catch (error) {
      if (mayPass(error)) throw error;
      const { endpoint, delivery } = claim;
      log.warn(
        { err: error, endpoint: endpoint.id, event: delivery.eventId },
        'an event cannot be written or signed',
      );
      return { isDelivered: false, durationMs: 0, error: 'internal' };
    }
  }

  async function webhookOf({ environmentId, delivery: { eventId, type } }: Claim) {
    return type === 'webhook.received' ? findWebhookBody(db, { eventId, environmentId, vault }) : undefined;
  }

  function note({ environmentId, endpoint, delivery }: Claim, attempt: Attempt): void {
    const { connection_id: connection, provider_config_key: integration } = delivery.data;
    activity.log({
      environmentId,
      type: 'delivery',
      status: attempt.isDelivered ? 'success' : 'failed',
      integration: typeof integration === 'string' ? integration : undefined,
      connection: typeof connection === 'string' ? connection : undefined,
      durationMs: attempt.durationMs,
      method: 'POST',
      // The rest of a receiver's address may be its secret.
      path: URL.parse(endpoint.url)?.origin,
      httpStatus: attempt.httpStatus,
      errorCode: attempt.error,
      retries: delivery.attempts,
      details: { endpoint: endpoint.id, event: delivery.eventId, event_type: delivery.type },
    });
  }

  async function keepGoing(): Promise<void> {
    while (!isStopping) {
      const woken = Promise.withResolvers<void>();
      wake = woken.resolve;
      const begun = await begin().catch((error: unknown) => {
        report(error);
        return 0;
      });
      if (begun > 0 || isStopping) continue;
      const timer = setTimeout(woken.resolve, pollMs);
      await woken.promise;
      clearTimeout(timer);
    }
  }

  async function deliverDue(): Promise<void> {
    for (;;) {
      const woken = Promise.withResolvers<void>();
      wake = woken.resolve;
      const endedBefore = ended;
      const begun = await begin();
      const isMore = begun > 0 || ended !== endedBefore || (lookAfter > 0 && slots.free() > 0);
      if (isMore && !isStopping) continue;
      if (underWay.size === 0) return;
      await woken.promise;
    }
  }

  return {
    start() {
      loop ??= keepGoing();
    },
    deliverDue,
    async stop(graceMs = graceOrdinaryMs) {
      isStopping = true;
      wake();
      await loop;
      const grace = setTimeout(() => breakingOff.abort(), graceMs);
      while (underWay.size > 0) await Promise.race(underWay);
      clearTimeout(grace);
    },
    forgetKeys: (environmentId) => keys.forget(environmentId),
  };
}

/** Sends it, and counts and traces what became of it; one that was broken off is nobody's yet. */
async function sendMeasured(claim: Claim, sending: Parameters<typeof send>[1]): Promise<Attempt | undefined> {
  const { delivery, endpoint } = claim;
  const attributes = {
    'http.request.method': 'POST',
    'server.address': URL.parse(endpoint.url)?.hostname ?? '',
    'trellis.event_type': delivery.type,
    'trellis.attempt': delivery.attempts + 1,
  };
  return spanned('deliver', { kind: 'client', attributes }, async (span) => {
    const attempt = await send(claim, sending);
    if (attempt === undefined) return undefined;
    const outcome = attempt.isDelivered ? 'delivered' : (attempt.error ?? 'no_answer');
    metrics.deliveries.add([outcome]);
    metrics.deliveryDuration.observe([outcome], attempt.durationMs / 1000);
    const { httpStatus } = attempt;
    span?.set({
      'trellis.outcome': outcome,
      ...(httpStatus !== undefined && { 'http.response.status_code': httpStatus }),
      ...(!attempt.isDelivered && { 'error.type': outcome }),
    });
    return attempt;
  });
}

/**
 * Endpoints that something may be sent to by `now`, of the next `maxLooked` after `after` for which something waits;
 * after which to look next, 0 where these were the last; and the database's time, in milliseconds since the epoch.
 *
 * They are found by jumping along the index of lanes, whose rows exist only while something waits: with nothing to do
 * that is one jump, with a million waiting deliveries as many as endpoints, and with any number of endpoints whose
 * breaker is open no more than `maxLooked`.
 */
export async function findReady(
  db: Db,
  of: { now: Date; after: number; maxOfEndpoint: number; maxLooked: number },
): Promise<{ ready: number[]; lookOnAfter: number; databaseMs: number }> {
  const rows = await db.query<{ lookOnAfter: number; databaseMs: number; id: number | null }>(readySql, [
    ...[of.now, of.after, of.maxOfEndpoint, of.maxLooked],
  ]);
  const [looked] = rows;
  if (looked === undefined) throw new Error('A statement without a condition had no row.');
  return {
    ready: rows.flatMap(({ id }) => id ?? []),
    lookOnAfter: looked.lookOnAfter,
    databaseMs: looked.databaseMs,
  };
}

// A probe needs no lane that is due: by the time of its attempts alone, the only lane of an endpoint that is back would
// wait up to an hour.
export const readySql = `
  with recursive busy (endpoint_id, nth) as (
    (select endpoint_id, 1 from delivery_lane where endpoint_id > $2 order by endpoint_id limit 1)
    union all
    select next.endpoint_id, busy.nth + 1
    from busy
    cross join lateral (
      select delivery_lane.endpoint_id
      from delivery_lane
      where delivery_lane.endpoint_id > busy.endpoint_id
      order by delivery_lane.endpoint_id
      limit 1
    ) as next
    where busy.nth < $4
  ), ready as (
    select endpoint.id
    from busy
    join endpoint on endpoint.id = busy.endpoint_id
    where endpoint.deleted_at is null
      and endpoint.disabled_at is null
      and coalesce(endpoint.open_until <= $1, true)
      and coalesce(endpoint.paused_until <= $1, true)
      and (
        select endpoint.open_until is not null or due_at <= greatest($1, now())
        from delivery_lane
        where delivery_lane.endpoint_id = busy.endpoint_id
          and coalesce(lease_until <= clock_timestamp(), true)
        order by due_at
        limit 1
      )
      and (
        select count(*)
        from delivery_lane
        where delivery_lane.endpoint_id = busy.endpoint_id
          and owner is not null
          and lease_until > clock_timestamp()
      ) < case when endpoint.open_until is null then $3::bigint else 1 end
  )
  select
    looked.last as "lookOnAfter",
    extract(epoch from clock_timestamp())::float8 * 1000 as "databaseMs",
    ready.id
  from (select coalesce(max(endpoint_id) filter (where nth = $4), 0) as last from busy) as looked
  left join ready on true`;
