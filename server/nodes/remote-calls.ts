/**
 * Calls from one node to another while a caller waits. A call is a row: the other node claims it and writes the answer there.
 *
 * Owns: the table `errand` and the life of its rows. Neighbours: `remote-call-server.ts` claims and answers calls. Does not
 * own: the content of a call. Its caller seals content that must stay secret.
 */
import { randomUUIDv7 } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { type Db, mayPass, type Queryable } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { currentTraceparent } from '../tracing/tracing.ts';

type RemoteCall = {
  environmentId: number;
  kind: string;
  request: Buffer;
  /** Withdraws the call. The node that runs it reads this within a second. */
  signal?: AbortSignal | undefined;
};

/**
 * `untaken`: no node claimed the call in time or before it was withdrawn, and none claims it later. `lost`: the node that
 * claimed it is lost, and its progress is not known. `cancelled`: it was withdrawn from the node that claimed it.
 */
export type RemoteCallEnd = { answer: Buffer } | { none: 'untaken' | 'lost' | 'cancelled' };

export type RemoteCalls = {
  /**
   * Waits through outages of the database, for as long as a node may take the call: no failure is reported while a node may
   * still begin. It throws if no node has begun, except for errors of the service.
   */
  ask(remoteCall: RemoteCall): Promise<RemoteCallEnd>;
};

/** How long a call stays valid after its caller's node is killed. The node renews it after a third of this time. */
export const awaitedS = 15;
/** How often a node polls the rows of its calls: one statement for all. */
const pollMs = 50;
/** A call that no node claims within this time is withdrawn. Nodes look for calls several times a second. */
const untakenMs = 10_000;
/** A row whose insert was not confirmed may appear as late as this. */
const lateMs = 2_000;
/** The time limit of a poll, for a database that does not respond. */
const maxLookMs = 5_000;

type Waiting = {
  readonly insertedAtMs: number;
  /** The error of an insert that may have been carried out. */
  readonly doubt: unknown;
  /** A node may claim the call until then. */
  takeableUntilMs: number;
  isWithdrawn: boolean;
  readonly end: (end: RemoteCallEnd) => void;
  readonly fail: (error: unknown) => void;
};

