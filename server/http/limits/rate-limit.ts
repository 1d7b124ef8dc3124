/**
 * Rate limits of callers, in calls a minute, with their header fields. `environments/key-rates.ts` counts the calls of a key
 * over all nodes.
 */
import type { IncomingMessage } from 'node:http';
import { AppError } from '../../errors.ts';
import { metrics } from '../../metrics/metrics.ts';
import { isPublicAddress } from '../../outbound/addresses.ts';
import { createNetworkReader } from '../address.ts';
import type { Caller, KeyCaller, ProxyCaller } from '../auth/caller.ts';
import { type Allowance, Buckets } from './bucket.ts';

/** Counts a call of a key with this limit. */
export type TakeOfKey = (key: Pick<KeyCaller, 'keyId' | 'fullAtMs'>, limit: number) => Allowance;

/** Both count a call and return the header fields with the rest of the limit; undefined: no limit. */
export type RateLimits = {
  /**
   * A key and its tickets count together, a person separately. A connect session does not count here. Throws
   * `too_many_requests` (429).
   */
  takeOf(caller: Caller | ProxyCaller | { kind: 'person'; userId: string }): RateFields | undefined;
  /**
   * Counts a caller without a key, or with one that may be invented, by its address, if that is public. Behind an
   * untrusted balancer all callers have the balancer's address, which is usually not public. Throws `too_many_requests`
   * (429).
   */
  takeAt(request: Pick<IncomingMessage, 'headers' | 'socket'>): RateFields | undefined;
};

export type RateFields = Record<string, string>;

export function createRateLimits({
  ofKey,
  perKey,
  perPerson,
  perAddress,
  trustedProxies,
  nowMs = () => performance.now(),
}: {
  ofKey: TakeOfKey;
  /** Calls a minute, for keys without a limit of their own; undefined: no limit. */
  perKey: number | undefined;
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
      if (caller.kind === 'key' || caller.kind === 'ticket') {
        const limit = caller.rateLimit ?? perKey;
        return limit === undefined ? undefined : fieldsOf('key', ofKey(caller, limit));
      }
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

/** `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10). */
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
  throw new AppError('too_many_requests', `${subjects[policy]} at most ${limit} calls a minute.`, {
    retryAfterS: secondsOf(waitMs),
    headers: fields,
  });
}

const subjects: Record<Policy, string> = {
  key: 'This key can make',
  person: 'A user can make',
  address: 'Without a valid key, an address can make',
};

/** At least one second: an immediate retry would be too early. */
function secondsOf(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}
