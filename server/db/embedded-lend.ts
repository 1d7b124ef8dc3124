// The embedded database for commands, beside a service that runs and where none does.

import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { type EmbeddedConnection, findEmbedded, openEmbedded } from './embedded.ts';
import { Taken } from './embedded-lock.ts';
import type { EmbeddedPostgres, Log } from './embedded-run.ts';
import { type Session, withSession } from './embedded-session.ts';

/** Held shared by each command that uses a server, and alone by the one that started it, from their end to its stop. */
const users = `hashtextextended('users of the server', 0)`;
/** So long a server may take to start or to stop, on a machine that has much to do. */
const limitMs = 60_000;
const tellsAfterMs = 2_000;
const looksEachMs = 50;

/**
 * Lends a server on the database of `dataDir` to `work`: the one that runs there, else one that is started for it. Of
 * commands at once one starts it and the others share it; it goes when the last of them is done. Throws where there is no
 * database, and after a minute where another process keeps the place to itself; `log` is told what is waited for.
 */
export async function withEmbedded<T>(
  { dataDir, log }: { dataDir: string; log: Log },
  work: (server: EmbeddedConnection) => Promise<T>,
): Promise<T> {
  const since = performance.now();
  for (let isTold = false; ; await sleep(looksEachMs)) {
    const lent = (await useRunning(dataDir, work)) ?? (await useOwn({ dataDir, log }, work));
    if ('result' in lent) return lent.result;
    const waitedMs = performance.now() - since;
    if (waitedMs > limitMs) throw lent.kept;
    if (waitedMs > tellsAfterMs && !isTold) log('waiting for a PostgreSQL that starts, stops or is upgraded');
    isTold ||= waitedMs > tellsAfterMs;
  }
}

type Lent<T> = { result: T };

/** Undefined where none runs, or the one that does takes no users any more; `work` was not begun then. */
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

/** What was in the way where another process has the place. */
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
 * requests the server is turned away before it has begun anything, and waits for the process that holds the place.
 * Commands that come before that are served. `log` receives a message if the wait is long.
 */
export async function withoutUsers<T>(
  server: EmbeddedPostgres,
  { log }: { log: Log },
  work: () => Promise<T>,
): Promise<T> {
  return withSession(server.connection, async (session) => {
    const slow = setTimeout(
      () => log('waiting for other commands that use the database; ending this one breaks them off'),
      tellsAfterMs,
    );
    try {
      // In no line: who comes after one that stands in it would wait for all before it.
      while (!(await takes(session, 'pg_try_advisory_lock'))) await sleep(looksEachMs);
    } finally {
      clearTimeout(slow);
    }
    try {
      return await work();
    } finally {
      // With the lock held, which goes with the server.
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

/** Of a server that stops, starts, or has all the sessions it takes (PostgreSQL manual, appendix A), or has gone by now. */
function isLeaving(error: unknown): boolean {
  const { code = '' } = error as NodeJS.ErrnoException;
  if (error instanceof pg.DatabaseError) return /^(57P0[123]|53300)$/.test(code);
  return code !== 'EACCES' && code !== 'EPERM';
}
