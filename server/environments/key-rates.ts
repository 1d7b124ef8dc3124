/**
 * The calls of keys with a limit, counted over all nodes.
 *
 * A call is judged by what this node knows, without a wait. It begins with what stood in the table `key_rate` when the
 * key was read, up to a second before; what it took it adds there twice a second, and learns so what the others took. So
 * for half a second a node that begins, or begins again after a pause, may not know that the others have emptied the
 * bucket: together they overstep a limit by what each lets pass in such a half second, a bucket each at most, and pause
 * for it afterwards. While the database is away each node goes on by what it knows.
 */
import type { Queryable } from '../db/pool.ts';
import { Bucket } from '../http/bucket.ts';
import type { TakeOfKey } from '../http/rate-limit.ts';

type KeyRates = {
  take: TakeOfKey;
  /** Adds what this node took to what all took, and learns what the others did. It does so by itself while calls come. */
  share(): Promise<void>;
  /** Adds what was not added yet; nothing is counted from then on. */
  stop(): Promise<void>;
};

/** What this node knows of a key, and what it has taken that is not in the table yet: how much, and since when. */
type Share = { bucket: Bucket; spentMs: number; sinceMs: number };
type Spent = Pick<Share, 'spentMs' | 'sinceMs'>;

/** `otherwise`: calls a minute of a key that has no limit of its own. */
export function createKeyRates({
  db,
  otherwise,
  nowMs = () => performance.now(),
  shareEveryMs = 500,
}: {
  db: Queryable;
  otherwise: number | undefined;
  nowMs?: () => number;
  shareEveryMs?: number;
}): KeyRates {
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
      // What could not be added is added with the next.
      else if (rows === undefined) Object.assign(share, { spentMs: share.spentMs + spentMs, sinceMs });
      // A key that is gone.
      else shares.delete(keyId);
    }
  }

  return {
    take({ keyId, rateLimit: limit = otherwise, fullAtMs }) {
      if (limit === undefined) return undefined;
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
 * A bucket fills while what was taken waits to be added, so that counts from when it was taken. One statement for all, in
 * one order on every node, so that none waits for another in a circle.
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
