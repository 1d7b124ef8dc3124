/**
 * Keeps calls within the provider's quotas, over all nodes, and fair between the connections of one owner. Providers without a
 * quota in their definition cost nothing.
 *
 * A quota has a bucket (`bucket.ts`) with the queue of its calls. The tokens of this node are in `quota-reserve.ts`; the
 * arithmetic of windows is in `sliding-window.ts`, and `window-store.ts` shares the windows between the nodes.
 */
import { ownClientOf } from '../../auth-modes/modes.ts';
import { classifyAnswer } from '../../connections/health/api-faults.ts';
import type { ObservedAnswer } from '../../connections/health/observe.ts';
import type { LiveConnection } from '../../connections/store/reader.ts';
import type { Db, Queryable } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { decodedText } from '../../http/query.ts';
import { readRetryAfter } from '../../http/retry-after.ts';
import type { Integration } from '../../integrations/store.ts';
import type { ProviderQuota } from '../../providers/definition.ts';
import { quotaWith } from '../../providers/quota-setting.ts';
import { Bucket, type Token, type TokenWaiter } from './bucket.ts';
import { cellAt, cellsPerWindow, type Pages, type Priority } from './sliding-window.ts';
import { createWindowStore, type WindowStore } from './window-store.ts';

/** How long an abuse guard closes a quota: it reacts to more than the calls of the last minute. */
const guardMs = 300_000;
/** The maximum effect of a provider's Retry-After: after it, a call is tried. */
const maxClosedMs = 3_600_000;
/** Fetching tokens from the database does not count as waiting: even a call that must not wait has this time. */
const portionMs = 250;
/** How long a call may wait unless it sets a time. */
export const defaultWaitMs = 10_000;
/** The maximum number of buckets in memory before unused ones are removed. */
const maxIdle = 10_000;

type Limit = ProviderQuota['limits'][number];
type Metered = { limit: Limit; bucket: Bucket };
/** The limits for each kind of calls of a connection. */
type Meters = { read: Metered[]; write: Metered[]; all: Metered[] };
/** Without credentials: the client of the integration. */
type Subject = Pick<LiveConnection, 'id' | 'account' | 'integration'> &
  Partial<Pick<LiveConnection, 'credentials'>>;

type QuotaCall = {
  connection: LiveConnection;
  method: string;
  /** The path of the request to the provider, with its query. */
  path: string;
  priority: Priority;
  /** How long it may wait. */
  waitMs: number;
};

export type Quota = {
  /** The permit to send one request; undefined: no limit. */
  admit(call: QuotaCall): Permit | undefined;
  /** Refuses all waiting calls with `unavailable` (503), and all later calls that would wait. Available tokens are used up. */
  refuse(): void;
  /** Returns the tokens of this node; resolves when that is written. */
  stop(): Promise<void>;
};

export function createQuota({ db }: { db: Db }): Quota {
  const store = createWindowStore(db);
  const buckets = new Map<string, Bucket>();
  let isRefusing = false;
  /** Connection objects live for a second; buckets stay. */
  const known = new WeakMap<Subject, Meters>();

  function bucketOf(key: string, { count, burst = count, window_s }: Limit): Bucket {
    // Integrations with different numbers share the window, but not the available tokens.
    const at = `${key} ${count} ${burst}`;
    const found = buckets.get(at);
    if (found !== undefined) return found;
    if (buckets.size >= maxIdle) {
      for (const [other, bucket] of buckets) if (bucket.isIdle) buckets.delete(other);
    }
    const bucket = new Bucket({ key, rule: { count, burst, windowMs: window_s * 1000 }, store });
    if (isRefusing) bucket.refuse();
    buckets.set(at, bucket);
    return bucket;
  }

  function metersOf(connection: Subject): Meters {
    const found = known.get(connection);
    if (found !== undefined) return found;
    const { provider, integrationConfig, isTest } = connection.integration;
    const quota = validQuota(provider.api.quota, { setting: integrationConfig.quota, isTest });
    const all = (quota?.limits ?? [])
      // The narrowest first: a call that waits for its account's token holds none that other accounts need.
      .toSorted((one, other) => Number(other.per === 'account') - Number(one.per === 'account'))
      .map((limit) => ({ limit, bucket: bucketOf(keyOf(limit, connection), limit) }));
    const counting = (kind: 'read' | 'write') =>
      all.filter(({ limit }) => limit.counts === kind || limit.counts === 'all');
    const meters = { read: counting('read'), write: counting('write'), all };
    known.set(connection, meters);
    return meters;
  }

  return {
    admit(call) {
      const { quota } = call.connection.integration.provider.api;
      if (quota === undefined) return undefined;
      const meters = metersOf(call.connection);
      const metered = meters[kindOf(quota, call)];
      return metered.length === 0 ? undefined : new Permit({ store, call, metered, all: meters.all });
    },
    refuse() {
      isRefusing = true;
      for (const bucket of buckets.values()) bucket.refuse();
    },
    async stop() {
      await Promise.all([...buckets.values()].map((bucket) => bucket.stop().catch(() => {})));
    },
  };
}

