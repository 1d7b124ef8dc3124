/**
 * The calls of keys with a limit, counted over all nodes.
 *
 * A call is judged by this node's copy of the bucket, without a wait. The copy begins with the row of `key_rate` when the key
 * was read, up to a second before; twice a second the node adds its calls to the row and reads those of the others. So for
 * half a second after a start or a pause, a node may not have the calls of others: together the nodes exceed a limit by the
 * calls of such a half second, at most a bucket each, and pause for it afterwards. While the database is away, each node
 * uses its copy.
 */
import type { Queryable } from '../db/pool.ts';
import { Bucket } from '../http/limits/bucket.ts';
import type { TakeOfKey } from '../http/limits/rate-limit.ts';

type KeyRates = {
  take: TakeOfKey;
  /** Adds this node's calls to the table, and reads those of the others. Runs automatically while calls come. */
  share(): Promise<void>;
  /** Adds the remaining calls; nothing is counted afterwards. */
  stop(): Promise<void>;
};

/** A key's bucket on this node, with the calls that are not in the table yet: how many, and since when. */
type Share = { bucket: Bucket; spentMs: number; sinceMs: number };
type Spent = Pick<Share, 'spentMs' | 'sinceMs'>;

export function createKeyRates(given: {
  db: Queryable;
  nowMs?: () => number;
  shareEveryMs?: number;
}): KeyRates {
  const { db, nowMs = () => performance.now(), shareEveryMs = 500 } = given;
  const shares = new Map<number, Share>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let sharing: Promise<void> | undefined;
  let isStopped = false;

  function shareOf(
    keyId: number,
    { limit, fullAtMs }: { limit: number; fullAtMs: number | undefined },
  ): Share {
    const known = shares.get(keyId);
    if (known?.bucket.limit === limit) return known;
    const bucket = known?.bucket.withLimit(limit) ?? new Bucket(limit);
    if (known === undefined && fullAtMs !== undefined) bucket.fillAt(fullAtMs);
    const share = { spentMs: 0, sinceMs: 0, ...known, bucket };
    shares.set(keyId, share);
    return share;
  }

  function shareSoon(): void {
    if (timer !== undefined || isStopped) return;
    timer = setTimeout(() => {
      sharing = addAll().finally(() => {
        sharing = undefined;
        timer = undefined;
        if (shares.size > 0) shareSoon();
      });
    }, shareEveryMs).unref();
  }

  async function addAll(): Promise<void> {
    const at = nowMs();
    const sent = new Map<number, Spent>();
    for (const [keyId, share] of shares) {
      const { bucket, spentMs, sinceMs } = share;
      if (spentMs > 0) sent.set(keyId, { spentMs, sinceMs });
      else if (bucket.isFull(at)) shares.delete(keyId);
      share.spentMs = 0;
    }
    if (sent.size === 0) return;
    const rows = await addSpent(db, { sent, at }).catch(() => undefined);
    const fullInMs = new Map(rows?.map((row) => [row.keyId, row.fullInMs]));
    for (const [keyId, { spentMs, sinceMs }] of sent) {
      const share = shares.get(keyId);
      if (share === undefined) continue;
      const full = fullInMs.get(keyId);
      if (full !== undefined) share.bucket.fillAt(at + full + share.spentMs);
      // Calls that could not be added are added the next time.
      else if (rows === undefined) Object.assign(share, { spentMs: share.spentMs + spentMs, sinceMs });
      // The key was deleted.
      else shares.delete(keyId);
    }
  }

  return {
    take({ keyId, fullAtMs }, limit) {
      const share = shareOf(keyId, { limit, fullAtMs });
      const at = nowMs();
      const allowance = share.bucket.take(at);
      if (allowance.waitMs > 0) return allowance;
      if (share.spentMs === 0) share.sinceMs = at;
      share.spentMs += share.bucket.callMs;
      shareSoon();
      return allowance;
    },
    share: addAll,
    async stop() {
      isStopped = true;
      clearTimeout(timer);
      await sharing;
      await addAll();
    },
  };
}

/**
 * Calls count from the time when they were made, since a bucket fills until they are added. One statement for all keys, in the
 * same order on every node, so nodes do not deadlock.
 */
async function addSpent(
  db: Queryable,
  { sent, at }: { sent: ReadonlyMap<number, Spent>; at: number },
): Promise<{ keyId: number; fullInMs: number }[]> {
  const all = [...sent.values()];
  return db.query<{ keyId: number; fullInMs: number }>(
    `with spent as (
       select api_key.id as key_id, ms * interval '1 millisecond' as taken, age * interval '1 millisecond' as ago
       from unnest($1::bigint[], $2::float8[], $3::float8[]) as given (key_id, ms, age)
       join api_key on api_key.id = given.key_id
     )
     insert into key_rate as known (key_id, full_at)
     select key_id, now() - ago + taken
     from spent
     order by key_id
     on conflict (key_id) do update
     set full_at = greatest(
       excluded.full_at,
       known.full_at + (select taken from spent where spent.key_id = known.key_id)
     )
     returning key_id as "keyId", extract(epoch from full_at - now())::float8 * 1000 as "fullInMs"`,
    [[...sent.keys()], all.map(({ spentMs }) => spentMs), all.map(({ sinceMs }) => at - sinceMs)],
  );
}
