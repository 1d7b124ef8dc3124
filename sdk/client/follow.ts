import { isTrellisError, type TrellisError } from './errors.ts';
import type { RecordMetadata, RecordPage, StoredRecord } from './records.ts';
import { pause, retryUntilAvailable } from './retry.ts';
import type { Answer, CallOptions } from './route-call.ts';
import { whenAborted } from './when-aborted.ts';

export type FollowOptions = {
  /** The name of the consumer, whose position the service stores. Only one program at a time may use a name. */
  consumer: string;
  /** The largest number of records in a batch, 1 to 10,000. Defaults to 500. */
  batchSize?: number | undefined;
  /**
   * The position of a new consumer: `'start'` (the default) for all records, `'now'` for only later changes, or a cursor for
   * the changes after it.
   */
  from?: 'start' | 'now' | (string & {}) | undefined;
  /** The interval between requests while there are no changes. Defaults to 2,000. */
  pollMs?: number | undefined;
  /** Whether the iteration ends once there are no more changes. By default it waits for changes. */
  untilCaughtUp?: boolean | undefined;
  /**
   * What to do if deletions that the consumer did not receive were removed, by a retention policy or because the dataset was
   * emptied. `'fail'` (the default) throws `cursor_expired`. `'restart'` begins again with all records; the next batch has
   * `isRestart`.
   */
  onExpired?: 'fail' | 'restart' | undefined;
  /** Called before each retry after an outage. */
  onRetry?: ((error: TrellisError, pauseMs: number) => void) | undefined;
  signal?: AbortSignal | undefined;
};

/** A batch of changes, oldest first. Has no records only to report `isRestart` or `isCaughtUp`. */
export type Batch<T = Record<string, unknown>, B extends string = 'trellis'> = {
  records: StoredRecord<T, B>[];
  /** The position of the consumer after this batch; null if it has received no record. */
  cursor: string | null;
  /**
   * Whether this is the first batch of a complete read. All records follow, up to a batch with `isCaughtUp`; a stored record
   * that is not among them was deleted. A complete read starts if the consumer has acknowledged nothing, or if its position has
   * expired (see `onExpired`). The flag is repeated until the batch is acknowledged.
   */
  isRestart: boolean;
  /** Whether there were no more changes when this batch was read. */
  isCaughtUp: boolean;
  /**
   * Moves the position of the consumer past this batch. A request for the next batch does this automatically, so call it only
   * in a loop that ends with this batch. If the position has expired, throws or restarts according to `onExpired`.
   */
  acknowledge(): Promise<void>;
};

/** The calls of the service that `follow` uses. */
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
  /** Returns null if there is no record. */
  lastCursor(call: CallOptions): Promise<string | null>;
};

/** The time for which `unless_emptied` is omitted after a service refused it. */
const withoutParameterMs = 60_000;
/** The interval of acknowledgements without changes. Retention ignores a consumer that sent none for 30 days. */
const keepAliveMs = 60 * 60_000;
/** The time after an abort in which a processed batch is still acknowledged. */
const abortGraceMs = 5_000;

