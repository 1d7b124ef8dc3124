/**
 * Sends due deliveries. Each node has one deliverer; together they send each delivery once, unless a node is killed.
 *
 * Owns: how many attempts are under way from this node, and the clock by which they are due. Neighbours: `claims.ts` finds
 * and claims lanes, `send.ts` sends, `settle.ts` stores the outcome by the rules of `retry-policy.ts`, `server/work.ts` runs the
 * loop and the drain.
 */
import type { Activity } from '../activity/writer.ts';
import type { Brand } from '../brand.ts';
import { inBatches, limitConcurrency } from '../concurrency.ts';
import { type Db, mayPass } from '../db/pool.ts';
import type { Logger } from '../log.ts';
import { metrics } from '../metrics/metrics.ts';
import type { Fetch } from '../outbound/outbound.ts';
import { spanned } from '../tracing/tracing.ts';
import { TtlCache } from '../ttl-cache.ts';
import type { Mailer } from '../users/mail.ts';
import type { Vault } from '../vault.ts';
import { createWorker, type Look, type Task, type Worker } from '../work.ts';
import { type Claim, claimLanes, findReady, findReadyIfAny } from './claims.ts';
import { type Endpoint, originOf } from './endpoints.ts';
import { type Attempt, send } from './send.ts';
import { type Arrived, release, settleDelivered, settleFailed } from './settle.ts';
import { type SigningKeys, signingKeys } from './signing.ts';
import { findWebhookBody } from './webhook-bodies.ts';

type DelivererOptions = {
  db: Db;
  vault: Vault;
  fetch: Fetch;
  /** Undefined if the service has no mail server. */
  mailer: Mailer | undefined;
  brand: Brand;
  baseUrl: string;
  log: Pick<Logger, 'warn'>;
  activity: Activity;
  authModeOf: (of: {
    environmentId: number;
    provider: string;
  }) => Promise<string | undefined> | string | undefined;
  nowMs: () => number;
  /** The clock of the machine: see `createClock`. */
  machineMs?: () => number;
  random?: () => number;
  limits?: Partial<DelivererLimits>;
};

