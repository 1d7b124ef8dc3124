/**
 * Ties the writes of a run to the node that owns it.
 *
 * A node that was suspended or disconnected may continue after another node has taken its run over. Each write therefore first
 * checks and locks the run's row, in the same transaction: a write before the take-over is complete, and no write follows it.
 */
import type { Db, Queryable, Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';

/** The right to write for a run: each claim has a new owner. */
export type Right = { readonly id: string; readonly owner: string };

/** Throws `run_lost` if the run has another owner by now, or has ended. */
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

/** A database whose writing transactions begin with `holdRun`. Single statements are not fenced. */
export function fencedDb(db: Db, right: Right): Db {
  const { records } = db;
  return {
    ...(records && { records: (datasetId: number) => fencedRecords(db, right, records(datasetId)) }),
    database: db.database,
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

/**
 * As `fencedDb`, for a worker of a cluster, which does not have the row of the run. Its transactions are inside one of the
 * coordinator that holds the row, and each renews that just before its commit. If this process freezes, the worker ends its
 * transaction after `idleMs`, and the coordinator releases the row later, so no commit follows a take-over.
 */
function fencedRecords(db: Db, right: Right, records: Db): Db {
  const held = async <T>(work: (holder: Tx) => Promise<T>): Promise<T> => {
    // Writes to a worker that does not answer wait for this statement, and occupy no connection to the coordinator.
    await records.query('select');
    return whileHeld(db, right, work);
  };
  return {
    ...records,
    transaction: (work, mode) =>
      mode === 'snapshot'
        ? records.transaction(work, mode)
        : held((holder) => records.transaction(heldBy(holder, work))),
    transactionWithin: (work, limit) =>
      held((holder) => records.transactionWithin(heldBy(holder, work), limit)),
  };
}

/** Less than the time after which the coordinator ends the transaction of `holdRun`. */
const idleMs = 10_000;
const renewMs = 5_000;

async function whileHeld<T>(db: Db, right: Right, work: (holder: Tx) => Promise<T>): Promise<T> {
  return db.transaction(async (holder) => {
    await holdRun(holder, right);
    // A failure shows at the last renewal.
    const renewing = setInterval(() => void holder.query('select').catch(() => {}), renewMs);
    return work(holder).finally(() => clearInterval(renewing));
  });
}

function heldBy<T>(holder: Tx, work: (tx: Tx) => Promise<T>): (tx: Tx) => Promise<T> {
  return async (tx) => {
    await tx.query(`set local idle_in_transaction_session_timeout = ${idleMs}`);
    const result = await work(tx);
    await holder.query('select');
    return result;
  };
}

async function fenced<T>(tx: Tx, right: Right, work: (tx: Tx) => Promise<T>): Promise<T> {
  await holdRun(tx, right);
  return work(tx);
}
