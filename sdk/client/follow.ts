import { isTrellisError, type TrellisError } from './errors.ts';
import type { RecordMetadata, RecordPage, StoredRecord } from './records.ts';
import { pause, withPatience } from './retry.ts';
import type { Answer, CallOptions } from './route-call.ts';
import { whenAborted } from './when-aborted.ts';

export type FollowOptions = {
  /** The name of the consumer, whose position the service keeps. One program follows under one name at a time. */
  consumer: string;
  /** Records a batch at most, 1 to 10,000; 500 unless said otherwise. */
  batchSize?: number | undefined;
  /** Where a consumer that is new begins: with all there is (`'start'`, the default), with what changes from `'now'` on, or behind a cursor. */
  from?: 'start' | 'now' | (string & {}) | undefined;
  /** How often it asks while there is nothing new; 2,000 unless said otherwise. */
  pollMs?: number | undefined;
  /** Whether it ends once there is nothing new; else it waits for more. */
  untilCaughtUp?: boolean | undefined;
  /**
   * What to do where deletions that the consumer has not seen are gone, by a policy or as the dataset was emptied: throw
   * `cursor_expired` (`'fail'`, the default), or begin with all there is (`'restart'`), which the next batch says by `isRestart`.
   */
  onExpired?: 'fail' | 'restart' | undefined;
  /** Told of an outage that is waited for. */
  onRetry?: ((error: TrellisError, pauseMs: number) => void) | undefined;
  signal?: AbortSignal | undefined;
};

/** Some changes, oldest first; none of them only where `isRestart` or `isCaughtUp` says something all the same. */
export type Batch<T = Record<string, unknown>, B extends string = 'trellis'> = {
  records: StoredRecord<T, B>[];
  /** Where the consumer stands behind them; null where there is no record. */
  cursor: string | null;
  /**
   * Whether this is the first batch of a beginning: all there is comes from here on, up to a batch that says `isCaughtUp`, and
   * what you hold that is not among it was deleted. So begins a consumer that has acknowledged nothing yet, and one whose
   * position has expired: see `onExpired`. It is said again until the batch is acknowledged.
   */
  isRestart: boolean;
  /** Whether there was nothing more when this batch was read. */
  isCaughtUp: boolean;
  /**
   * Moves the consumer behind this batch now. Requesting the next batch does it automatically: this is for a loop that ends
   * with this batch. If the position has expired meanwhile, it throws or begins again, as `onExpired` says.
   */
  acknowledge(): Promise<void>;
};

/** The calls that following takes. */
export type FollowCalls<T, B extends string> = {
  metadataKey: string;
  page(query: Record<string, unknown>, call: CallOptions): Promise<RecordPage<T, B>>;
  /** Throws `not_found`. */
  consumer(name: string, call: CallOptions): Promise<Answer<'GET /records/consumers/{name}'>>;
  acknowledge(
    name: string,
    body: { cursor: string | null; rewind?: boolean },
    call: CallOptions,
  ): Promise<unknown>;
  /** Null where there is no record. */
  lastCursor(call: CallOptions): Promise<string | null>;
};

/** How long a service that refused `unless_emptied` is asked without it. */
const plainMs = 60_000;
/** A consumer that is silent for 30 days is waited for no longer; one in a quiet dataset is not silent. */
const signOfLifeMs = 60 * 60_000;
/** How long a batch that is done may take to be acknowledged behind an abort. */
const lastWordMs = 5_000;

