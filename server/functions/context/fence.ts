/**
 * Lets a run write as long as it is this node's, and no longer.
 *
 * A node that froze, or was cut off, may wake up when another has taken its run over. Each write that it then tries
 * looks at the run's row first, in its own transaction, and holds it: so whatever was written before the take-over was
 * written whole, and nothing is written after it.
 */
import type { Db, Queryable, Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';

/** The right to write for a run: each claim draws a new owner. */
export type Right = { readonly id: string; readonly owner: string };

/** Throws `run_lost` where the run has another owner by now, or has ended. */
export async function holdRun(tx: Queryable, { id, owner }: Right): Promise<void> {
  const rows = await tx.query(
    `select set_config('idle_in_transaction_session_timeout', '15000', true)
     from run
     where id = $1 and owner = $2
     for key share`,
    [id, owner],
  );
  if (rows.length === 0) throw new AppError('run_lost');
}

/** The database as a run may use it: every transaction that can write begins with `holdRun`. Single statements go unlooked. */
export function fencedDb(db: Db, right: Right): Db {
  return {
    query: (text, values) => db.query(text, values),
    run: (built) => db.run(built),
    transaction: (work, mode) =>
      mode === 'snapshot' ? db.transaction(work, mode) : db.transaction((tx) => fenced(tx, right, work)),
    transactionWithin: (work, limit) => db.transactionWithin((tx) => fenced(tx, right, work), limit),
    pipeline: (pipeline) => db.pipeline(pipeline),
    load: () => db.load(),
    end: () => db.end(),
  };
}

async function fenced<T>(tx: Tx, right: Right, work: (tx: Tx) => Promise<T>): Promise<T> {
  await holdRun(tx, right);
  return work(tx);
}
