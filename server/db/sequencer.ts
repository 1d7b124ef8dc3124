import { type Db, first, type Tx } from './pool.ts';

/**
 * Positions for rows that are written without one, in the transactions of their causes.
 *
 * The holder of the row of a sequence in `sequencer` is its sequencer; if the holder dies, the lock is released. A
 * position becomes visible only when its step commits, and the next step waits for that, so a visible position is never
 * overtaken, and writers never wait for each other.
 */
export type Sequence = {
  /** Also the table's, which has the columns `position` and `written_in`. */
  readonly name: SequenceName;
  /**
   * Gives the oldest rows without a position those after `lastPosition`, without a gap. It locks what it numbers, since a
   * row that goes meanwhile would leave one. None that waits was written before `from`.
   */
  place(tx: Tx, at: { lastPosition: number; from: string }): Promise<Placed>;
};
type SequenceName = 'audit' | 'event';
/** How many rows got a position, and whether others may be waiting that this step did not get to. */
export type Placed = { count: number; isMore: boolean };

/** What a node knows of a sequence in one database. */
type Memory = {
  /** No row written before this transaction waits, nor ever will. */
  from: string;
  looks: number;
  round: Promise<boolean> | undefined;
  nextRound: Promise<boolean> | undefined;
};

/** The beginning of all transactions. */
const beginning = '0';
/** Each so many looks one reads from the beginning: a server that took over may have gone back in its transactions. */
const looksUntilAll = 100;
/** A lock that is held longer is in the hands of a node that is frozen or cut off. */
const lockTimeoutMs = 2_000;
/** After which the server ends the transaction of such a node. */
const idleTimeoutMs = 10_000;

const memories = new WeakMap<Db, Map<SequenceName, Memory>>();

/**
 * One step; answers how many rows got a position. None where another node is the sequencer, at once, and where a lock that
 * the step needs is held for seconds.
 */
export async function placeNext(db: Db, sequence: Sequence): Promise<number> {
  try {
    return (await step(db, { sequence, lock: 'for update skip locked' })).count;
  } catch (error) {
    if (isHeldUp(error)) return 0;
    throw error;
  }
}

/**
 * Until all that was committed before the call has its position, from any sequencer. False if a lock that this needs is
 * held for seconds. Calls at the same time share a round, so that a node never waits on more than one connection.
 */
export async function placeAll(db: Db, sequence: Sequence): Promise<boolean> {
  const memory = memoryOf(db, sequence.name);
  // A round that runs may have passed by what was committed meanwhile.
  memory.nextRound ??= nextRound(memory, () => placeRound(db, sequence));
  return memory.nextRound;
}

async function nextRound(memory: Memory, run: () => Promise<boolean>): Promise<boolean> {
  await memory.round?.catch(() => {});
  memory.round = memory.nextRound;
  memory.nextRound = undefined;
  return run();
}

async function placeRound(db: Db, sequence: Sequence): Promise<boolean> {
  try {
    while ((await step(db, { sequence, lock: 'for update' })).isMore);
    return true;
  } catch (error) {
    if (isHeldUp(error)) return false;
    throw error;
  }
}

async function step(
  db: Db,
  { sequence, lock }: { sequence: Sequence; lock: 'for update' | 'for update skip locked' },
): Promise<Placed> {
  const none = { count: 0, isMore: false };
  const from = await findWaiting(db, sequence.name);
  if (from === undefined) return none;
  return db.transaction(async (tx) => {
    const lastPosition = await lockSequence(tx, { name: sequence.name, lock });
    if (lastPosition === undefined) return none;
    const placed = await sequence.place(tx, { lastPosition, from });
    if (placed.count > 0) {
      await tx.query('update sequencer set last_position = last_position + $1 where name = $2', [
        placed.count,
        sequence.name,
      ]);
    }
    return placed;
  });
}

/**
 * Makes the transaction the sequencer until its end; answers the last position, or undefined where `skip locked` found
 * another one. The transaction waits for no lock longer than two seconds, and the server ends it where it says nothing for
 * ten: a node that is frozen holds nobody up for longer.
 */
export async function lockSequence(
  tx: Tx,
  { name, lock }: { name: SequenceName; lock: 'for update' | 'for update skip locked' },
): Promise<number | undefined> {
  await tx.query(
    `select set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true)`,
    [String(lockTimeoutMs), String(idleTimeoutMs)],
  );
  const held = first(
    await tx.query<{ position: number }>(
      `select last_position as position
       from sequencer
       where name = $1
       ${lock}`,
      [name],
    ),
  );
  return held?.position;
}

/**
 * From which transaction on rows wait for their position; undefined where none does. It writes nothing to the disk.
 *
 * Behind it: what an open transaction writes has its number or a later one, and all before is committed or gone. So a
 * look begins where the one before saw the oldest open transaction or waiting row, and reads what was written since,
 * although an old snapshot keeps the index entries of all that had to wait: with 30,000 of these 3 blocks, not 1,514.
 */
async function findWaiting(db: Db, name: SequenceName): Promise<string | undefined> {
  const memory = memoryOf(db, name);
  const from = memory.looks % looksUntilAll === 0 ? beginning : memory.from;
  memory.looks += 1;
  const seen = first(
    await db.query<{ from: string; isWaiting: boolean }>(
      `select
         least(oldest.written_in, pg_snapshot_xmin(pg_current_snapshot()))::text as "from",
         oldest.written_in is not null as "isWaiting"
       from (
         select (
           select written_in
           from ${name}
           where position is null and written_in >= $1::xid8
           order by written_in
           limit 1
         ) as written_in
       ) as oldest`,
      [from],
    ),
  );
  memory.from = seen?.from ?? beginning;
  return seen?.isWaiting ? memory.from : undefined;
}

function memoryOf(db: Db, name: SequenceName): Memory {
  const ofDb = memories.get(db) ?? new Map<SequenceName, Memory>();
  memories.set(db, ofDb);
  const memory = ofDb.get(name) ?? { from: beginning, looks: 0, round: undefined, nextRound: undefined };
  ofDb.set(name, memory);
  return memory;
}

/** lock_not_available (PostgreSQL, appendix A). */
function isHeldUp(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === '55P03';
}

/**
 * Takes steps every `everyMs`, until nothing waits, and goes on until stopped; `stop` resolves when the last one has ended.
 * `onError` is told of the first failure in a row and of no other.
 */
export function keepPlacing(
  db: Db,
  { sequence, everyMs, onError }: { sequence: Sequence; everyMs: number; onError: (error: unknown) => void },
): { stop(): Promise<void> } {
  let running: Promise<void> | undefined;
  let isFailing = false;
  let isStopping = false;
  async function takeSteps(): Promise<void> {
    let isMore = true;
    while (isMore && !isStopping) {
      ({ isMore } = await step(db, { sequence, lock: 'for update skip locked' }));
    }
  }
  const timer = setInterval(() => {
    running ??= takeSteps()
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
        running = undefined;
      });
  }, everyMs);
  return {
    async stop() {
      isStopping = true;
      clearInterval(timer);
      await running;
    },
  };
}
