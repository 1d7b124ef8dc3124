import { setTimeout as sleep } from 'node:timers/promises';
import type { Db } from '../db/pool.ts';
import { placeNext } from '../db/sequencer.ts';
import { eventSequence } from './sequence.ts';

/** Wakes readers of the feed that wait for the next event. */
type FeedWatch = {
  /** True once the last position, of all environments, is beyond this one; false when `signal` ends or the watch does. */
  past(position: number, signal: AbortSignal): Promise<boolean>;
  /** Ends every wait, and each that is begun later at once. */
  stop(): void;
};

type Waiting = { position: number; wake: (isPast: boolean) => void; fail: (error: unknown) => void };

/**
 * One look at the database every `everyMs` for all who wait on this node, and none while nobody does: an event of
 * another node is a row like any other. A look that fails ends the waits that there are with its error.
 */
export function createFeedWatch(db: Db, { everyMs = 100 }: { everyMs?: number } = {}): FeedWatch {
  const waiting = new Set<Waiting>();
  const stopping = new AbortController();
  let isLooking = false;

  async function look(): Promise<void> {
    const asked = [...waiting];
    try {
      await placeNext(db, eventSequence);
      const [row] = await db.query<{ last: number }>(
        `select last_position as last from sequencer where name = 'event'`,
      );
      for (const { position, wake } of asked) if (row !== undefined && row.last > position) wake(true);
    } catch (error) {
      for (const { fail } of asked) fail(error);
    }
  }

  async function keepLooking(): Promise<void> {
    if (isLooking) return;
    isLooking = true;
    while (waiting.size > 0) {
      await look();
      // The socket of a waiting client keeps the process alive.
      await sleep(everyMs, undefined, { ref: false });
    }
    isLooking = false;
  }

  return {
    async past(position, given) {
      const signal = AbortSignal.any([given, stopping.signal]);
      if (signal.aborted) return false;
      const { promise, resolve, reject } = Promise.withResolvers<boolean>();
      const one: Waiting = { position, wake: resolve, fail: reject };
      const end = () => resolve(false);
      signal.addEventListener('abort', end, { once: true });
      waiting.add(one);
      void keepLooking();
      try {
        return await promise;
      } finally {
        waiting.delete(one);
        signal.removeEventListener('abort', end);
      }
    },
    stop: () => stopping.abort(),
  };
}
