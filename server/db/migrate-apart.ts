/**
 * Statements of a migration that cannot run in a transaction, such as `create index concurrently`.
 *
 * No lock_timeout limits their waits: there is no transaction for it, and behind a pooler no session. So another connection
 * watches them. A statement that waits for a table is cancelled soon, because all other statements on the table queue behind
 * it. A statement that waits for older transactions is not cancelled: it blocks nothing, and would have to start again.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { Queryable } from './pool.ts';

const pollEveryMs = 250;
/** How often a permitted wait is reported. */
const reportEveryMs = 60_000;

/** A statement that was cancelled because it waited for a table. */
export class HeldUp extends Error {}

type Watched = {
  /** The name of the migration. */
  name: string;
  /** The longest wait of a statement for a table. */
  lockTimeoutMs: number;
  /** Called each minute while a statement waits for transactions. */
  onWaiting: (error: Error) => void;
};

/** The beginning of a migration's statements, which identifies them at the server. */
export function markOf(name: string): string {
  return `/* trellis migrates ${name} */`;
}

/**
 * Runs the statements one by one. Only the node that migrates may call it: it first cancels statements that a dead node left
 * at the server. Rejects with `HeldUp` if a table was locked for too long; then all statements must run again.
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

/** Watches until the signal; returns whether the statement was cancelled. */
async function watch(
  db: Queryable,
  { mark, name, lockTimeoutMs, onWaiting, signal }: Watched & { mark: string; signal: AbortSignal },
): Promise<boolean> {
  let isCancelled = false;
  let reportedMs = performance.now();
  while (!signal.aborted) {
    await pause(pollEveryMs, undefined, { signal }).catch(() => {});
    if (signal.aborted || isCancelled) continue;
    const waits = await db
      .query<{ cancelled: boolean | null }>(waiting, [mark, lockTimeoutMs])
      .catch(() => []);
    isCancelled = waits.some(({ cancelled }) => cancelled === true);
    if (waits.length === 0 || performance.now() - reportedMs < reportEveryMs) continue;
    reportedMs = performance.now();
    onWaiting(new Error(`migration ${name} waits for transactions that began before it`));
  }
  return isCancelled;
}

/** The waits of the statement; cancels it if it waits for a table for too long. */
const waiting = `
  select case
    when lock.locktype = 'relation' and lock.waitstart < clock_timestamp() - $2::float8 * interval '1 millisecond'
    then pg_cancel_backend(lock.pid)
  end as cancelled
  from pg_locks as lock
  join pg_stat_activity as activity on activity.pid = lock.pid
  where activity.datname = current_database() and starts_with(activity.query, $1) and not lock.granted`;
