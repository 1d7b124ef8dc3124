import { type Db, mayPass } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Logger } from '../log.ts';
import { outside } from '../tracing/cause.ts';
import { Batch } from './batch.ts';
import { OperationIds } from './operation-id.ts';
import type { Operation } from './operations.ts';
import { ensureDay } from './partitions.ts';
import { CountNames } from './tally.ts';

/** The activity log for all modules. */
export type Activity = {
  /** Returns at once, never throws, and waits for nobody. What was logged is in the database within a second. */
  log(operation: Operation): void;
  /** Operations of this node since it started that are neither in the log nor counted: the queue was full, or a write failed. */
  readonly dropped: number;
  /**
   * Writes the queue, for a second at most. Operations that are logged later are discarded. A batch that is being written
   * then goes on, and counts as discarded once its write fails.
   */
  stop(): Promise<void>;
};

export type ActivitySettings = {
  /** How many of the proxied calls that succeeded are kept, 0 to 1. All others always are. All are counted. */
  readonly sampleRate: number;
};

type Deps = {
  db: Db;
  log: Logger;
  settings: ActivitySettings;
  nowMs?: () => number;
  random?: () => number;
  /** How many may wait to be written. */
  capacity?: number;
};

const flushMs = 200;
/** A batch is written at once when it has grown so large. */
const maxAtOnce = 5_000;
const retryMs = 1_000;
/** Of a batch that the database refuses. More than one: its day may have been dropped, and is made by the next. */
const maxTries = 3;
/** How long a batch is tried after errors that may pass, such as a deadlock or a timeout. */
const maxPassingMs = 60_000;
const stopMs = 1_000;
const tellMs = 60_000;

/** What is written when the log is switched off: nothing. */
export const noActivity: Activity = { log() {}, dropped: 0, async stop() {} };

/** A bounded queue in memory and one writer behind it. A full queue discards new operations and counts how many. */
export function createActivity({
  db,
  log,
  settings: { sampleRate },
  nowMs = Date.now,
  random = Math.random,
  capacity = 10_000,
}: Deps): Activity {
  /** Oldest first. The last one is still open, unless it is being written. */
  const batches: Batch[] = [];
  let open: Batch | undefined;
  /** The last one that was written: its memory is used again. */
  let spare: Batch | undefined;
  let waiting = 0;
  /**
   * The latest time so far. While a clock that was set back catches up, all operations have it: IDs ascend, and a tail looks
   * for what is new at its end. Those that are kept and those that are counted alone are in the same counts.
   */
  let atMs = 0;
  const ids = new OperationIds();
  const names = new CountNames();
  const madeDays = new Set<number>();
  let dropped = 0;
  let toldDropped = 0;
  let telling: NodeJS.Timeout | undefined;
  /** Of the oldest batch, once a try has failed. */
  let failures: Failures | undefined;
  let timer: NodeJS.Timeout | undefined;
  let writing: Promise<void> | undefined;
  let isStopped = false;

  function drop(count: number): void {
    dropped += count;
    if (telling === undefined) tell();
  }

  /** Discards batches at a stop, from this one on; the oldest is 0. */
  function discardFrom(index: number): void {
    for (const batch of batches.splice(index)) dropped += batch.count + batch.countedOnly;
    tell();
  }

  /** At most once a minute, and then all that came in it. */
  function tell(): void {
    if (dropped === toldDropped) return;
    log.warn({ dropped: dropped - toldDropped }, 'operations were discarded from the activity log');
    toldDropped = dropped;
    telling = setTimeout(() => {
      telling = undefined;
      tell();
    }, tellMs).unref();
  }

  function writeLater(afterMs: number): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      writeNow();
    }, afterMs).unref();
  }

  function writeNow(): void {
    // A batch holds operations of many callers, so it runs outside the async context of the caller that started it.
    writing ??= outside(writeAll).finally(() => {
      writing = undefined;
      if (batches.length > 0 && !isStopped) writeLater(failures ? retryMs : flushMs);
    });
  }

  /** All that waits, until a batch fails. */
  async function writeAll(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    for (let batch = batches[0]; batch !== undefined; batch = batches[0]) {
      if (batch === open) open = undefined;
      try {
        await write(batch);
      } catch (error) {
        // The day may have been dropped although it was there.
        madeDays.clear();
        failures ??= { refused: 0, passingSince: undefined };
        if (isRetried(error, failures)) return;
        log.warn({ err: error }, 'a batch of the activity log could not be written');
        drop(batch.count + batch.countedOnly);
      }
      failures = undefined;
      batches.shift();
      waiting -= batch.count;
      batch.clear();
      spare = batch;
    }
  }

  async function write(batch: Batch): Promise<void> {
    batch.seal();
    for (const [day, epochMs] of batch.days) {
      if (madeDays.has(day)) continue;
      await ensureDay(db, epochMs);
      madeDays.add(day);
    }
    if (await batch.isWritten(db)) return;
    await db.transaction((tx) => batch.write(tx));
  }

  function opened(): Batch {
    if (open === undefined) {
      open = spare ?? new Batch(ids, names);
      spare = undefined;
      batches.push(open);
    }
    return open;
  }

  return {
    get dropped() {
      return dropped;
    },
    log(operation) {
      const { type, status } = operation;
      const isKept = type !== 'proxy' || status !== 'success' || sampleRate >= 1 || random() < sampleRate;
      if (isStopped || waiting >= capacity) {
        drop(1);
        return;
      }
      atMs = Math.max(atMs, nowMs());
      const batch = opened();
      if (isKept) {
        batch.add(operation, atMs);
        waiting += 1;
      } else batch.countOnly(operation, atMs);
      if (batch.count >= maxAtOnce && failures === undefined) {
        open = undefined;
        writeNow();
      } else if (writing === undefined) writeLater(flushMs);
    },
    async stop() {
      isStopped = true;
      let isLate = false;
      let deadline: NodeJS.Timeout | undefined;
      const late = new Promise<void>((resolve) => {
        deadline = setTimeout(() => {
          isLate = true;
          resolve();
        }, stopMs);
      });
      const last = (writing ?? Promise.resolve()).then(() => (isLate ? undefined : writeAll()));
      await Promise.race([late, last]);
      clearTimeout(deadline);
      clearTimeout(timer);
      clearTimeout(telling);
      discardFrom(isLate ? 1 : 0);
      if (isLate) void last.then(() => discardFrom(0));
    },
  };
}

type Failures = {
  /** How many tries failed by the fault of the batch. */
  refused: number;
  /** Since when others fail, although the database is there; by the steady clock. */
  passingSince: number | undefined;
};

/** Notes a failure, and tells whether the batch is tried again: after an outage always. */
function isRetried(error: unknown, failures: Failures): boolean {
  if (!mayPass(error)) {
    failures.refused += 1;
    return failures.refused < maxTries;
  }
  if (error instanceof AppError) {
    failures.passingSince = undefined;
    return true;
  }
  failures.passingSince ??= performance.now();
  return performance.now() - failures.passingSince < maxPassingMs;
}