/** As `quotaWith`. Throws `integration_misconfigured` (424) if a saved setting is not valid any more. */
function validQuota(...args: Parameters<typeof quotaWith>): ProviderQuota | undefined {
  try {
    return quotaWith(...args);
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    const message = `The integration's setting \`quota\` ${cause.message}.`;
    throw new AppError('integration_misconfigured', message, { cause });
  }
}

/** The kind of a call. Its path is matched without percent-encoding. */
function kindOf(
  quota: ProviderQuota,
  { method, path }: Pick<QuotaCall, 'method' | 'path'>,
): 'read' | 'write' {
  const end = path.indexOf('?');
  const plain = end === -1 ? path : path.slice(0, end);
  return patternsOf(quota).reads.test(`${method} ${decodedText(plain) ?? plain}`) ? 'read' : 'write';
}

type Patterns = { reads: RegExp; owner: RegExp | undefined };
const patterns = new WeakMap<ProviderQuota, Patterns>();

function patternsOf(quota: ProviderQuota): Patterns {
  const known = patterns.get(quota);
  if (known !== undefined) return known;
  const { reads, owner_pattern: owner } = quota;
  const made = {
    reads: new RegExp(reads, 'u'),
    owner: owner === undefined ? undefined : new RegExp(owner, 'u'),
  };
  patterns.set(quota, made);
  return made;
}

/**
 * The name of a bucket: it identifies the calls that the provider counts together. Environments do not matter, since a provider
 * counts by client.
 */
function keyOf(limit: Limit, { id, account, integration, credentials }: Subject): string {
  const { client, provider, isTest } = integration;
  const quota = provider.api.quota as ProviderQuota;
  const { service } = quota;
  // A connection with its own client has a quota of its own.
  const { clientId } = (credentials && ownClientOf(credentials)) ?? client ?? {};
  const project = clientId && patternsOf(quota).owner?.exec(clientId)?.[1];
  const owner = project || clientId || `integration:${integration.id}`;
  const accountId = limit.per === 'account' ? (account?.id ?? `connection:${id}`) : '';
  return JSON.stringify([
    isTest ? `sandbox ${service}` : service,
    owner,
    accountId,
    limit.name,
    limit.window_s,
  ]);
}

/** Permits one request. `end` must be called in every case. */
export class Permit {
  /** Resolves when the request may be sent; undefined: at once. Rejects with `quota_exhausted` (429). */
  readonly ready: Promise<void> | undefined;
  /** The time that it waited until it was ready. */
  waitedMs = 0;
  readonly #store: WindowStore;
  readonly #call: QuotaCall;
  /** The limits that count this call, and all limits of its connection. */
  readonly #metered: Metered[];
  readonly #all: Metered[];
  readonly #until: number;
  readonly #tokens = new Map<Bucket, Token>();
  #waiter: { bucket: Bucket; waiter: TokenWaiter; timer: NodeJS.Timeout } | undefined;
  #sentAt: number | undefined;

