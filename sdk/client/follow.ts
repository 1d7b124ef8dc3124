import { isTrellisError, type TrellisError } from './errors.ts';
import type { RecordMetadata, RecordPage, StoredRecord } from './records.ts';
import { pause, pauseAfter } from './retry.ts';
import type { Answer, CallOptions } from './route-call.ts';

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
   * What to do where deletions that the consumer has not seen are gone: throw `cursor_expired` (`'fail'`, the default), or
   * begin with all there is (`'restart'`). The first batch of a beginning says `isRestart`: what you hold and what does not
   * come again was deleted.
   */
  onExpired?: 'fail' | 'restart' | undefined;
  /** Told of an outage that is waited for. */
  onRetry?: ((error: TrellisError, pauseMs: number) => void) | undefined;
  signal?: AbortSignal | undefined;
};

/** Some changes, oldest first. */
export type Batch<T = Record<string, unknown>, B extends string = 'trellis'> = {
  records: StoredRecord<T, B>[];
  /** The position behind the last of them. */
  cursor: string;
  /** Whether everything comes again from here on: see `onExpired`. */
  isRestart: boolean;
  /**
   * Moves the consumer behind this batch now. Asking for the next batch does it by itself: this is for a loop that ends with
   * this one.
   */
  acknowledge(): Promise<void>;
};

/** The calls that following takes. */
export type FollowCalls<T, B extends string> = {
  metadataKey: string;
  page(query: Record<string, unknown>, call: CallOptions): Promise<RecordPage<T, B>>;
  /** Throws `not_found`. */
  consumer(name: string, call: CallOptions): Promise<Answer<'GET /records/consumers/{name}'>>;
  acknowledge(name: string, body: { cursor: string | null; rewind?: boolean }): Promise<unknown>;
  /** Null where there is no record. */
  lastCursor(): Promise<string | null>;
};

/** A consumer that is silent for 30 days is waited for no longer; one in a quiet dataset is not silent. */
const signOfLifeMs = 60 * 60_000;

/** See `Records.follow`. */
export async function* follow<T, B extends string>(
  calls: FollowCalls<T, B>,
  options: FollowOptions,
): AsyncGenerator<Batch<T, B>, void, undefined> {
  const { consumer, batchSize = 500, pollMs = 2_000, untilCaughtUp, onExpired, signal } = options;
  const patiently = <R>(call: () => Promise<R>) => withPatience(call, options);
  let position = await patiently(() => begin(calls, options));
  let isRestart = false;
  let toldAt = Date.now();

  const moveTo = async (cursor: string) => {
    await patiently(() => calls.acknowledge(consumer, { cursor }));
    position = cursor;
    toldAt = Date.now();
  };
  const restart = async () => {
    await patiently(() => calls.acknowledge(consumer, { cursor: null, rewind: true }));
    position = null;
    isRestart = true;
  };
  /** False where it begins again instead. */
  const unlessExpired = async (call: () => Promise<void>): Promise<boolean> => {
    try {
      await call();
      return true;
    } catch (error) {
      if (onExpired !== 'restart' || !isTrellisError(error, 'cursor_expired')) throw error;
      await restart();
      return false;
    }
  };

  for (;;) {
    signal?.throwIfAborted();
    let page: RecordPage<T, B> = { records: [], next_cursor: null };
    const hasRead = await unlessExpired(async () => {
      const query = { cursor: position ?? undefined, limit: batchSize };
      page = await patiently(() => calls.page(query, { signal }));
    });
    if (!hasRead) continue;
    const { records, next_cursor } = page;
    const last = records.at(-1);
    if (last !== undefined) {
      const { cursor } = (last as Record<string, unknown>)[calls.metadataKey] as RecordMetadata;
      let isTaken = false;
      const take = async () => {
        if (isTaken) return;
        await moveTo(cursor);
        isTaken = true;
      };
      yield { records, cursor, isRestart, acknowledge: take };
      isRestart = false;
      // Also where the signal has gone meanwhile: the batch is done.
      if (!(await unlessExpired(take))) continue;
    }
    if (next_cursor !== null) {
      position = last === undefined ? next_cursor : position;
      continue;
    }
    if (untilCaughtUp) return;
    await pause(pollMs, signal);
    const at = position;
    if (at !== null && Date.now() - toldAt >= signOfLifeMs) await unlessExpired(() => moveTo(at));
  }
}

/** Where the consumer stands; one that is new is made, so that nothing is let go before it has taken it. */
async function begin<T, B extends string>(
  calls: FollowCalls<T, B>,
  { consumer, from = 'start', signal }: FollowOptions,
): Promise<string | null> {
  try {
    return (await calls.consumer(consumer, { signal })).cursor;
  } catch (error) {
    if (!isTrellisError(error, 'not_found')) throw error;
  }
  const cursor = from === 'start' ? null : from === 'now' ? await calls.lastCursor() : from;
  await calls.acknowledge(consumer, { cursor });
  return cursor;
}

/** Calls again and again while the service is away or asks to wait, however long that takes. */
async function withPatience<R>(call: () => Promise<R>, { signal, onRetry }: FollowOptions): Promise<R> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await call();
    } catch (error) {
      if (!isTrellisError(error) || !mayPass(error)) throw error;
      const pauseMs = pauseAfter(error, { attempt, chance: Math.random() });
      onRetry?.(error, pauseMs);
      await pause(pauseMs, signal);
    }
  }
}

function mayPass({ code, status }: TrellisError): boolean {
  return code === 'network_error' || code === 'timeout' || [429, 502, 503, 504].includes(status);
}
