/** Accepts remote calls of other nodes, runs them and answers them: see `remote-calls.ts`. */
import { setTimeout as pause } from 'node:timers/promises';
import { type Db, mayPass, type Queryable } from '../db/pool.ts';
import { remoteSpanOf } from '../tracing/span.ts';
import { spanned } from '../tracing/tracing.ts';
import { awaitedS } from './remote-calls.ts';

/**
 * Runs one remote call. `signal` reports that no caller waits for it any more. Undefined: the call has not begun here, and
 * another node is to run it. An error that it throws goes to the log alone.
 */
export type HandleRemoteCall = (
  request: Buffer,
  of: { environmentId: number; signal: AbortSignal },
) => Promise<Buffer | undefined>;

export type RemoteCallServer = {
  /** From now on until `stop`. */
  start(): void;
  /**
   * Takes nothing more, and gives back what it was just taking. What is under way may end within `graceMs`; who asked for
   * the rest learns that it is lost.
   */
  stop(graceMs: number): Promise<void>;
};

/** The maximum number of calls under way at once on this node, whatever its capacity. */
const max = 200;
/** The maximum number of calls, of those that all nodes have left for long, that one poll takes. */
const maxLeft = 8;
const patientMs = 1_500;
const leaseS = 20;
/** How often calls under way are renewed, which also checks whether their callers still wait. */
const renewMs = 1_000;
/** The pause between two attempts to write the result of a remote call. */
const againMs = 250;
/** A statement whose answer was lost may be carried out as late as this. */
const lateMs = 5_000;

type Taken = {
  id: string;
  environmentId: number;
  kind: string;
  request: Buffer;
  traceparent: string | null;
  serverLife: string;
};
type UnderWay = {
  readonly id: string;
  readonly gone: AbortController;
  renewedAtMs: number;
  /** Of the server, when the row was last seen. */
  serverLife: string;
};

