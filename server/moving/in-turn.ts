import type { Db } from '../db/pool.ts';

/**
 * The same database, where statements and transactions come one after the other. An import does many things at once and has
 * one connection beside that of its lock: who waits for it does so here, for as long as it takes, and not in the pool, which
 * gives up after some seconds. What runs in a transaction must not ask for another.
 */
export function inTurn(db: Db): Db {
  let last: Promise<unknown> = Promise.resolve();
  const behind = <T>(work: () => Promise<T>): Promise<T> => {
    const mine = last.then(work, work);
    last = mine.catch(() => {});
    return mine;
  };
  return {
    query: (text, values) => behind(() => db.query(text, values)),
    run: (built) => behind(() => db.run(built)),
    transaction: (work, mode) => behind(() => db.transaction(work, mode)),
    flight: (flight) => behind(() => db.flight(flight)),
    load: () => db.load(),
    end: () => db.end(),
  };
}