export type DelivererLimits = {
  /** How long a receiver may take to answer. */
  timeoutMs: number;
  /**
   * Added to `timeoutMs`, this is the lease: the time until the lane of a killed node is free again. An attempt that does
   * not begin within the margin does not begin at all.
   */
  leaseMarginMs: number;
  /** The maximum number of attempts under way from this node, without the slow ones. */
  max: number;
  /** An attempt that takes longer is slow: see `createSlots`. */
  slowAfterMs: number;
  /** The maximum number of attempts under way to an endpoint, from all nodes together. */
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
/** The maximum number of deliveries of a lane in a row, before the other lanes of its endpoint. */
const maxInARow = 10;
const graceOrdinaryMs = 3_000;
/** Database connections that store failures and releases, beside the one for successes. Requests need connections too. */
const maxSettling = 3;
const maxInBatch = 64;
/**
 * Endpoints of one look, which takes some 10 ms. With 20,000 endpoints whose breaker is open and that have waiting events,
 * each is examined every 4 s.
 */
const maxLooked = 1_000;

export function createDeliverer(options: DelivererOptions) {
  const { db, vault, fetch, mailer, brand, baseUrl, log, activity, authModeOf, limits } = options;
  const { random = Math.random } = options;
  const { timeoutMs, leaseMarginMs, max, slowAfterMs, maxOfEndpoint, pollMs } = { ...ordinary, ...limits };
  const leaseMs = timeoutMs + leaseMarginMs;
  const clock = createClock({
    nowMs: options.nowMs,
    machineMs: options.machineMs ?? Date.now,
    onFarOff: (aheadMs) =>
      log.warn({ ahead_ms: Math.round(aheadMs) }, "this machine's clock differs from the database's"),
  });
  const { nowMs } = clock;
  const worker: Worker<Claim, void> = createWorker({
    look,
    execute: deliverLane,
    pollMs,
    onError: (error) => log.warn({ err: error }, 'deliveries are interrupted and continue later'),
    // Each interrupted attempt releases its own lane.
    giveBack: () => worker.settled(),
  });
  const slots = createSlots({ max, slowAfterMs, random, onFree: () => worker.wake() });
  const settleInTurn = limitConcurrency(maxSettling);
  const settleArrived = inBatches((arrived: readonly Arrived[]) => settleDelivered(db, arrived), {
    max: maxInBatch,
  });
  const keys = new TtlCache<number, SigningKeys>({
    load: (environmentId) => signingKeys(db, { environmentId, vault, now: new Date(nowMs()) }),
    keyOf: (environmentId) => environmentId,
    // Bounds the cache. A retired key may sign for one second more.
    max: 1_000,
  });
  const toSend = { fetch, mailer, brand, baseUrl, timeoutMs, nowMs };
  let lookAfter = 0;
  let wasEmpty = false;

  /** Claims that precede a failure are under way already. */
  async function look(): Promise<Look> {
    if (slots.free() === 0) return 'nothing';
    const at = { now: new Date(nowMs()), after: lookAfter, maxOfEndpoint, maxLooked };
    const { ready, lookOnAfter, hasLanes } = await clock.compare(() =>
      wasEmpty ? findReadyIfAny(db, at) : findReady(db, at),
    );
    lookAfter = lookOnAfter;
    wasEmpty = !hasLanes;
    const now = new Date(nowMs());
    let begun = 0;
    for (const endpointId of slots.inOrder(ready)) {
      const free = slots.free();
      if (free === 0 || worker.isStopping()) break;
      const claims = await claimLanes(db, { endpointId, now, max: free, maxOfEndpoint, leaseMs });
      for (const claim of claims) void worker.begin(claim);
      begun += claims.length;
    }
    if (begun > 0) return 'more';
    return lookAfter > 0 && slots.free() > 0 ? 'later' : 'nothing';
  }

  async function deliverLane(task: Task<Claim>): Promise<void> {
    const slot = slots.take(task.claim.endpoint.id);
    try {
      await deliverInOrder(task, slot);
    } finally {
      slot.end();
    }
  }

  /** The claimed delivery, then the deliveries behind it in its lane, until one fails. */
  async function deliverInOrder({ claim: first, signal }: Task<Claim>, slot: Slot): Promise<void> {
    let claim: Claim | undefined = first;
    for (let turn = 1; claim !== undefined; turn += 1) {
      const held: Claim = claim;
      const attempt = await tryOnce(held, { slot, signal });
      if (attempt === undefined) return settleInTurn(() => release(db, held));
      logAttempt(held, attempt);
      if (!attempt.isDelivered) {
        const settling = { claim: held, attempt, nowMs: nowMs(), random: random() };
        return settleInTurn(() => settleFailed(db, settling));
      }
      const continues = held.endpoint.format === 'standard' && turn < maxInARow && !worker.isStopping();
      const renewMs = continues ? leaseMs : undefined;
      claim = await settleArrived({ claim: held, attempt, nowMs: nowMs(), renewMs });
    }
  }

  /** Undefined if it was interrupted, or did not begin because the lease might end before the attempt does. */
  async function tryOnce(
    claim: Claim,
    { slot, signal }: { slot: Slot; signal: AbortSignal },
  ): Promise<Attempt | undefined> {
    try {
      const signedWith = await keys.get(claim.environmentId);
      const webhook = await webhookOf(claim);
      const { environmentId, delivery } = claim;
      const authMode = await authModeOf({ environmentId, provider: String(delivery.data.provider) });
      if (performance.now() - claim.leasedAtMs > leaseMarginMs) return undefined;
      const sending = { webhook, keys: signedWith, signal, authModeOf: () => authMode, ...toSend };
      return await slot.during(() => sendMeasured(claim, sending));
    } catch (error) {
      if (mayPass(error)) throw error;
      const { endpoint, delivery } = claim;
      log.warn(
        { err: error, endpoint: endpoint.id, event: delivery.eventId },
        'an event cannot be serialized or signed',
      );
      return { isDelivered: false, durationMs: 0, error: 'internal' };
    }
  }

  async function webhookOf({ environmentId, delivery: { eventId, type } }: Claim) {
    return type === 'webhook.received' ? findWebhookBody(db, { eventId, environmentId, vault }) : undefined;
  }

  function logAttempt({ environmentId, endpoint, delivery }: Claim, attempt: Attempt): void {
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
      path: URL.canParse(endpoint.url) ? originOf(endpoint.url) : undefined,
      httpStatus: attempt.httpStatus,
      errorCode: attempt.error,
      retries: delivery.attempts,
      details: { endpoint: endpoint.id, event: delivery.eventId, event_type: delivery.type },
    });
  }

  return {
    /** Sends until `stop`. */
    start: worker.start,
    /** Sends until nothing is due and no attempt is under way. */
    deliverDue: worker.runDue,
    /**
     * Begins nothing more. Attempts under way may end within `graceMs`. Then they are aborted and their lanes released, and
     * another node sends the events again under the same IDs.
     */
    stop: (graceMs = graceOrdinaryMs) => worker.stop(graceMs),
    /**
     * Sends an `endpoint.test` to an endpoint at once, whatever its state, and returns the outcome. It is not stored, except in
     * the activity log.
     */
    async sendTest(endpoint: Endpoint, environment: { id: number; name: string }): Promise<Attempt> {
      const now = new Date(nowMs());
      const delivery = { id: 0, attempts: 0, queuedAt: now, eventId: crypto.randomUUID(), createdAt: now };
      const claim: Claim = {
        owner: crypto.randomUUID(),
        leasedAtMs: performance.now(),
        lane: 0,
        others: [],
        environmentId: environment.id,
        environment: environment.name,
        endpoint: { ...endpoint, isProbe: false },
        delivery: { ...delivery, type: 'endpoint.test', data: { endpoint_id: endpoint.id } },
      };
      const signedWith = await keys.get(environment.id);
      const signal = AbortSignal.timeout(timeoutMs + leaseMarginMs);
      const attempt = await sendMeasured(claim, {
        ...toSend,
        authModeOf: () => undefined,
        keys: signedWith,
        signal,
      });
      if (attempt === undefined) return { isDelivered: false, durationMs: timeoutMs, error: 'timeout' };
      logAttempt(claim, attempt);
      return attempt;
    },
    /** Must be called when an environment's signing keys change here: this node signs with the new keys immediately. */
    forgetKeys: (environmentId: number) => keys.forget(environmentId),
  };
}