  constructor({
    store,
    call,
    metered,
    all,
  }: { store: WindowStore; call: QuotaCall; metered: Metered[]; all: Metered[] }) {
    this.#store = store;
    this.#call = call;
    this.#metered = metered;
    this.#all = all;
    this.#until = store.now() + call.waitMs;
    const lacking = this.#takeAvailable();
    if (lacking !== undefined) {
      this.ready = new Promise((resolve, reject) => this.#wait(lacking, { resolve, reject }));
    }
  }

  /** The request goes out now. */
  sent(): void {
    this.#sentAt = this.#store.now();
  }

  /** The request was answered, failed, or will not be made. May be called more than once. */
  end(): void {
    if (this.#waiter !== undefined) {
      clearTimeout(this.#waiter.timer);
      this.#waiter.bucket.leave(this.#waiter.waiter);
      this.#waiter = undefined;
    }
    for (const [bucket, token] of this.#tokens) {
      this.#tokens.delete(bucket);
      if (this.#sentAt === undefined) bucket.giveBack(token);
      else bucket.settle(token, this.#sentAt);
    }
  }

  /** The seconds until the closed bucket opens again, for a 429 of the provider without Retry-After. */
  retryAfterS(status: number, header: (name: string) => string | undefined): number | undefined {
    if (status !== 429 || header('retry-after') !== undefined) return undefined;
    const isGuard = /^text\/html\b/i.test(header('content-type') ?? '');
    const until = this.#reopensAt({ isGuard });
    return Math.max(1, Math.ceil((until - this.#store.now()) / 1000));
  }

  /** To be called with a response of 403 or 429: closes the buckets that the provider reports as exhausted. */
  refused({ status, headers, body }: Pick<ObservedAnswer, 'status' | 'headers' | 'body'>): void {
    const { provider } = this.#call.connection.integration;
    const fault = classifyAnswer(provider, { status, headers, body: body.toString() });
    const retryAfter = headers['retry-after'];
    if (fault.kind === 'abuse_guard') {
      const until = this.#reopensAt({ retryAfter, isGuard: true });
      for (const { limit, bucket } of this.#all) if (limit.per === 'owner') bucket.close(until);
    } else if (fault.kind === 'rate_limited') {
      const until = this.#reopensAt({ retryAfter, isGuard: false });
      const named = this.#metered.filter(({ limit }) => limit.name === fault.evidence.quota_limit);
      const per = fault.of === 'connection' ? 'account' : 'owner';
      const ofThose = named.length > 0 ? named : this.#metered.filter(({ limit }) => limit.per === per);
      // If accounts have no limit of their own, a refusal that names no limit refers to all limits.
      const isNamed = fault.evidence.quota_limit !== undefined || fault.evidence.reason !== undefined;
      for (const { bucket } of ofThose.length > 0 || isNamed ? ofThose : this.#metered) bucket.close(until);
    }
  }

  /** In the store's time (ms): as the provider's Retry-After says, else the start of the clock's next window. */
  #reopensAt({ retryAfter, isGuard }: { retryAfter?: string | undefined; isGuard: boolean }): number {
    const now = this.#store.now();
    const askedMs = readRetryAfter(retryAfter, now);
    if (askedMs !== undefined) return now + Math.min(askedMs, maxClosedMs);
    if (isGuard) return now + guardMs;
    const windowMs = Math.max(...this.#metered.map(({ limit }) => limit.window_s)) * 1000;
    return (Math.floor(now / windowMs) + 1) * windowMs;
  }

  /** Takes the tokens that are still missing; returns the first bucket without an available token; undefined: none. */
  #takeAvailable(): Bucket | undefined {
    for (const { bucket } of this.#metered) {
      const held = this.#tokens.get(bucket);
      if (held !== undefined && !bucket.isStale(held)) continue;
      if (held !== undefined) {
        this.#tokens.delete(bucket);
        bucket.drop(held);
      }
      const token = bucket.take(this.#call.priority);
      if (token === undefined) return bucket;
      this.#tokens.set(bucket, token);
    }
    return undefined;
  }

  /** The error if there is no token in time, with the time when all tokens can be expected. */
  #exhausted(): AppError {
    const { connection, priority } = this.#call;
    const expected = this.#metered.map(({ bucket }) => bucket.expectedAt(priority, connection.id));
    const retryAfterS = Math.max(1, Math.ceil((Math.max(...expected) - this.#store.now()) / 1000));
    return new AppError('quota_exhausted', undefined, {
      retryAfterS,
      payload: { retry_after_s: retryAfterS },
    });
  }

  #wait(bucket: Bucket, settle: { resolve: () => void; reject: (error: Error) => void }): void {
    const call = this.#call;
    const fail = (error: Error) => {
      this.end();
      settle.reject(error);
    };
    const refuse = () => {
      this.end();
      settle.reject(this.#exhausted());
    };
    const waiter: TokenWaiter = {
      lane: call.connection.id,
      priority: call.priority,
      until: this.#until,
      serve: (token) => {
        clearTimeout(this.#waiter?.timer);
        this.#waiter = undefined;
        this.#tokens.set(bucket, token);
        const lacking = this.#takeAvailable();
        if (lacking !== undefined) return this.#wait(lacking, settle);
        this.waitedMs = Math.max(0, this.#store.now() - (this.#until - call.waitMs));
        settle.resolve();
      },
      refuse,
      fail,
    };
    const leftMs = Math.max(portionMs, this.#until - this.#store.now());
    this.#waiter = { bucket, waiter, timer: setTimeout(refuse, leftMs) };
    try {
      if (!bucket.wait(waiter)) refuse();
    } catch (error) {
      fail(error as Error);
    }
  }
}

/** The use of one limit of an integration's client, over all nodes. */
type QuotaUse = {
  name: string;
  counts: 'read' | 'write' | 'all';
  limit: number;
  windowS: number;
  /** The tokens of the last window, those that nodes have reserved included. */
  used: number;
  /** Set while the limit is closed, after a refusal of the provider: no call is sent before. */
  closedUntil: Date | undefined;
};

type CountedIntegration = Pick<Integration, 'id' | 'provider' | 'integrationConfig' | 'isTest' | 'client'>;
type StoredWindow = { bucket: string; pages: Pages; clock: number };

/**
 * The use of the limits of each integration's client, by the ID of the integration's row, in one statement. Limits of single
 * accounts, and integrations whose quota is off, are omitted.
 */
export async function quotaUse(
  db: Queryable,
  integrations: readonly CountedIntegration[],
): Promise<Map<number, QuotaUse[]>> {
  const limits = integrations.flatMap((integration) =>
    limitsOf(integration).map((limit) => ({
      id: integration.id,
      limit,
      bucket: keyOf(limit, { id: 0, account: undefined, integration: integration as Integration }),
    })),
  );
  const uses = new Map<number, QuotaUse[]>();
  if (limits.length === 0) return uses;
  const rows = await db.query<StoredWindow>(
    `select bucket, pages, extract(epoch from clock_timestamp())::float8 * 1000 as clock
     from quota_book
     where bucket = any($1)`,
    [limits.map(({ bucket }) => bucket)],
  );
  for (const { id, limit, bucket } of limits) {
    const row = rows.find((found) => found.bucket === bucket);
    const closedUntil =
      row && row.pages.closedUntil > row.clock ? new Date(row.pages.closedUntil) : undefined;
    const use = {
      name: limit.name,
      counts: limit.counts,
      limit: limit.count,
      windowS: limit.window_s,
      used: row === undefined ? 0 : usedOf(limit, row),
      closedUntil,
    };
    uses.set(id, [...(uses.get(id) ?? []), use]);
  }
  return uses;
}

function limitsOf({ provider, integrationConfig, isTest }: CountedIntegration): Limit[] {
  try {
    const quota = quotaWith(provider.api.quota, { setting: integrationConfig.quota, isTest });
    return (quota?.limits ?? []).filter(({ per }) => per === 'owner');
  } catch (error) {
    // Each call reports that the setting is not valid.
    if (error instanceof RangeError) return [];
    throw error;
  }
}

function usedOf({ count, burst = count, window_s }: Limit, { pages, clock }: StoredWindow): number {
  const now = cellAt({ count, burst, windowMs: window_s * 1000 }, clock);
  const taken = pages.cells.filter(([cell]) => cell > now - cellsPerWindow);
  return taken.reduce((sum, [, interactive, background]) => sum + interactive + background, 0);
}
