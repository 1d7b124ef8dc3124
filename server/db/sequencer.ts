import { firstFailures, type Repetition, repeatEvery } from '../concurrency.ts';
import { type OutboxEntry, readOutbox, removeFromOutbox } from './dataset-outbox.ts';
import { type Db, mayPass, type Tx } from './pool.ts';

/**
 * Positions for rows that are written without one, in the transactions of their causes. Transactions about records write
 * rows of `dataset_outbox` instead, which get their positions when they are copied to the table of the sequence.
 *
 * The holder of the row of a sequence in `sequencer` is its sequencer; if the holder dies, the lock is released. A
 * position becomes visible only when its step commits, and the next step waits for that, so a visible position is never
 * overtaken, and writers never wait for each other.
 */
export type Sequence = {
  /** Also the table's, which has the columns `position` and `written_in`. */
  readonly name: SequenceName;
  /**
   * Gives the positions after `lastPosition` to the oldest rows without one, without a gap. It locks these rows: a row that
   * is deleted meanwhile would leave a gap. It also copies `sent`, the oldest entries of `dataset_outbox`, as far as they are
   * not copied yet. No waiting row was written before `from`.
   */
  place(tx: Tx, at: { lastPosition: number; from: string; sent: readonly OutboxEntry[] }): Promise<Placed>;
};
export type SequenceName = 'audit' | 'event';
/** The maximum number of rows in one step. */
export const maxPlaced = 1_000;
export type Placed = {
  /** The number of rows that got a position. */
  count: number;
  /** Whether others may still wait. */
  isMore: boolean;
  /**
   * Entries of the outbox that are copied, by this step or before. They are removed after its commit: a process that dies
   * before leaves them to the next one.
   */
  copied?: readonly OutboxEntry[];
};

/** The state of a sequence at this node, for one database. */
type Memory = {
  /** No row that was written before this transaction waits, now or later. */
  from: string;
  looks: number;
  /** When periodic steps look at the outbox next, in ms of a monotonic clock. */
  outboxDueMs: number;
  /** The number of statements about the outbox that did not end in time and still run. */
  lateStatements: number;
  round: Promise<boolean> | undefined;
  nextRound: Promise<boolean> | undefined;
};

/** The beginning of all transactions. */
const beginning = '0';
/** After this number of looks, a look reads from the beginning: after a failover the transaction IDs may have gone back. */
const looksUntilAll = 100;
/**
 * Periodic steps look at the outbox for at most a twentieth of the time. On one machine that is each time; on a cluster a look
 * reads all shards, and takes some tens of milliseconds.
 */
const outboxShare = 20;
/**
 * A worker of a cluster may be frozen, and then statements about the outbox last as long. After this time a step goes on
 * without the outbox, and so do all steps until the statement has ended: no second one waits beside it.
 */
const outboxWithinMs = 5_000;
/** Entries that were read earlier may have been copied since, and their copies removed. */
const maxReadAgeMs = 60_000;
/** A node that holds a lock for longer is frozen or disconnected. */
const lockTimeoutMs = 2_000;
/** After this time the server ends the transaction of such a node. */
const idleTimeoutMs = 10_000;

const memories = new WeakMap<Db, Map<SequenceName, Memory>>();

/**
 * Takes one step, and returns the number of rows that got a position. Returns 0 immediately if another node is the sequencer,
 * and after some seconds if a lock is not released.
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
 * Resolves when all rows that were committed before the call have their positions, from any sequencer. False if a lock is not
 * released for seconds. Entries of the outbox are left out if it cannot be read. Simultaneous calls share a round, so a node
 * waits on one connection at most.
 */
