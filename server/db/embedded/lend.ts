// The embedded database for commands, with or without a running service.

import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { type EmbeddedConnection, findEmbedded, openEmbedded } from './embedded.ts';
import { Taken } from './lock.ts';
import type { EmbeddedPostgres, Log } from './run.ts';
import { type Session, withSession } from './session.ts';

/** A lock: shared for each command that uses a server; exclusive for the process that stops it, when they have ended. */
const users = `hashtextextended('users of the server', 0)`;
/** The time for a start or stop of a server on a busy machine. */
const limitMs = 60_000;
const tellsAfterMs = 2_000;
const looksEachMs = 50;

/**
 * Lends a server on the database of `dataDir` to `work`: the running one, otherwise one that is started for it. Simultaneous
 * commands share one server; it stops when the last of them has ended. Throws if there is no database, and after a minute if
 * another process uses the data directory; `log` receives a message about the wait.
 */
export async function withEmbedded<T>(
  { dataDir, log }: { dataDir: string; log: Log },
  work: (server: EmbeddedConnection) => Promise<T>,
): Promise<T> {
  const since = performance.now();
  for (let isTold = false; ; await sleep(looksEachMs)) {
    const outcome = (await useRunning(dataDir, work)) ?? (await useOwn({ dataDir, log }, work));
    if ('result' in outcome) return outcome.result;
    const waitedMs = performance.now() - since;
    if (waitedMs > limitMs) throw outcome.kept;
    if (waitedMs > tellsAfterMs && !isTold)
      log('waiting until PostgreSQL has started, stopped or been upgraded');
    isTold ||= waitedMs > tellsAfterMs;
  }
}

type Lent<T> = { result: T };

/** Undefined if no server runs, or if it admits no commands any more; then `work` was not called. */
async function useRunning<T>(
  dataDir: string,
  work: (server: EmbeddedConnection) => Promise<T>,
): Promise<Lent<T> | undefined> {
  const running = await findEmbedded(dataDir);
  if (running === undefined) return undefined;
  let hasBegun = false;
  try {
    return await withSession(running, async (session) => {
      // The process with the exclusive lock stops the server in the end. A wait for that would have no limit and no log line.
      if (!(await takes(session, 'pg_try_advisory_lock_shared'))) return undefined;
      // A server that stops writes so in its file, then ends its sessions, also that of the exclusive lock. So the lock is
      // ours if the file does not say so and the session still answers: the file may be another server's.
      if ((await findEmbedded(dataDir)) === undefined) return undefined;
      await session.query('select 1');
      hasBegun = true;
      return { result: await work(running) };
    });
  } catch (error) {
    if (hasBegun || !isLeaving(error)) throw error;
    return undefined;
  }
}

/** Returns the error if another process uses the data directory. */
async function useOwn<T>(
  given: { dataDir: string; log: Log },
  work: (server: EmbeddedConnection) => Promise<T>,
): Promise<Lent<T> | { kept: Taken }> {
  let server: EmbeddedPostgres;
  try {
    server = await openEmbedded(given);
  } catch (error) {
    if (error instanceof Taken) return { kept: error };
    throw error;
  }
  try {
    return { result: await work(server.connection) };
  } finally {
    await withoutUsers(server, { log: given.log }, async () => {}).catch(() => server.stop());
  }
}

/**
 * Runs `work` once no command uses `server` any more, and stops it. From the beginning of `work` on, a command that
 * requests the server is turned away before it has begun anything, and waits for the process that uses the data directory.
 * Commands that come before that are served. `log` receives a message if the wait is long.
 */
export async function withoutUsers<T>(
  server: EmbeddedPostgres,
  { log }: { log: Log },
  work: () => Promise<T>,
): Promise<T> {
  return withSession(server.connection, async (session) => {
    const slow = setTimeout(
      () => log('waiting for other commands that use the database; if this command is stopped, they fail'),
      tellsAfterMs,
    );
    try {
      // Not by a wait in PostgreSQL's queue: commands that come later would wait behind this one.
      while (!(await takes(session, 'pg_try_advisory_lock'))) await sleep(looksEachMs);
    } finally {
      clearTimeout(slow);
    }
    try {
      return await work();
    } finally {
      // While the lock is held; it ends with the server.
      await server.stop();
    }
  });
}

async function takes(
  session: Session,
  lock: 'pg_try_advisory_lock' | 'pg_try_advisory_lock_shared',
): Promise<boolean> {
  const [row] = await session.query<{ taken: boolean }>(`select ${lock}(${users}) as taken`);
  return row!.taken;
}

/** Errors of a server that stops, starts, has no free session (PostgreSQL manual, appendix A), or has stopped. */
function isLeaving(error: unknown): boolean {
  const { code = '' } = error as NodeJS.ErrnoException;
  if (error instanceof pg.DatabaseError) return /^(57P0[123]|53300)$/.test(code);
  return code !== 'EACCES' && code !== 'EPERM';
}
