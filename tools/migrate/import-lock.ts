import { setTimeout as sleep } from 'node:timers/promises';
import { limitConcurrency } from '../../server/concurrency.ts';
import type { Db, Tx } from '../../server/db/pool.ts';
import { AppError } from '../../server/errors.ts';

/** The lock of an import on its environments, and its database. */
export type ImportLock = {
  /** Throws if another import holds the environment. */
  take(environmentId: number): Promise<void>;
  /**
   * The database, with one statement or transaction at a time. An import works in parallel and has one connection beside
   * that of its locks: its statements wait here without a limit, and not in the pool, which fails after some seconds. A
   * transaction must not open another one.
   *
   * Throws `unavailable` for each statement once the locks are lost.
   */
  db: Db;
};

/**
 * Does `work` while no other import writes to the environments that it takes. The locks end with this process. They have
 * their own connection; if the server ends it, others can take the locks, so the import fails: throws `unavailable`. The
 * connection is checked every `everyMs` and at the end; no response `withinMs` counts as lost. Until a loss is detected, the
 * tokens of runs (`ledger.ts`) reject writes beside another import.
 */
export async function withImportLock<T>(
  db: Db,
  work: (lock: ImportLock) => Promise<T>,
  { everyMs = 15_000, withinMs = 10_000 }: { everyMs?: number; withinMs?: number } = {},
): Promise<T> {
  return db.transaction(async (tx) => {
    let lost: AppError | undefined;
    const { promise: loss, reject } = Promise.withResolvers<never>();
    const assertHeld = () => {
      if (lost !== undefined) throw lost;
    };
    // The query also keeps the server from ending the transaction as idle.
    const check = async () => {
      await answered(tx.query('select'), withinMs).catch((cause: unknown) => {
        lost ??= lostError(cause);
        reject(lost);
      });
      assertHeld();
    };
    const timer = setInterval(() => void check().catch(() => {}), everyMs);
    try {
      const done = work({ take: (id) => take(tx, id), db: oneAtATime(db, assertHeld) });
      const result = await Promise.race([done, loss]);
      await check();
      return result;
    } finally {
      clearInterval(timer);
    }
  });
}

/** Throws the error of the statement, or an error if it has no response in time. */
async function answered(statement: Promise<unknown>, withinMs: number): Promise<void> {
  const over = new AbortController();
  const late = sleep(withinMs, undefined, { signal: over.signal }).then(() => {
    throw new Error(`The database did not respond within ${withinMs} ms.`);
  });
  await Promise.race([statement, late]).finally(() => over.abort());
}

function lostError(cause: unknown): AppError {
  const message =
    'The database ended the session that holds the lock of this import, so the import has ended. Run the same command ' +
    'again: it continues where it stopped.';
  return new AppError('unavailable', message, { cause });
}

async function take(tx: Tx, environmentId: number): Promise<void> {
  const [lock] = await tx.query<{ isMine: boolean }>(
    `select pg_try_advisory_xact_lock(hashtextextended('import ' || $1::bigint, 0)) as "isMine"`,
    [environmentId],
  );
  if (lock?.isMine !== true)
    throw new Error('Another import into this environment is running. Wait until it ends, or stop it.');
}

function oneAtATime(db: Db, assertHeld: () => void): Db {
  const limit = limitConcurrency(1);
  const queued = <T>(work: () => Promise<T>): Promise<T> =>
    limit(async () => {
      assertHeld();
      return work();
    });
  return {
    database: db.database,
    query: (text, values) => queued(() => db.query(text, values)),
    run: (built) => queued(() => db.run(built)),
    transaction: (work, mode) => queued(() => db.transaction(work, mode)),
    transactionWithin: (work, limit) => queued(() => db.transactionWithin(work, limit)),
    pipeline: (pipeline) => queued(() => db.pipeline(pipeline)),
    load: () => db.load(),
    end: () => db.end(),
  };
}
