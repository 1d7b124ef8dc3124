/** Claims remote calls of other nodes, runs them and writes the answers: see `remote-calls.ts`. */
import type { Db, Queryable } from '../db/pool.ts';
import { remoteSpanOf, spanned } from '../tracing/tracing.ts';
import { createWorker, type Look, type Task, type Worker, writeWhileHeld } from '../work.ts';
import { awaitedS } from './remote-calls.ts';

/**
 * Runs one remote call. `signal` aborts when no caller waits any more. Undefined: the call has not begun here, and another
 * node must run it. An error goes only to the log.
 */
export type HandleRemoteCall = (
  request: Buffer,
  of: { environmentId: number; signal: AbortSignal },
) => Promise<Buffer | undefined>;

export type RemoteCallServer = {
  /** Accepts calls until `stop`. */
  start(): void;
  /**
   * Claims nothing more, and gives back calls that have not begun. Calls under way may end within `graceMs`. The callers of the
   * others get `lost`.
   */
  stop(graceMs: number): Promise<void>;
};

/** The maximum number of calls under way at once on this node, whatever its capacity. */
const max = 200;
/** The maximum number of calls that a look without capacity claims. */
const maxLeft = 8;
const patientMs = 1_500;
const leaseS = 20;
/** How often calls under way are renewed, which also checks whether their callers still wait. */
const renewMs = 1_000;
/** A statement that was not confirmed may be carried out as late as this. */
const lateMs = 5_000;

type Taken = {
  readonly id: string;
  readonly environmentId: number;
  readonly kind: string;
  readonly request: Buffer;
  readonly traceparent: string | null;
  /** Of the server, when the row was last read. */
  serverLife: string;
};
type Held = Taken & { readonly leasedAtMs: number };

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
    /** How often the server looks for new calls. A caller waits for each. */
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
  /** Until then, rows may turn up that this node took with a statement whose answer was lost. */
  let straysUntilMs = Number.NEGATIVE_INFINITY;
  const worker: Worker<Held, void> = createWorker({
    look,
    execute,
    pollMs,
    onError,
    // A call without its lease continues: its caller reads the result elsewhere.
    lease: { leaseMs: leaseS * 1000, renewMs, renew: renewAll },
    onStop: () => giveBackStrays().catch(worker.report),
    async giveBack(tasks) {
      const ids = tasks.map(({ claim }) => claim.id);
      if (ids.length > 0) await removeAll(db, { ids, owner }).catch(worker.report);
    },
  });

  async function execute(task: Task<Held>): Promise<void> {
    const { id, kind, request, environmentId, traceparent } = task.claim;
    const { signal } = task;
    const isHeld = () => task.interruption !== 'lost';
    const isLeased = () => performance.now() - task.leasedAtMs <= leaseS * 1000;
    /** The result of a remote call exists only here. */
    const whileHeld = (write: () => Promise<unknown>) =>
      writeWhileHeld(write, { isHeld: () => isHeld() && isLeased(), onFailure: worker.report });
    try {
      const answer = await spannedFor({ kind, traceparent }, () =>
        kinds[kind]!(request, { environmentId, signal }),
      );
      await whileHeld(() => {
        if (signal.aborted) return removeAll(db, { ids: [id], owner });
        return answer === undefined
          ? db.query(giveBack, [id, owner])
          : db.query('update errand set answer = $3 where id = $1 and owner = $2', [id, owner, answer]);
      });
    } catch (error) {
      if (!isHeld()) return;
      onError(error);
      // The caller learns at once that there is no answer.
      await whileHeld(() => removeAll(db, { ids: [id], owner }));
    }
  }

  async function look(): Promise<Look> {
    const held = worker.tasks().length;
    const capacity = Math.min(remainingCapacity(held), max - held);
    const wanted = capacity > 0 ? { count: capacity } : { count: Math.min(maxLeft, max - held), leftAfterMs };
    if (wanted.count <= 0) return 'nothing';
    const leasedAtMs = performance.now();
    if (leasedAtMs < straysUntilMs) await giveBackStrays();
    const taken = await take(db, { owner, kinds: Object.keys(kinds), ...wanted }).catch((error: unknown) => {
      straysUntilMs = performance.now() + lateMs;
      throw error;
    });
    // Nobody could report the end of a call that begins now: `stop` gives it back.
    if (worker.isStopping()) return 'nothing';
    for (const remoteCall of taken) void worker.begin({ ...remoteCall, leasedAtMs });
    return 'nothing';
  }

  const giveBackStrays = () => giveBackBut(db, { ids: worker.tasks().map(({ claim }) => claim.id), owner });

  async function renewAll(tasks: readonly Task<Held>[]): Promise<Task<Held>[]> {
    const { serverLife, rows } = await renew(db, { ids: tasks.map(({ claim }) => claim.id), owner });
    return tasks.filter((task) => {
      const row = rows.get(task.claim.id);
      if (row === undefined ? isTakenBack(task, serverLife) : !row.isAwaited) task.interrupt('cancelled');
      if (row?.isAwaited !== true) return false;
      task.claim.serverLife = serverLife;
      return true;
    });
  }

  return { start: worker.start, stop: worker.stop };
}

/** Runs as part of the caller's trace; a call without a trace gets no span. */
function spannedFor<T>(
  { kind, traceparent }: { kind: string; traceparent: string | null },
  work: () => Promise<T>,
): Promise<T> {
  const parent = traceparent === null ? undefined : remoteSpanOf({ traceparent });
  return parent === undefined ? work() : spanned(`remote_call ${kind}`, { kind: 'server', parent }, work);
}

/** Deletes calls whose caller's node was killed. */
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
  of: { owner: string; kinds: string[]; count: number; leftAfterMs?: number },
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
    [of.owner, of.kinds, of.count, leaseS, (of.leftAfterMs ?? 0) / 1000],
  );
}

/**
 * Whether the caller has deleted the row of a remote call whose row is missing: nodes of earlier versions take a call back
 * in this way, and then no caller waits. Otherwise the row was lost with a crash of the server, or was given up because it
 * was not renewed in time: the caller looks elsewhere for the result.
 */
function isTakenBack({ claim, leasedAtMs }: Task<Held>, serverLife: string): boolean {
  return claim.serverLife === serverLife && performance.now() - leasedAtMs < leaseS * 1000;
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

/** Renews the leases of calls. Returns the calls that still exist, with whether their callers wait. */
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

/** Gives a call back, for any node that looks next. */
const giveBack = `
  update errand
  set owner = null, lease_until = null
  where id = $1 and owner = $2`;

/** Gives back all calls of this owner except these and answered ones: a claim that was not confirmed. */
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