export type Deliverer = ReturnType<typeof createDeliverer>;

/** Sends the claim, and counts and traces the outcome. Undefined, and neither counted nor traced, if it was aborted. */
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

/** Smaller changes come from the duration of the statement. Correcting them would delay events that are due now. */
const ignoredMs = 1_000;
/** A larger lead means that the clock of the machine is not synchronized. */
const reportedMs = 5_000;

/**
 * The database's time: `nowMs`, corrected by the difference between `machineMs`, the clock of this machine, and the
 * database's clock. Without this, the node with the fastest clock would end pauses and open breakers for all nodes.
 * `onFarOff` gets a difference of seconds.
 */
export function createClock(by: {
  nowMs: () => number;
  machineMs: () => number;
  onFarOff: (aheadMs: number) => void;
}) {
  let aheadMs = 0;
  return {
    /** In milliseconds since the epoch. */
    nowMs: () => by.nowMs() - aheadMs,
    /** Runs a statement whose result includes the database's time, and measures the difference. */
    async compare<T extends { databaseMs: number }>(query: () => Promise<T>): Promise<T> {
      const startedMs = by.machineMs();
      const result = await query();
      const measuredMs = (startedMs + by.machineMs()) / 2 - result.databaseMs;
      if (Math.abs(measuredMs - aheadMs) >= ignoredMs) {
        aheadMs = measuredMs;
        if (Math.abs(aheadMs) >= reportedMs) by.onFarOff(aheadMs);
      }
      return result;
    },
  };
}

type Slot = ReturnType<ReturnType<typeof createSlots>['take']>;

/**
 * Limits the attempts under way from this node to `max` slots. An attempt that takes longer than `slowAfterMs` gives its slot
 * back (`onFree` is called), so a slow endpoint does not delay the others. While an attempt at an endpoint is slow, the
 * endpoint comes last, and it gets no slot while `max` attempts or more are slow. Each attempt has a time limit, so the total
 * is bounded: by `max` times that limit, divided by `slowAfterMs`.
 */
export function createSlots(by: {
  max: number;
  slowAfterMs: number;
  onFree: () => void;
  random: () => number;
}) {
  const { max } = by;
  let taken = 0;
  let slow = 0;
  const slowAt = new Map<number, number>();

  function count(endpoint: number, change: 1 | -1): void {
    const left = (slowAt.get(endpoint) ?? 0) + change;
    if (left === 0) slowAt.delete(endpoint);
    else slowAt.set(endpoint, left);
    slow += change;
    taken -= change;
  }

  return {
    /** How many more attempts may begin. */
    free: () => Math.max(0, max - taken),
    /** The endpoints in the order in which they get free slots. */
    inOrder(endpoints: readonly number[]): number[] {
      const mixed = shuffled(endpoints, by.random);
      const slowOnes = slow < max ? mixed.filter((endpoint) => slowAt.has(endpoint)) : [];
      return mixed.filter((endpoint) => !slowAt.has(endpoint)).concat(slowOnes);
    },
    /** Takes a slot until `end` of the result. `during` runs an attempt in it. */
    take(endpoint: number) {
      taken += 1;
      return {
        async during<T>(attempt: () => Promise<T>): Promise<T> {
          let isSlow = false;
          const timer = setTimeout(() => {
            isSlow = true;
            count(endpoint, 1);
            by.onFree();
          }, by.slowAfterMs);
          try {
            return await attempt();
          } finally {
            clearTimeout(timer);
            if (isSlow) count(endpoint, -1);
          }
        },
        end(): void {
          taken -= 1;
        },
      };
    },
  };
}

/** In a random order, so that no endpoint always comes first when a node cannot serve all. */
function shuffled<T>(items: readonly T[], random: () => number): T[] {
  const left = [...items];
  for (let last = left.length - 1; last > 0; last -= 1) {
    const other = Math.floor(random() * (last + 1));
    [left[last], left[other]] = [left[other] as T, left[last] as T];
  }
  return left;
}