/** See `Records.follow`. */
export async function* follow<T, B extends string>(
  calls: FollowCalls<T, B>,
  options: FollowOptions,
): AsyncGenerator<Batch<T, B>, void, undefined> {
  const { consumer, batchSize = 500, pollMs = 2_000, untilCaughtUp, onExpired, signal } = options;
  const readPage = unlessEmptied(calls.page);
  const patiently = <R>(call: () => Promise<R>) => withPatience(call, options);
  let position = null as string | null;
  /** Where the consumer stands at the service. */
  let acknowledged = null as string | null;
  let isExpired = false;
  let isRestart = false;
  /** Whether something is left to say, by an empty batch if need be: that what is held may be gone, or that all has come. */
  let isAwaited = false;
  let toldAt = Date.now();

  const moveTo = async (cursor: string | null, until: AbortSignal | undefined) => {
    // The service's position stays expired until the restart is complete: a program that dies before that restarts once more.
    const moved = isExpired ? { cursor, rewind: true } : { cursor };
    const acknowledge = () => calls.acknowledge(consumer, moved, { signal: until });
    await patiently(async () => {
      try {
        await acknowledge();
      } catch (error) {
        if (!isTrellisError(error, 'consumer_without_owner')) throw error;
        // No valid key owns the consumer. The key that acknowledges where it stands becomes the owner.
        await calls.acknowledge(consumer, { cursor: acknowledged }, { signal: until });
        await acknowledge();
      }
    });
    position = cursor;
    acknowledged = cursor;
    isExpired = false;
    toldAt = Date.now();
  };
  /** False where it begins again instead. */
  const unlessExpired = async (call: () => Promise<void>): Promise<boolean> => {
    try {
      await call();
      return true;
    } catch (error) {
      if (onExpired !== 'restart' || !isTrellisError(error, 'cursor_expired')) throw error;
      position = null;
      isExpired = true;
      isRestart = true;
      isAwaited = true;
      return false;
    }
  };

  await unlessExpired(async () => {
    const { cursor, isNew } = await begin(calls, options);
    position = cursor;
    acknowledged = cursor;
    isRestart = cursor === null;
    // A consumer that stands before everything may have been given records that it has not acknowledged.
    isAwaited = isRestart && !isNew;
  });
  for (;;) {
    signal?.throwIfAborted();
    let page: RecordPage<T, B> = { records: [], next_cursor: null };
    const hasRead = await unlessExpired(async () => {
      const query = { cursor: position ?? undefined, limit: batchSize };
      page = await patiently(() => readPage(query, { signal }));
    });
    if (!hasRead) continue;
    const { records, next_cursor } = page;
    const last = records.at(-1);
    const isCaughtUp = next_cursor === null;
    if (last !== undefined || (isCaughtUp && isAwaited)) {
      const cursor = last === undefined ? position : cursorOf(last, calls);
      isAwaited = !isCaughtUp;
      let isTaken = false;
      const take = async () => {
        if (isTaken) return;
        // Also where the signal has gone meanwhile: the batch is done.
        const taken = () => withLastWord(signal, (until) => moveTo(cursor, until));
        if (await unlessExpired(taken)) isRestart = false;
        isTaken = true;
      };
      yield { records, cursor, isRestart, isCaughtUp, acknowledge: take };
      await take();
      if (isRestart) continue;
    }
    if (next_cursor !== null) {
      position = last === undefined ? next_cursor : position;
      continue;
    }
    if (untilCaughtUp) return;
    await pause(pollMs, signal);
    if (Date.now() - toldAt >= signOfLifeMs) await unlessExpired(() => moveTo(position, signal));
  }
}

/**
 * The pages, which are refused behind a position from before the dataset was emptied. A service of a version that does not know
 * the parameter refuses the call, and is asked without it; a minute later one of a newer version may stand in its place, which
 * is asked first about where the reading without it began.
 */
function unlessEmptied<T, B extends string>(page: FollowCalls<T, B>['page']): FollowCalls<T, B>['page'] {
  let plain: { since: unknown; until: number } | undefined;
  return async (query, call) => {
    if (query.cursor === undefined) plain = undefined;
    // A walk that began without a position has one since the first page.
    if (plain !== undefined) plain.since ??= query.cursor;
    if (plain !== undefined && Date.now() < plain.until) return page(query, call);
    const since = plain?.since ?? query.cursor;
    try {
      if (since !== query.cursor) await page({ cursor: since, limit: 1, unless_emptied: true }, call);
      const answer = await page({ ...query, unless_emptied: true }, call);
      plain = undefined;
      return answer;
    } catch (error) {
      if (!isTrellisError(error, 'invalid_query_params')) throw error;
      plain = { since, until: Date.now() + plainMs };
      return page(query, call);
    }
  };
}

function cursorOf(record: object, { metadataKey }: { metadataKey: string }): string {
  return ((record as Record<string, unknown>)[metadataKey] as RecordMetadata).cursor;
}

/**
 * The consumer's position, null before the first acknowledgement. A new consumer is created, so that retention removes nothing
 * that it has not received. An existing consumer is marked as alive, since a program that follows now and then may never find
 * anything new to acknowledge.
 */
async function begin<T, B extends string>(
  calls: FollowCalls<T, B>,
  options: FollowOptions,
): Promise<{ cursor: string | null; isNew: boolean }> {
  const { consumer, from = 'start', signal } = options;
  const stood = async () => {
    try {
      return { cursor: (await calls.consumer(consumer, { signal })).cursor, isNew: false };
    } catch (error) {
      if (!isTrellisError(error, 'not_found')) throw error;
      const cursor = from === 'start' ? null : from === 'now' ? await calls.lastCursor({ signal }) : from;
      return { cursor, isNew: true };
    }
  };
  const stand = await withPatience(stood, options);
  await withPatience(() => calls.acknowledge(consumer, { cursor: stand.cursor }, { signal }), options);
  return stand;
}

/** Calls with a signal that goes `lastWordMs` behind the given one, with its reason. */
async function withLastWord(
  signal: AbortSignal | undefined,
  call: (until: AbortSignal) => Promise<void>,
): Promise<void> {
  const late = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stopWaiting = whenAborted(signal, () => {
    timer = setTimeout(() => late.abort(signal?.reason), lastWordMs);
  });
  try {
    await call(late.signal);
  } finally {
    stopWaiting();
    clearTimeout(timer);
  }
}
