import { setTimeout as pause } from 'node:timers/promises';
import { type Db, mayPass } from '../db/pool.ts';
import type { AppError } from '../errors.ts';
import { serviceStops } from '../http/drain.ts';
import { metrics } from '../metrics/metrics.ts';
import { delayOf } from './health.ts';
import { claimLease, extendLease, isLeased, type Lease, leaveLease } from './lease.ts';
import type { LiveConnection } from './reader.ts';
import { leaseMsOf, replacesTokens } from './refresh-request.ts';

/**
 * How a refresh waits for that of another node.
 *
 * Owns: how often the lease is looked at, and what is owed to a holder whose lease has ended. Does not own: the lease itself
 * (`lease.ts`), what is sent under it (`refresh.ts`).
 *
 * All times are of `performance.now()`. While the service stops both throw `unavailable`: another node, or the next
 * start, refreshes.
 */
type RefreshWait = {
  /**
   * Resolves once the lease has ended, or the credentials were replaced; throws `connection_refresh_failed` where that is
   * not so by `giveUpAt`, and `unavailable` where the database is away.
   */
  untilFree(connection: LiveConnection, giveUpAt: number): Promise<void>;
  /**
   * The lease, and where it was taken over and tokens are replaced, once the holder before had its time to store an
   * answer: where the database was away for longer than its lease, it comes back to both, and what the holder has in
   * hand must go before a second request with the same token. Undefined where it did, where the credentials were
   * replaced by others or the connection was deleted, and where this node stood still for so long that the lease is
   * another's. Throws `connection_refresh_failed` where the database is not there for that time by `giveUpAt`.
   */
  afterHolder(lease: Lease, of: { connection: LiveConnection; giveUpAt: number }): Promise<Lease | undefined>;
};

/** A database that takes longer for one statement than this does not count as there. */
const promptMs = 1_000;

export function createRefreshWait({
  db,
  storeMs,
  stopping,
}: {
  db: Db;
  /** For how long who takes a lease over sends nothing. */
  storeMs: number;
  /** Ends all waits. */
  stopping: AbortSignal;
}): RefreshWait {
  function goOn(connection: LiveConnection, giveUpAt: number): void {
    if (stopping.aborted) throw serviceStops();
    if (performance.now() > giveUpAt) throw failed(connection);
  }

  async function leave(
    connection: LiveConnection,
    { lease, since }: { lease: Lease; since: number },
  ): Promise<undefined> {
    await leaveLease(db, { connection, lease });
    noteWait(connection, since);
    return undefined;
  }

  return {
    async untilFree(connection, giveUpAt) {
      const since = performance.now();
      for (const nextPoll = polls(); await isLeased(db, connection); await nextPoll()) {
        goOn(connection, giveUpAt);
      }
      noteWait(connection, since);
    },

    async afterHolder(lease, { connection, giveUpAt }) {
      if (!lease.isTakenOver || !replacesTokens(connection, lease)) return lease;
      const since = performance.now();
      let thereSince = since;
      const nextPoll = polls();
      while (performance.now() - thereSince < storeMs) {
        goOn(connection, giveUpAt);
        const asked = performance.now();
        // For the wait alone: if this node is stopped in it, the next one need not let a whole lease pass.
        const held = await extendLease(db, { connection, lease, forMs: 2 * storeMs }).catch(lostPoll);
        if (held === undefined) return leave(connection, { lease, since });
        if (held === 'unknown' || performance.now() - asked > promptMs) thereSince = performance.now();
        await nextPoll();
      }
      const claimed = await claimLease(db, { connection, lease, forMs: leaseMsOf(connection, storeMs) });
      if (claimed === undefined) return leave(connection, { lease, since });
      noteWait(connection, since);
      return claimed;
    },
  };
}

function noteWait({ providerName }: LiveConnection, since: number): void {
  metrics.refreshLeaseWait.observe([providerName], (performance.now() - since) / 1000);
}

/** Pauses between questions to the database: longer each time, up to half a second, and random. */
function polls(): () => Promise<void> {
  let pollMs = 20;
  return async () => {
    await pause(pollMs * (0.75 + Math.random() / 2));
    pollMs = Math.min(pollMs * 1.5, 500);
  };
}

function lostPoll(error: unknown): 'unknown' {
  if (!mayPass(error)) throw error;
  return 'unknown';
}

/** The token has expired, or is to be replaced, and there is no other for now. */
export function failed(connection: LiveConnection, retryAfterMs?: number): AppError {
  return delayOf(connection, { provider: connection.integration.provider, retryAfterMs });
}