/** Implements `Records.follow`. */
export async function* follow<T, B extends string>(
  calls: FollowCalls<T, B>,
  options: FollowOptions,
): AsyncGenerator<Batch<T, B>, void, undefined> {
  const { consumer, batchSize = 500, pollMs = 2_000, untilCaughtUp, onExpired, signal } = options;
  const readPage = withUnlessEmptied(calls.page);
  const retrying = <R>(call: () => Promise<R>) => retryUntilAvailable(call, options);
  let position = null as string | null;
  /** The position that the service has stored. */
  let acknowledged = null as string | null;
  let isExpired = false;
  let isRestart = false;
  /** Whether a batch is due even without records: to report that a restart has begun, or that it is complete. */
  let isBatchDue = false;
  let acknowledgedAt = Date.now();

  const moveTo = async (cursor: string | null, until: AbortSignal | undefined) => {
    // The stored position stays expired until a batch is acknowledged: a program that dies before that restarts once more.
    const body = isExpired ? { cursor, rewind: true } : { cursor };
    const acknowledge = () => calls.acknowledge(consumer, body, { signal: until });
    await retrying(async () => {
      try {
        await acknowledge();
      } catch (error) {
        if (!isTrellisError(error, 'consumer_without_owner')) throw error;
        // No valid key owns the consumer. The key that acknowledges the current position becomes the owner.
        await calls.acknowledge(consumer, { cursor: acknowledged }, { signal: until });
        await acknowledge();
      }
    });
    position = cursor;
    acknowledged = cursor;
    isExpired = false;
    acknowledgedAt = Date.now();
  };
  /** Returns false if the position had expired and the consumer restarts. */
  const unlessExpired = async (call: () => Promise<void>): Promise<boolean> => {
    try {
      await call();
      return true;
    } catch (error) {
      if (onExpired !== 'restart' || !isTrellisError(error, 'cursor_expired')) throw error;
      position = null;
      isExpired = true;
      isRestart = true;
      isBatchDue = true;
      return false;
    }
  };

  await unlessExpired(async () => {
    const { cursor, isNew } = await begin(calls, options);
    position = cursor;
    acknowledged = cursor;
    isRestart = cursor === null;
    // An existing consumer without a position may have received records that it did not acknowledge.
    isBatchDue = isRestart && !isNew;
  });
  for (;;) {
    signal?.throwIfAborted();
    let page: RecordPage<T, B> = { records: [], next_cursor: null };
    const hasRead = await unlessExpired(async () => {
      const query = { cursor: position ?? undefined, limit: batchSize };
      page = await retrying(() => readPage(query, { signal }));
    });
    if (!hasRead) continue;
    const { records, next_cursor } = page;
    const last = records.at(-1);
    const isCaughtUp = next_cursor === null;
    if (last !== undefined || (isCaughtUp && isBatchDue)) {
      const cursor = last === undefined ? position : cursorOf(last, calls);
      isBatchDue = !isCaughtUp;
      let isAcknowledged = false;
      const acknowledge = async () => {
        if (isAcknowledged) return;
        // Also after an abort, because the batch was processed.
        const move = () => withAbortGrace(signal, (until) => moveTo(cursor, until));
        if (await unlessExpired(move)) isRestart = false;
        isAcknowledged = true;
      };
      yield { records, cursor, isRestart, isCaughtUp, acknowledge };
      await acknowledge();
      if (isRestart) continue;
    }
    if (next_cursor !== null) {
      position = last === undefined ? next_cursor : position;
      continue;
    }
    if (untilCaughtUp) return;
    await pause(pollMs, signal);
    if (Date.now() - acknowledgedAt >= keepAliveMs) await unlessExpired(() => moveTo(position, signal));
  }
}

/**
 * Adds `unless_emptied` to requests of pages, which refuses a position from before the dataset was emptied.
 *
 * An older service refuses the parameter; the pages are then requested without it for a minute. After that, the service may
 * have been upgraded: the first request with the parameter checks the position at which reading without it started.
 */
function withUnlessEmptied<T, B extends string>(page: FollowCalls<T, B>['page']): FollowCalls<T, B>['page'] {
  let omitted: { since: unknown; until: number } | undefined;
  return async (query, call) => {
    if (query.cursor === undefined) omitted = undefined;
    // Reading that started without a position has one since the first page.
    if (omitted !== undefined) omitted.since ??= query.cursor;
    if (omitted !== undefined && Date.now() < omitted.until) return page(query, call);
    const since = omitted?.since ?? query.cursor;
    try {
      if (since !== query.cursor) await page({ cursor: since, limit: 1, unless_emptied: true }, call);
      const answer = await page({ ...query, unless_emptied: true }, call);
      omitted = undefined;
      return answer;
    } catch (error) {
      if (!isTrellisError(error, 'invalid_query_params')) throw error;
      omitted = { since, until: Date.now() + withoutParameterMs };
      return page(query, call);
    }
  };
}

function cursorOf(record: object, { metadataKey }: { metadataKey: string }): string {
  return ((record as Record<string, unknown>)[metadataKey] as RecordMetadata).cursor;
}

/**
 * Returns the position of the consumer, null before its first acknowledgement. Creates a new consumer, so that retention
 * removes nothing that it has not received. Acknowledges the position of an existing one: a program that runs from time to
 * time may find no change to acknowledge, and would count as silent.
 */
async function begin<T, B extends string>(
  calls: FollowCalls<T, B>,
  options: FollowOptions,
): Promise<{ cursor: string | null; isNew: boolean }> {
  const { consumer, from = 'start', signal } = options;
  const readPosition = async () => {
    try {
      return { cursor: (await calls.consumer(consumer, { signal })).cursor, isNew: false };
    } catch (error) {
      if (!isTrellisError(error, 'not_found')) throw error;
      const cursor = from === 'start' ? null : from === 'now' ? await calls.lastCursor({ signal }) : from;
      return { cursor, isNew: true };
    }
  };
  const position = await retryUntilAvailable(readPosition, options);
  const acknowledge = () => calls.acknowledge(consumer, { cursor: position.cursor }, { signal });
  await retryUntilAvailable(acknowledge, options);
  return position;
}

/** Passes a signal that aborts `abortGraceMs` after the given signal, with the same reason. */
async function withAbortGrace(
  signal: AbortSignal | undefined,
  call: (until: AbortSignal) => Promise<void>,
): Promise<void> {
  const delayed = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const removeCallback = whenAborted(signal, () => {
    timer = setTimeout(() => delayed.abort(signal?.reason), abortGraceMs);
  });
  try {
    await call(delayed.signal);
  } finally {
    removeCallback();
    clearTimeout(timer);
  }
}