export function createRemoteCallServer(
  db: Db,
  {
    kinds,
    pollMs,
    remainingCapacity,
    leftAfterMs = patientMs,
    onError,
  }: {
    kinds: Record<string, HandleRemoteCall>;
    /** How often it is looked for new ones. Somebody waits for each. */
    pollMs: number;
    /**
     * How many more calls this node can take, beside so many remote calls. Without capacity it takes calls that other nodes
     * have left for `leftAfterMs`: a call then waits here, where it is cancelled and reported as a running call is.
     */
    remainingCapacity: (remoteCalls: number) => number;
    leftAfterMs?: number;
    onError: (error: unknown) => void;
  },
): RemoteCallServer {
  const owner = crypto.randomUUID();
  const underWay = new Map<string, UnderWay>();
  const running = new Set<Promise<void>>();
  const stopping = new AbortController();
  let isFailing = false;
  /** The last look took all that it could: there may be more. */
  let mayBeMore = false;
  /** Until then, remote calls may turn up that were taken here by a statement whose answer was lost. */
  let straysUntilMs = Number.NEGATIVE_INFINITY;
  let loop: Promise<void> | undefined;
  let renewing: Promise<void> | undefined;
  let wake = () => {};

  const report = (error: unknown) => {
    if (!isFailing) onError(error);
    isFailing = true;
  };

  async function work({ id, kind, request, environmentId, traceparent }: Taken, of: UnderWay): Promise<void> {
    try {
      const answer = await spannedFor({ kind, traceparent }, () =>
        kinds[kind]!(request, { environmentId, signal: of.gone.signal }),
      );
      await whileHeld(of, () => {
        if (of.gone.signal.aborted) return removeAll(db, { ids: [id], owner });
        return answer === undefined
          ? giveBack(db, { ids: [id], owner })
          : writeAnswer(db, { id, owner, answer });
      });
    } catch (error) {
      if (!isHeld(of)) return;
      onError(error);
      // The caller learns at once that there is no answer.
      await whileHeld(of, () => removeAll(db, { ids: [id], owner })).catch(report);
    }
  }

  const isHeld = (of: UnderWay) => underWay.get(of.id) === of;

  /** Repeats the write while the database is away: the result of a remote call exists only here. */
  async function whileHeld(of: UnderWay, write: () => Promise<void>): Promise<void> {
    for (;;) {
      try {
        return await write();
      } catch (error) {
        const isLapsed = performance.now() - of.renewedAtMs > leaseS * 1000;
        if (isLapsed || !isHeld(of) || !mayPass(error)) throw error;
        report(error);
      }
      await pause(againMs);
    }
  }

  async function look(): Promise<void> {
    const capacity = Math.min(remainingCapacity(underWay.size), max - underWay.size);
    const wanted =
      capacity > 0 ? { count: capacity } : { count: Math.min(maxLeft, max - underWay.size), leftAfterMs };
    if (wanted.count <= 0) return;
    const takenAtMs = performance.now();
    if (takenAtMs < straysUntilMs) await giveBackStrays();
    const taken = await take(db, { owner, kinds: Object.keys(kinds), ...wanted }).catch((error: unknown) => {
      straysUntilMs = performance.now() + lateMs;
      throw error;
    });
    // Of what begins now nobody could say how it ends: `stop` gives it back.
    if (stopping.signal.aborted) return;
    mayBeMore = taken.length === wanted.count;
    for (const remoteCall of taken) {
      const { id, serverLife } = remoteCall;
      const of: UnderWay = { id, serverLife, gone: new AbortController(), renewedAtMs: takenAtMs };
      underWay.set(of.id, of);
      const done = work(remoteCall, of).finally(() => {
        underWay.delete(of.id);
        running.delete(done);
        if (mayBeMore) wake();
      });
      running.add(done);
    }
    isFailing = false;
  }

  const giveBackStrays = () => giveBackBut(db, { ids: [...underWay.keys()], owner });

  async function renewAll(): Promise<void> {
    const held = [...underWay.values()];
    if (held.length === 0) return;
    const atMs = performance.now();
    const { serverLife, rows } = await renew(db, { ids: held.map(({ id }) => id), owner });
    for (const of of held) {
      const row = rows.get(of.id);
      if (row === undefined ? isTakenBack(of, serverLife) : !row.isAwaited) of.gone.abort();
      else if (row !== undefined) Object.assign(of, { renewedAtMs: atMs, serverLife });
    }
  }

  async function goOn(): Promise<void> {
    while (!stopping.signal.aborted) {
      const woken = new AbortController();
      wake = () => woken.abort();
      await look().catch(report);
      const signal = AbortSignal.any([stopping.signal, woken.signal]);
      await pause(pollMs, undefined, { signal }).catch(() => {});
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
      await giveBackStrays().catch(report);
      const over = new AbortController();
      const grace = pause(graceMs, undefined, { signal: over.signal }).catch(() => {});
      await Promise.race([Promise.all(running), grace]);
      over.abort();
      clearInterval(timer);
      await renewing;
      const left = [...underWay.keys()];
      for (const { gone } of underWay.values()) gone.abort();
      underWay.clear();
      if (left.length > 0) await removeAll(db, { ids: left, owner }).catch(report);
    },
  };
}

/** Runs as part of the caller's trace; a call without a trace gets no span. */
function spannedFor<T>(
  { kind, traceparent }: { kind: string; traceparent: string | null },
  work: () => Promise<T>,
): Promise<T> {
  const parent = traceparent === null ? undefined : remoteSpanOf({ traceparent });
  return parent === undefined ? work() : spanned(`errand ${kind}`, { kind: 'server', parent }, work);
}

/** Removes remote calls that no caller waits for, and that the caller's node did not live to take back. */
export async function sweepRemoteCalls(db: Queryable): Promise<void> {
  await db.query(
    `delete from errand
     using (
       select id
       from errand
       where awaited_until < clock_timestamp() - interval '1 minute'
         and (owner is null or lease_until < clock_timestamp() - interval '1 minute')
       for update skip locked
     ) as left_behind
     where errand.id = left_behind.id`,
  );
}

/**
 * With `leftAfterMs`, only calls that were requested at least that long ago: calls that are not renewed for that long,
 * which every remote call is now and then.
 */