export function createRemoteCalls(
  db: Db,
  { untakenAfterMs = untakenMs, lastingS = awaitedS }: { untakenAfterMs?: number; lastingS?: number } = {},
): RemoteCalls {
  const waiting = new Map<string, Waiting>();
  const takeableFromNow = () => performance.now() + lastingS * 1000;
  let isLooking = false;
  let renewedAtMs = 0;

  async function look(): Promise<void> {
    const looked = [...waiting];
    const nowMs = performance.now();
    const ids = looked.map(([id]) => id);
    const states = new Map((await findStates(db, ids)).map((row) => [row.id, row]));
    const over: string[] = [];
    for (const [id, of] of looked) {
      const state = states.get(id);
      if (state === undefined) endGone(of, nowMs);
      else if (state.isOver || of.isWithdrawn) over.push(id);
      else if (!state.isTaken && nowMs - of.insertedAtMs > untakenAfterMs) over.push(id);
    }
    await endOver(over);
    // Only after a poll that succeeded: a renewal that failed may have been carried out.
    if (performance.now() - renewedAtMs > (lastingS * 1000) / 3) await renewAll();
  }

  /** For a call without a row. */
  function endGone({ insertedAtMs, doubt, end, fail }: Waiting, nowMs: number): void {
    if (doubt === undefined) end({ none: 'lost' });
    else if (nowMs - insertedAtMs > lateMs) fail(doubt);
  }

  /**
   * While polls fail: ends a call that no node can claim any more, although one may have; and a withdrawn call on a node that
   * has closed its pool.
   */
  function endLapsed({ takeableUntilMs, isWithdrawn, end, fail }: Waiting, error: unknown): void {
    const isOver = isWithdrawn && !mayPass(error);
    if (performance.now() < takeableUntilMs && !isOver) return;
    if (mayPass(error)) end({ none: 'lost' });
    else fail(error);
  }

  async function endOver(ids: string[]): Promise<void> {
    if (ids.length === 0) return;
    const held = new Set(ids);
    for (const { id, answer, isTaken } of await takeAway(db, ids)) {
      held.delete(id);
      waiting.get(id)?.end(answer !== null ? { answer } : { none: isTaken ? 'lost' : 'untaken' });
    }
    const withdrawn = [...held].filter((id) => waiting.get(id)?.isWithdrawn);
    if (withdrawn.length === 0) return;
    await awaitFor(db, { ids: withdrawn, lastingS: null });
    for (const id of withdrawn) waiting.get(id)?.end({ none: 'cancelled' });
  }

  async function renewAll(): Promise<void> {
    const renewed = [...waiting];
    try {
      await awaitFor(db, { ids: renewed.map(([id]) => id), lastingS });
      renewedAtMs = performance.now();
    } finally {
      for (const [, of] of renewed) of.takeableUntilMs = takeableFromNow();
    }
  }

  /** Polls while a caller waits. */
  async function keepPolling(): Promise<void> {
    if (isLooking) return;
    isLooking = true;
    while (waiting.size > 0) {
      const over = new AbortController();
      const late = pause(maxLookMs, undefined, { signal: over.signal, ref: false }).then(() => {
        throw new AppError('unavailable', 'The database does not answer.');
      });
      try {
        await Promise.race([look(), late]);
      } catch (error) {
        for (const of of waiting.values()) endLapsed(of, error);
      }
      over.abort();
      // Callers and their sockets keep the process alive.
      await pause(pollMs, undefined, { ref: false });
    }
    isLooking = false;
  }

  return {
    async ask({ signal, ...remoteCall }) {
      const id = randomUUIDv7();
      if (signal?.aborted) return { none: 'untaken' };
      let doubt: unknown;
      await insert(db, { ...remoteCall, id, lastingS }).catch((error: unknown) => {
        if (!mayPass(error)) throw error;
        doubt = error;
      });
      const over = Promise.withResolvers<RemoteCallEnd>();
      const of: Waiting = {
        insertedAtMs: performance.now(),
        doubt,
        takeableUntilMs: takeableFromNow(),
        isWithdrawn: false,
        end: over.resolve,
        fail: over.reject,
      };
      const withdraw = () => {
        of.isWithdrawn = true;
      };
      waiting.set(id, of);
      signal?.addEventListener('abort', withdraw, { once: true });
      if (signal?.aborted) withdraw();
      void keepPolling();
      try {
        return await over.promise;
      } finally {
        signal?.removeEventListener('abort', withdraw);
        waiting.delete(id);
      }
    },
  };
}

async function insert(
  q: Queryable,
  of: Omit<RemoteCall, 'signal'> & { id: string; lastingS: number },
): Promise<void> {
  await q.query(
    `insert into errand (id, environment_id, kind, request, awaited_until, traceparent)
     values ($1, $2, $3, $4, clock_timestamp() + make_interval(secs => $5), $6)`,
    [of.id, of.environmentId, of.kind, of.request, of.lastingS, currentTraceparent()],
  );
}

/**
 * Sets until when the caller waits for these calls: `lastingS` from now. Null: no caller waits any more, which the node
 * that runs a call reads there. Its row stays, since a missing row tells that node nothing. Locks in the order in which
 * every statement locks several rows.
 */
async function awaitFor(
  q: Queryable,
  { ids, lastingS }: { ids: string[]; lastingS: number | null },
): Promise<void> {
  await q.query(
    `update errand
     set awaited_until = coalesce(clock_timestamp() + make_interval(secs => $2), '-infinity')
     from (
       select id
       from errand
       where id = any($1)
       order by id
       for no key update
     ) as held
     where errand.id = held.id`,
    [ids, lastingS],
  );
}

type State = { id: string; isTaken: boolean; isOver: boolean };

function findStates(q: Queryable, ids: string[]): Promise<State[]> {
  return q.query<State>(
    `select
       id,
       owner is not null as "isTaken",
       answer is not null or coalesce(lease_until <= clock_timestamp(), false) as "isOver"
     from errand
     where id = any($1)`,
    [ids],
  );
}

/** Deletes the calls that are unclaimed, answered, or without a valid lease, and returns them with their answers. */
function takeAway(
  q: Queryable,
  ids: string[],
): Promise<{ id: string; answer: Buffer | null; isTaken: boolean }[]> {
  return q.query(
    `delete from errand
     using (
       select id
       from errand
       where id = any($1) and (owner is null or answer is not null or lease_until <= clock_timestamp())
       order by id
       for update
     ) as over
     where errand.id = over.id
     returning errand.id, errand.answer, errand.owner is not null as "isTaken"`,
    [ids],
  );
}
