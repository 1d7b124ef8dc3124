import { AppError } from '../errors.ts';
import type { Logger } from '../log.ts';

/**
 * Does `work` for one item after the other until `signal` says so. One that fails is logged and stops none of the
 * others; it is the caller's to see that it does not come first again. Throws where the database is away.
 */
export async function eachInTurn<T extends { id: number }>(
  items: readonly T[],
  {
    job,
    log,
    signal,
    work,
  }: {
    job: string;
    log: Pick<Logger, 'warn'>;
    signal: AbortSignal;
    work: (item: T) => Promise<unknown>;
  },
): Promise<void> {
  for (const item of items) {
    if (signal.aborted) return;
    try {
      await work(item);
    } catch (error) {
      if (error instanceof AppError && error.code === 'unavailable') throw error;
      log.warn({ err: error, job, id: item.id }, 'an item of a job failed');
    }
  }
}
