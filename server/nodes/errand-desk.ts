/** Takes errands of other nodes, does them and answers them: see `errands.ts`. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Db, Queryable } from '../db/pool.ts';

/** Does one errand. `signal` says that nobody waits any more. What it throws is told to nobody but the log. */
export type DoErrand = (
  request: Buffer,
  of: { environmentId: number; signal: AbortSignal },
) => Promise<Buffer>;

export type ErrandDesk = {
  /** From now on until `stop`. */
  start(): void;
  /** Takes nothing more. What is under way may end within `graceMs`; who asked for the rest learns that it is lost. */
  stop(graceMs: number): Promise<void>;
};

/** Under way at once, from this node. */
const most = 200;
const leaseS = 20;
/** How often those under way are renewed, and looked for whether anybody waits. */
const renewMs = 1_000;

type Taken = { id: string; environmentId: number; kind: string; request: Buffer };

export function createErrandDesk(
  db: Db,
  {
    kinds,
    pollMs,
    onError,
  }: {
    kinds: Record<string, DoErrand>;
    /** How often it is looked for new ones. Somebody waits for each. */
    pollMs: number;
    onError: (error: unknown) => void;
  },
): ErrandDesk {
  const owner = crypto.randomUUID();
  const underWay = new Map<string, AbortController>();
  const running = new Set<Promise<void>>();
  const stopping = new AbortController();
  let isFailing = false;
  let loop: Promise<void> | undefined;
  let renewing: Promise<void> | undefined;

  const report = (error: unknown) => {
    if (!isFailing) onError(error);
    isFailing = true;
  };

  async function work(errand: Taken, signal: AbortSignal): Promise<void> {
    try {
      const { environmentId } = errand;
      const answer = await kinds[errand.kind]!(errand.request, { environmentId, signal });
      await writeAnswer(db, { id: errand.id, owner, answer });
    } catch (error) {
      if (!underWay.has(errand.id)) return;
      onError(error);
      // Whoever waits learns at once that there is no answer.
      await removeAll(db, { ids: [errand.id], owner }).catch(report);
    }
  }

  async function look(): Promise<void> {
    const free = most - underWay.size;
    if (free <= 0) return;
    for (const errand of await take(db, { owner, kinds: Object.keys(kinds), most: free })) {
      const gone = new AbortController();
      underWay.set(errand.id, gone);
      const done = work(errand, gone.signal).finally(() => {
        underWay.delete(errand.id);
        running.delete(done);
      });
      running.add(done);
    }
    isFailing = false;
  }

  async function renewAll(): Promise<void> {
    const ids = [...underWay.keys()];
    if (ids.length === 0) return;
    const awaited = new Set(await renew(db, { ids, owner }));
    for (const id of ids) if (!awaited.has(id)) underWay.get(id)?.abort();
  }

  async function goOn(): Promise<void> {
    while (!stopping.signal.aborted) {
      await look().catch(report);
      await pause(pollMs, undefined, { signal: stopping.signal }).catch(() => {});
    }
  }

  let timer: NodeJS.Timeout | undefined;
  return {
    start() {
      loop ??= goOn();
      timer ??= setInterval(() => {
        renewing ??= renewAll()
          .catch(report)
          .finally(() => {
            renewing = undefined;
          });
      }, renewMs);
    },
    async stop(graceMs) {
      stopping.abort();
      await loop;
      const over = new AbortController();
      const grace = pause(graceMs, undefined, { signal: over.signal }).catch(() => {});
      await Promise.race([Promise.all(running), grace]);
      over.abort();
      clearInterval(timer);
      await renewing;
      const left = [...underWay.keys()];
      for (const gone of underWay.values()) gone.abort();
      underWay.clear();
      if (left.length > 0) await removeAll(db, { ids: left, owner }).catch(report);
    },
  };
}

/** Removes errands for which nobody waits, whose node did not live to take them back. */
export async function sweepErrands(db: Queryable): Promise<void> {
  await db.query(`delete from errand where awaited_until < clock_timestamp() - interval '1 minute'`);
}

function take(
  q: Queryable,
  { owner, kinds, most }: { owner: string; kinds: string[]; most: number },
): Promise<Taken[]> {
  return q.query<Taken>(
    `with open as (
       select id
       from errand
       where owner is null and awaited_until > clock_timestamp() and kind = any($2)
       order by id
       limit $3
       for update skip locked
     )
     update errand
     set owner = $1, lease_until = clock_timestamp() + make_interval(secs => $4)
     from open
     where errand.id = open.id
     returning errand.id, errand.environment_id as "environmentId", errand.kind, errand.request`,
    [owner, kinds, most, leaseS],
  );
}

/** Answers for which of these somebody waits yet. */
async function renew(q: Queryable, { ids, owner }: { ids: string[]; owner: string }): Promise<string[]> {
  const rows = await q.query<{ id: string }>(
    `update errand
     set lease_until = clock_timestamp() + make_interval(secs => $3)
     where id = any($1) and owner = $2 and awaited_until > clock_timestamp()
     returning id`,
    [ids, owner, leaseS],
  );
  return rows.map(({ id }) => id);
}

async function writeAnswer(
  q: Queryable,
  { id, owner, answer }: { id: string; owner: string; answer: Buffer },
): Promise<void> {
  await q.query('update errand set answer = $3 where id = $1 and owner = $2', [id, owner, answer]);
}

async function removeAll(q: Queryable, { ids, owner }: { ids: string[]; owner: string }): Promise<void> {
  await q.query('delete from errand where id = any($1) and owner = $2', [ids, owner]);
}
