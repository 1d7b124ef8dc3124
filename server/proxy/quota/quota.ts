/**
 * Keeps calls within the provider's quotas, shared by all nodes, and fair between the connections of one owner.
 *
 * Owns: which buckets a call needs, and whose they are. Neighbours: `permit.ts` is one call that gets its tokens, waits
 * for them, and learns from refusals; `bucket.ts` has the line of one quota, `quota-reserve.ts` the tokens that this node has of
 * it, `sliding-window.ts` says how many there are, `window-store.ts` keeps that for all nodes. A provider without a quota in its definition costs nothing.
 */
import { ownClientOf } from '../../auth-modes/mode.ts';
import type { LiveConnection } from '../../connections/reader.ts';
import type { Db } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { decodedText } from '../../http/query.ts';
import type { ProviderQuota } from '../../providers/definition.ts';
import { quotaWith } from '../../providers/quota-setting.ts';
import { Bucket } from './bucket.ts';
import { type Limit, type Metered, Permit, type QuotaCall } from './permit.ts';
import { createWindowStore } from './window-store.ts';

/** How long a call waits that does not say. */
export const usualWaitMs = 10_000;
/** The maximum number of buckets in memory before unused ones are removed. */
const maxIdle = 10_000;

/** What the calls of a connection need. */
type Meters = { read: Metered[]; write: Metered[]; all: Metered[] };
/** Without credentials an integration's own share is meant. */
type Subject = Pick<LiveConnection, 'id' | 'account' | 'integration'> &
  Partial<Pick<LiveConnection, 'credentials'>>;

export type Quota = {
  /** The right to send one request; undefined where nothing limits it. */
  admit(call: QuotaCall): Permit | undefined;
  /** Refuses all waiting calls with `unavailable` (503), and all later calls that would wait. Available tokens are still given. */
  refuse(): void;
  /** Gives back what this node has; resolves when that is written. */
  stop(): Promise<void>;
};

export function createQuota({ db }: { db: Db }): Quota {
  const store = createWindowStore(db);
  const buckets = new Map<string, Bucket>();
  let isRefusing = false;
  /** A connection is read again each second; the buckets stay. */
  const known = new WeakMap<Subject, Meters>();

  function bucketOf(key: string, { count, burst = count, window_s }: Limit): Bucket {
    // An integration with other numbers shares the window, not the available tokens.
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
    const quota = settledQuota(provider.api.quota, { setting: integrationConfig.quota, isTest });
    const all = (quota?.limits ?? [])
      // The narrowest first: who waits for an account's own token holds none that others want.
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

/** As `quotaWith`. Throws `integration_misconfigured` (424) where a setting that was saved no longer fits. */
function settledQuota(...given: Parameters<typeof quotaWith>): ProviderQuota | undefined {
  try {
    return quotaWith(...given);
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    const message = `The integration's setting \`quota\` ${cause.message}.`;
    throw new AppError('integration_misconfigured', message, { cause });
  }
}

/** What a call counts as. A path is compared as it reads without percent-encoding. */
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
 * The name of a bucket: whose calls the provider counts together. The environment is no part of it, since a provider
 * knows clients alone.
 */
export function keyOf(limit: Limit, { id, account, integration, credentials }: Subject): string {
  const { client, provider, isTest } = integration;
  const quota = provider.api.quota as ProviderQuota;
  const { service } = quota;
  // A client that a connection brought along has a quota of its own.
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
