/**
 * How many calls a minute a caller may make, and how it is told.
 *
 * Owns: whose limit a call counts for, the header fields, the refusal. Does not own: how the calls of a key are counted over
 * all nodes (`environments/key-rates.ts`), the quotas of providers (`proxy/quota/`).
 */
import type { IncomingMessage } from 'node:http';
import { AppError } from '../errors.ts';
import { metrics } from '../metrics/metrics.ts';
import { isPublicAddress } from '../outbound-addresses.ts';
import { createNetworkReader } from './address.ts';
import { type Allowance, Buckets } from './bucket.ts';
import type { Caller, KeyCaller, ProxyCaller } from './caller.ts';

/** Counts a call of a key; undefined where nothing limits it. */
export type TakeOfKey = (key: Pick<KeyCaller, 'keyId' | 'rateLimit' | 'fullAtMs'>) => Allowance | undefined;

/** Both count a call and answer the header fields that tell what is left, undefined where nothing limits it. */
export type RateLimits = {
  /**
   * A key and its tickets count as one, a person as themselves. A connect session counts nowhere here. Throws
   * `too_many_requests` (429).
   */
  takeOf(caller: Caller | ProxyCaller | { kind: 'person'; userId: string }): RateFields | undefined;
  /**
   * Counts a caller without a key, or with one that may be made up, by its address, if that is a public one. Behind an
   * untrusted balancer all callers have the balancer's address, which is usually not public. Throws `too_many_requests`
   * (429).
   */
  takeAt(request: Pick<IncomingMessage, 'headers' | 'socket'>): RateFields | undefined;
};

export type RateFields = Record<string, string>;

export function createRateLimits({
  ofKey,
  perPerson,
  perAddress,
  trustedProxies,
  nowMs = () => performance.now(),
}: {
  ofKey: TakeOfKey;
  /** Calls a minute; undefined: no limit. */
  perPerson: number | undefined;
  perAddress: number | undefined;
  trustedProxies: readonly string[];
  nowMs?: () => number;
}): RateLimits {
  const people = perPerson === undefined ? undefined : new Buckets(perPerson);
  const networks = perAddress === undefined ? undefined : new Buckets(perAddress);
  const networkOf = createNetworkReader(trustedProxies);
  return {
    takeOf(caller) {
      if (caller.kind === 'key' || caller.kind === 'ticket') return fieldsOf('key', ofKey(caller));
      if (caller.kind === 'session') return undefined;
      return fieldsOf('person', people?.take(caller.userId, nowMs()));
    },
    takeAt(request) {
      if (networks === undefined) return undefined;
      const network = networkOf(request);
      if (!isPublicAddress(network.replace(/\/64$/, ''))) return undefined;
      return fieldsOf('address', networks.take(network, nowMs()));
    },
  };
}

type Policy = 'key' | 'person' | 'address';

/** `RateLimit-Policy` and `RateLimit` as draft-ietf-httpapi-ratelimit-headers-10 has them. */
function fieldsOf(policy: Policy, allowance: Allowance | undefined): RateFields | undefined {
  if (allowance === undefined) return undefined;
  const { limit, left, fullInMs, waitMs } = allowance;
  const isRefused = waitMs > 0;
  const fields = {
    'ratelimit-policy': `"${policy}";q=${limit};w=60`,
    ratelimit: `"${policy}";r=${left};t=${secondsOf(isRefused ? waitMs : fullInMs)}`,
  };
  if (!isRefused) return fields;
  metrics.httpRefused.add(['too_many_requests']);
  throw new AppError('too_many_requests', `${subjects[policy]} at most ${limit} calls a minute here.`, {
    retryAfterS: secondsOf(waitMs),
    headers: fields,
  });
}

const subjects: Record<Policy, string> = {
  key: 'This key makes',
  person: 'A person makes',
  address: 'Without a good key an address makes',
};

/** At least one: who comes at once would come too early. */
function secondsOf(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}
