import { limitConcurrency } from '../concurrency.ts';
import { AppError } from '../errors.ts';
import type { Logger } from '../log.ts';

/** What a job that has a minute does for many connections: in portions, a few at a time. */

const maxBeside = 8;
/** Of portions, so that a thousand connections that want something at once do not take the provider's quota from calls. */
const maxRounds = 12;
/** After that no portion is begun. */
const enoughMs = 40_000;

/**
 * Lets `work` do what `take` gives, a portion after the other until one is empty, there were enough, or `signal` says so. One
 * that fails is logged, and stops none of the others. Throws where the database is away. `take` gives nothing twice.
 */
export function createRounds({ log, signal }: { log: Pick<Logger, 'warn'>; signal: AbortSignal }) {
  const begunMs = performance.now();
  return async <T>(take: () => Promise<readonly T[]>, work: (item: T) => Promise<unknown>): Promise<void> => {
    const inTurn = limitConcurrency(maxBeside);
    const away: unknown[] = [];
    const one = async (item: T) => {
      if (signal.aborted || away.length > 0) return;
      await work(item).catch((error: unknown) => {
        if (error instanceof AppError && error.code === 'unavailable') away.push(error);
        else log.warn({ err: error }, 'a push channel is looked at later');
      });
    };
    for (let round = 0; round < maxRounds; round++) {
      if (signal.aborted || performance.now() - begunMs > enoughMs) return;
      const items = await take();
      await Promise.all(items.map((item) => inTurn(() => one(item))));
      if (away.length > 0) throw away[0];
      if (items.length === 0) return;
    }
  };
}

const maxUnanswered = 3;

/**
 * Leaves the connections of an integration alone, for the rest of a job, whose provider has let three calls in a row
 * unanswered: else one that hangs would take the others' minute.
 */
export function noteSilence() {
  const unanswered = new Map<string, number>();
  return {
    async during(
      { environmentId, integrationKey }: { environmentId: number; integrationKey: string },
      ask: () => Promise<'asked' | 'unanswered'>,
    ): Promise<void> {
      const key = `${environmentId}/${integrationKey}`;
      const before = unanswered.get(key) ?? 0;
      if (before >= maxUnanswered) return;
      if ((await ask()) === 'unanswered') unanswered.set(key, (unanswered.get(key) ?? 0) + 1);
      else if ((unanswered.get(key) ?? 0) < maxUnanswered) unanswered.delete(key);
    },
  };
}