function take(
  q: Queryable,
  {
    owner,
    kinds,
    count,
    leftAfterMs = 0,
  }: { owner: string; kinds: string[]; count: number; leftAfterMs?: number },
): Promise<Taken[]> {
  return q.query<Taken>(
    `with open as (
       select id
       from errand
       where owner is null
         and awaited_until > clock_timestamp()
         and kind = any($2)
         and ($5::float8 = 0 or awaited_until < clock_timestamp() + make_interval(secs => ${awaitedS} - $5))
       order by id
       limit $3
       for update skip locked
     )
     update errand
     set owner = $1, lease_until = clock_timestamp() + make_interval(secs => $4)
     from open
     where errand.id = open.id
     returning errand.id, errand.environment_id as "environmentId", errand.kind, errand.request,
       errand.traceparent, ${serverLife} as "serverLife"`,
    [owner, kinds, count, leaseS, leftAfterMs / 1000],
  );
}

/**
 * Whether the caller has deleted the row of a remote call whose row is missing: nodes of earlier versions take a call back
 * in this way, and then no caller waits. Otherwise the row was lost with a crash of the server, or was given up because it
 * was not renewed in time: the caller looks elsewhere for the result.
 */
function isTakenBack({ renewedAtMs, ...of }: UnderWay, serverLife: string): boolean {
  return of.serverLife === serverLife && performance.now() - renewedAtMs < leaseS * 1000;
}

/**
 * Names a period in which no row of an unlogged table is lost. A start of the server ends the period. So does a crash of
 * one of its processes, after which PostgreSQL resets its statistics as well (`pgstat_reset_after_failure`). A truncation
 * gives the table another file.
 */
const serverLife = `concat_ws(
  ' ',
  extract(epoch from pg_postmaster_start_time()),
  extract(epoch from pg_stat_get_bgwriter_stat_reset_time()),
  pg_relation_filenode('errand')
)`;

/** Answers which of these are there yet, and whether somebody waits. */
async function renew(
  q: Queryable,
  { ids, owner }: { ids: string[]; owner: string },
): Promise<{ serverLife: string; rows: ReadonlyMap<string, { isAwaited: boolean }> }> {
  const found = await q.query<{ serverLife: string; id: string | null; isAwaited: boolean | null }>(
    `with held as (
       select id
       from errand
       where id = any($1) and owner = $2
       order by id
       for no key update
     ), renewed as (
       update errand
       set lease_until = clock_timestamp() + make_interval(secs => $3)
       from held
       where errand.id = held.id
       returning errand.id, errand.awaited_until > clock_timestamp() as is_awaited
     )
     select server.life as "serverLife", renewed.id, renewed.is_awaited as "isAwaited"
     from (select ${serverLife} as life) as server
     left join renewed on true`,
    [ids, owner, leaseS],
  );
  const rows = new Map<string, { isAwaited: boolean }>();
  for (const { id, isAwaited } of found) if (id !== null) rows.set(id, { isAwaited: isAwaited === true });
  return { serverLife: found[0]!.serverLife, rows };
}

/** Gives calls back, so that the next node that polls may take them. */
async function giveBack(q: Queryable, { ids, owner }: { ids: string[]; owner: string }): Promise<void> {
  await q.query('update errand set owner = null, lease_until = null where id = any($1) and owner = $2', [
    ids,
    owner,
  ]);
}

/** All that this owner has beside these, and has not answered: it does not know of them. */
async function giveBackBut(q: Queryable, { ids, owner }: { ids: string[]; owner: string }): Promise<void> {
  await q.query(
    `update errand
     set owner = null, lease_until = null
     from (
       select id
       from errand
       where owner = $2 and answer is null and id <> all($1)
       order by id
       for no key update
     ) as stray
     where errand.id = stray.id`,
    [ids, owner],
  );
}

async function writeAnswer(
  q: Queryable,
  { id, owner, answer }: { id: string; owner: string; answer: Buffer },
): Promise<void> {
  await q.query('update errand set answer = $3 where id = $1 and owner = $2', [id, owner, answer]);
}

async function removeAll(q: Queryable, { ids, owner }: { ids: string[]; owner: string }): Promise<void> {
  await q.query(
    `delete from errand
     using (
       select id
       from errand
       where id = any($1) and owner = $2
       order by id
       for update
     ) as held
     where errand.id = held.id`,
    [ids, owner],
  );
}
