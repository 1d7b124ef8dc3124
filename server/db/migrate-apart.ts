/**
 * Statements of a migration that cannot be run in a transaction, such as `create index concurrently`.
 *
 * No lock_timeout bounds their waits, since there is no transaction to set it for, and behind a pooler no session either.
 * So another connection watches them. A statement that waits for a table is cancelled soon, since each other statement on
 * the table waits behind it. A statement that waits for older transactions to end is left alone: it blocks nothing, and
 * would have to start again.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { Queryable } from './pool.ts';

const lookEveryMs = 250;
/** How often it is told of a wait that is let be. */
const tellEveryMs = 60_000;

/** A statement that was cancelled because it waited for a table. */
export class HeldUp extends Error {}

type Watched = {
  /** The migration's. */
  name: string;
  /** So long a statement may wait for a table. */
  lockTimeoutMs: number;
  /** Told each minute of transactions that are waited for. */
  onWaiting: (error: Error) => void;
};

/** What a migration's statements begin with, so that they are known among those of the server. */
export function markOf(name: string): string {
  return `/* trellis migrates ${name} */`;
}

/**
 * Runs them one by one. To be called by the only node that migrates: what a node that died has left at the server is ended
 * first. Rejects with `HeldUp` where a table was held for too long; they are to be run again from the first one then.
 */
export async function runApart(db: Queryable, statements: readonly string[], of: Watched): Promise<void> {
  await db.query(
    `select pg_cancel_backend(pid)
     from pg_stat_activity
     where datname = current_database() and state = 'active' and starts_with(query, $1)`,
    [markOf(of.name)],
  );
  for (const statement of statements) await runWatched(db, statement, of);
}

async function runWatched(db: Queryable, statement: string, of: Watched): Promise<void> {
  const mark = `${markOf(of.name)} /* ${randomUUID()} */`;
  const ended = new AbortController();
  const watched = watch(db, { ...of, mark, signal: ended.signal });
  try {
    await db.query(`${mark} ${statement}`);
  } catch (error) {
    ended.abort();
    if (await watched) throw new HeldUp(`migration ${of.name} waited for a table`, { cause: error });
    throw error;
  } finally {
    ended.abort();
    await watched;
  }
}

/** Until the signal; whether the statement was cancelled. */
async function watch(
  db: Queryable,
  { mark, name, lockTimeoutMs, onWaiting, signal }: Watched & { mark: string; signal: AbortSignal },
): Promise<boolean> {
  let isCancelled = false;
  let toldMs = performance.now();
  while (!signal.aborted) {
    await pause(lookEveryMs, undefined, { signal }).catch(() => {});
    if (signal.aborted || isCancelled) continue;
    const waits = await db
      .query<{ cancelled: boolean | null }>(waiting, [mark, lockTimeoutMs])
      .catch(() => []);
    isCancelled = waits.some(({ cancelled }) => cancelled === true);
    if (waits.length === 0 || performance.now() - toldMs < tellEveryMs) continue;
    toldMs = performance.now();
    onWaiting(new Error(`migration ${name} waits for transactions that began before it`));
  }
  return isCancelled;
}

/** What the statement waits for; one that waits for a table for too long is cancelled. */
const waiting = `
  select case
    when lock.locktype = 'relation' and lock.waitstart < clock_timestamp() - $2::float8 * interval '1 millisecond'
    then pg_cancel_backend(lock.pid)
  end as cancelled
  from pg_locks as lock
  join pg_stat_activity as activity on activity.pid = lock.pid
  where activity.datname = current_database() and starts_with(activity.query, $1) and not lock.granted`;
