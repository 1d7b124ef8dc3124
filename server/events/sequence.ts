import type { Db } from '../db/pool.ts';

/** The most rows that one step gives a position. */
const batch = 1_000;

/**
 * Gives committed events their position, in the order they were written; answers how many.
 *
 * Whoever holds the sequencer's row is the sequencer; others return at once. A position becomes visible only when
 * its step commits, and the next step waits for that, so a visible position is never overtaken.
 */
export async function sequenceEvents(db: Db): Promise<number> {
  return placeEvents(db, { lock: 'for update skip locked' });
}

/** As `sequenceEvents`, until all that was committed before the call has its position, whoever gave it. */
export async function sequenceAllEvents(db: Db): Promise<void> {
  while ((await placeEvents(db, { lock: 'for update' })) === batch);
}

async function placeEvents(
  db: Db,
  { lock }: { lock: 'for update' | 'for update skip locked' },
): Promise<number> {
  // Locking the sequencer's row writes to disk; looking for work does not.
  const waiting = await db.query('select from event where position is null limit 1');
  if (waiting.length === 0) return 0;
  return db.transaction(async (tx) => {
    const [held] = await tx.query<{ last_position: number }>(
      `select last_position
       from sequencer
       where name = 'event'
       ${lock}`,
    );
    if (held === undefined) return 0;
    const [result] = await tx.query<{ count: number }>(
      `with pending as (
         select id, row_number() over (order by created_at, id) as rank
         from (select id, created_at from event where position is null order by created_at, id limit $2) as oldest
       ), placed as (
         update event
         set position = $1 + pending.rank
         from pending
         where event.id = pending.id
         returning 1
       )
       select count(*) as count
       from placed`,
      [held.last_position, batch],
    );
    const count = result?.count ?? 0;
    if (count > 0) {
      await tx.query(`update sequencer set last_position = last_position + $1 where name = 'event'`, [count]);
    }
    return count;
  });
}

/**
 * Runs `sequenceEvents` every `everyMs` until stopped; `stop` resolves when the last step has ended. `onError` is told
 * of the first failure in a row and of no other.
 */
export function keepSequencing(
  db: Db,
  { everyMs, onError }: { everyMs: number; onError: (error: unknown) => void },
): { stop(): Promise<void> } {
  let step: Promise<unknown> = Promise.resolve();
  let isRunning = false;
  let isFailing = false;
  const timer = setInterval(() => {
    if (isRunning) return;
    isRunning = true;
    step = sequenceEvents(db)
      .then(
        () => {
          isFailing = false;
        },
        (error: unknown) => {
          if (!isFailing) onError(error);
          isFailing = true;
        },
      )
      .finally(() => {
        isRunning = false;
      });
  }, everyMs);
  return {
    async stop() {
      clearInterval(timer);
      await step;
    },
  };
}