export async function placeAll(db: Db, sequence: Sequence): Promise<boolean> {
  const memory = memoryOf(db, sequence.name);
  // The current round may have missed rows that were committed meanwhile.
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
  {
    sequence,
    lock,
    found,
  }: { sequence: Sequence; lock: 'for update' | 'for update skip locked'; found?: Look | undefined },
): Promise<Placed> {
  const none = { count: 0, isMore: false };
  const { name } = sequence;
  const [looked] = found ? [found] : await look(db, { names: [name], isPeriodic: false });
  if (!looked?.isWaiting) return none;
  const { from, hasOutbox } = looked;
  const readAtMs = performance.now();
  // Not in the transaction: it would hold the sequence while a worker does not answer.
  const sent = hasOutbox ? await findSent(db, { name, from }) : [];
  const done = await db.transaction(async (tx) => {
    const lastPosition = await lockSequence(tx, { name, lock });
    if (lastPosition === undefined || performance.now() - readAtMs > maxReadAgeMs) return undefined;
    const placed = await sequence.place(tx, { lastPosition, from, sent });
    if (placed.count > 0) {
      await tx.query('update sequencer set last_position = last_position + $1 where name = $2', [
        placed.count,
        name,
      ]);
    }
    return placed;
  });
  if (done === undefined) return none;
  const { copied: entries = [] } = done;
  const isRemoved = await aboutOutbox([memoryOf(db, name)], () =>
    removeFromOutbox(db, { sequence: name, from, entries }),
  );
  // Otherwise the next step would read the same entries at once.
  return isRemoved ? done : { ...done, isMore: false };
}

async function findSent(
  db: Db,
  { name, from }: { name: SequenceName; from: string },
): Promise<readonly OutboxEntry[]> {
  const read = () => readOutbox(db, { sequence: name, from, limit: maxPlaced });
  return (await aboutOutbox([memoryOf(db, name)], read).catch(undefinedIfPassing)) ?? [];
}

/** Undefined if the statement does not end in time; see `outboxWithinMs`. */
async function aboutOutbox<T>(memories: readonly Memory[], run: () => Promise<T>): Promise<T | undefined> {
  const running = run();
  const late = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => {
    for (const memory of memories) memory.lateStatements += 1;
    const ended = () => {
      for (const memory of memories) memory.lateStatements -= 1;
    };
    running.then(ended, ended);
    late.resolve(undefined);
  }, outboxWithinMs);
  return Promise.race([running, late.promise]).finally(() => clearTimeout(timer));
}

/** A worker of a cluster may be away. */
function undefinedIfPassing(error: unknown): undefined {
  if (!mayPass(error)) throw error;
  return undefined;
}

/**
 * Makes the transaction the sequencer until its end, and returns the last position; undefined if `skip locked` found another
 * sequencer. The transaction waits for a lock for two seconds at most, and the server ends it after ten idle seconds: a
 * frozen node blocks others for no longer.
 */
export async function lockSequence(
  tx: Tx,
  { name, lock }: { name: SequenceName; lock: 'for update' | 'for update skip locked' },
): Promise<number | undefined> {
  await tx.query(
    `select set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true)`,
    [String(lockTimeoutMs), String(idleTimeoutMs)],
  );
  const [held] = await tx.query<{ position: number }>(
    `select last_position as position
     from sequencer
     where name = $1
     ${lock}`,
    [name],
  );
  return held?.position;
}

type Look = {
  /** The transaction from which on rows wait for their positions. */
  from: string;
  isWaiting: boolean;
  /** Whether rows are in the outbox, copied or not. */
  hasOutbox: boolean;
};

/**
 * Looks for rows that wait, for each of the sequences. Writes nothing to the disk.
 *
 * The rows of an open transaction have its ID or a later one, and all earlier transactions are committed or rolled back. So a
 * look begins at the oldest open transaction or waiting row of the previous look, and reads only later rows. An old snapshot
 * keeps the index entries of all rows that have waited: with 30,000 of them a look reads 3 blocks instead of 1,514.
 */
async function look(
  db: Db,
  { names, isPeriodic }: { names: readonly SequenceName[]; isPeriodic: boolean },
): Promise<readonly Look[]> {
  const memories = names.map((name) => memoryOf(db, name));
  const sinceMs = performance.now();
  const at = memories.map((memory, index) => {
    const from = memory.looks % looksUntilAll === 0 ? beginning : memory.from;
    memory.looks += 1;
    return { name: names[index]!, from };
  });
  const lookAtOwn = () => findOldest(db, { at, sentOf: () => 'null::xid8' });
  const isTooEarly = isPeriodic && memories.every(({ outboxDueMs }) => sinceMs < outboxDueMs);
  if (isTooEarly || memories.some(({ lateStatements }) => lateStatements > 0)) return lookAtOwn();
  const lookAtAll = () => findOldest(db, { at, sentOf: oldestSent });
  const found = await aboutOutbox(memories, lookAtAll).catch(undefinedIfPassing);
  for (const [index, memory] of memories.entries()) {
    memory.outboxDueMs = sinceMs + (performance.now() - sinceMs) * outboxShare;
    // A look without the outbox does not set it: it could be after an entry of the outbox that waits.
    if (found !== undefined) memory.from = found[index]!.from;
  }
  return found ?? lookAtOwn();
}

