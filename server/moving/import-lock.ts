import { limitConcurrency } from '../concurrency.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';

/** What an import has while no other goes into its environments. */
export type ImportLock = {
  /** Throws where another import goes into the environment. */
  take(environmentId: number): Promise<void>;
  /**
   * The database, where statements and transactions come one after the other. An import does many things at once and has one
   * connection beside that of its locks: who waits for it does so here, for as long as it takes, and not in the pool, which
   * gives up after some seconds. What runs in a transaction must not ask for another.
   *
   * Throws `unavailable` for all that comes once the locks are lost.
   */
  db: Db;
};

/**
 * Does `work` while no other import goes into the environments that it takes. The locks end with this process, however that
 * ends. They need a connection of their own; where the server ends that one the locks are free for others, so that `work` is
 * given up: throws `unavailable`. That is looked for every `everyMs`, and at the end; no answer `withinMs` is a loss, too. Until
 * it is found, the tokens of runs (`ledger.ts`) keep the work from writing beside another import.
 */
export async function withImportLock<T>(
  db: Db,
  work: (withImportLock: ImportLock) => Promise<T>,
  { everyMs = 15_000, withinMs = 10_000 }: { everyMs?: number; withinMs?: number } = {},
): Promise<T> {
  return db.transaction(async (tx) => {
    let lost: AppError | undefined;
    const { promise: loss, reject } = Promise.withResolvers<never>();
    const prove = () => {
      if (lost !== undefined) throw lost;
    };
    // Also so that the server does not end the transaction as one that nobody uses.
    const look = async () => {
      await answered(tx.query('select'), withinMs).catch((cause: unknown) => {
        lost ??= lostError(cause);
        reject(lost);
      });
      prove();
    };
    const timer = setInterval(() => void look().catch(() => {}), everyMs);
    try {
      const done = work({ take: (id) => take(tx, id), db: inTurn(db, prove) });
      const result = await Promise.race([done, loss]);
      await look();
      return result;
    } finally {
      clearInterval(timer);
    }
  });
}

/** Throws what the statement throws, or that it has no answer in time. */
async function answered(statement: Promise<unknown>, withinMs: number): Promise<void> {
  const { promise: silence, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => reject(new Error(`The database did not answer within ${withinMs} ms.`)),
    withinMs,
  );
  try {
    await Promise.race([statement, silence]);
  } finally {
    clearTimeout(timer);
  }
}

function lostError(cause: unknown): AppError {
  const message =
    'The database ended the session that kept other imports away, so this one has ended. Run the same command again: it ' +
    'goes on where it was.';
  return new AppError('unavailable', message, { cause });
}

async function take(tx: Tx, environmentId: number): Promise<void> {
  const [lock] = await tx.query<{ isMine: boolean }>(
    `select pg_try_advisory_xact_lock(hashtextextended('import ' || $1::bigint, 0)) as "isMine"`,
    [environmentId],
  );
  if (lock?.isMine !== true)
    throw new Error('Another import into this environment is under way. Wait for its end, or end it.');
}

function inTurn(db: Db, prove: () => void): Db {
  const takeTurn = limitConcurrency(1);
  const behind = <T>(work: () => Promise<T>): Promise<T> =>
    takeTurn(async () => {
      prove();
      return work();
    });
  return {
    query: (text, values) => behind(() => db.query(text, values)),
    run: (built) => behind(() => db.run(built)),
    transaction: (work, mode) => behind(() => db.transaction(work, mode)),
    transactionWithin: (work, limit) => behind(() => db.transactionWithin(work, limit)),
    pipeline: (pipeline) => behind(() => db.pipeline(pipeline)),
    load: () => db.load(),
    end: () => db.end(),
  };
}