/** `sentOf` is SQL for the transaction of the oldest entry of the outbox. */
async function findOldest(
  db: Db,
  {
    at,
    sentOf,
  }: {
    at: readonly { name: SequenceName; from: string }[];
    sentOf: (name: SequenceName, from: string) => string;
  },
): Promise<readonly Look[]> {
  const numbered = at.map(({ name }, index) => ({ name, from: `$${index + 1}::xid8` }));
  const oldest = numbered.map(
    ({ name, from }) => `
      (
        select written_in
        from ${name}
        where position is null and written_in >= ${from}
        order by written_in
        limit 1
      ) as own_${name},
      ${sentOf(name, from)} as sent_${name}`,
  );
  const looks = numbered.map(
    ({ name }) => `
      jsonb_build_object(
        'from', least(own_${name}, sent_${name}, pg_snapshot_xmin(pg_current_snapshot()))::text,
        'isWaiting', coalesce(own_${name}, sent_${name}) is not null,
        'hasOutbox', sent_${name} is not null
      ) as ${name}`,
  );
  const [found] = await db.query<Record<SequenceName, Look>>(
    // With `offset 0`, each part is read once.
    `select ${looks.join()} from (select ${oldest.join()} offset 0) as oldest`,
    at.map(({ from }) => from),
  );
  return at.map(({ name }) => found?.[name] ?? { from: beginning, isWaiting: false, hasOutbox: false });
}

const oldestSent = (name: SequenceName, from: string) => `(
  select written_in
  from dataset_outbox
  where sequence = '${name}' and written_in >= ${from}
  order by written_in
  limit 1
)`;

function memoryOf(db: Db, name: SequenceName): Memory {
  const ofDb = memories.get(db) ?? new Map<SequenceName, Memory>();
  memories.set(db, ofDb);
  const memory = ofDb.get(name) ?? {
    from: beginning,
    looks: 0,
    outboxDueMs: 0,
    lateStatements: 0,
    round: undefined,
    nextRound: undefined,
  };
  ofDb.set(name, memory);
  return memory;
}

/** lock_not_available (PostgreSQL, appendix A). */
function isHeldUp(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === '55P03';
}

/**
 * Takes steps every `everyMs`, until nothing waits. The sequences share the periodic look, and none waits for the steps of
 * another. `stop` resolves when the last step has ended.
 */
export function keepPlacing(
  db: Db,
  {
    sequences,
    everyMs,
    onError,
  }: { sequences: readonly Sequence[]; everyMs: number; onError: (error: unknown) => void },
): Pick<Repetition, 'stop'> {
  const each = sequences.map((sequence) => ({ sequence, ...firstFailures(onError) }));
  /** The steps under way. */
  const placing = new Map<Sequence, Promise<void>>();

  async function takeSteps(sequence: Sequence, { found, signal }: { found: Look; signal: AbortSignal }) {
    let next: Look | undefined = found;
    let isMore = true;
    while (isMore && !signal.aborted) {
      ({ isMore } = await step(db, { sequence, lock: 'for update skip locked', found: next }));
      next = undefined;
    }
  }

  async function lookForSteps(signal: AbortSignal): Promise<void> {
    const free = each.filter(({ sequence }) => !placing.has(sequence));
    if (free.length === 0) return;
    const looks = await look(db, { names: free.map(({ sequence }) => sequence.name), isPeriodic: true });
    for (const [index, { sequence, failed, succeeded }] of free.entries()) {
      const found = looks[index]!;
      if (!found.isWaiting || signal.aborted) continue;
      const steps = takeSteps(sequence, { found, signal }).then(succeeded, failed);
      placing.set(
        sequence,
        steps.finally(() => placing.delete(sequence)),
      );
    }
  }

  const looking = repeatEvery(everyMs, lookForSteps, { onError });
  return {
    async stop() {
      await looking.stop();
      await Promise.all(placing.values());
    },
  };
}
