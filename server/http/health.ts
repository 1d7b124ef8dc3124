import { z } from 'zod';
import { AppError } from '../errors.ts';
import type { App } from './server.ts';

/** What `/ready` looks at: `find` answers what is wrong, in a sentence without secrets, or throws. */
export type ReadyCheck = { name: string; find: () => Promise<string | undefined> };

type Readiness = { isReady: boolean; checks: Record<string, string> };

/** A check that takes longer has failed. */
const limitMs = 2_000;
/** However often it is asked, the checks run no more often than that. */
const cachedMs = 1_000;

/** `/health`: the process answers. `/ready`: it can do its work, and is not about to stop. */
export function healthRoutes(
  app: App,
  { checks, isStopping }: { checks: readonly ReadyCheck[]; isStopping: () => boolean },
): void {
  const ok = z.literal('ok');
  const access = { by: 'anyone', isLimited: false } as const;
  const ready = createReadiness(checks);
  app.get(
    '/health',
    {
      config: { access },
      schema: {
        operationId: 'getHealth',
        summary: 'Whether the process answers',
        description: 'For what starts it again where it does not. Nothing is asked of the database.',
        response: { 200: z.object({ result: ok }) },
      },
    },
    () => ({ result: 'ok' as const }),
  );
  const whole = z.object({ result: ok, checks: z.record(z.string(), z.string()) });
  const readySchema = {
    operationId: 'getReadiness',
    summary: 'Whether the service can do its work',
    description: 'For what sends requests to it: 503 where a check fails, and when it is about to stop.',
    response: { 200: whole },
  };
  app.get('/ready', { config: { access }, schema: readySchema }, async () => {
    if (isStopping()) {
      const details = { payload: { checks: { stopping: 'The service is about to stop.' } } };
      throw new AppError('unavailable', 'The service is about to stop.', details);
    }
    const { isReady, checks: found } = await ready();
    if (isReady) return { result: 'ok' as const, checks: found };
    const why = Object.entries(found).filter(([, state]) => state !== 'ok');
    const message = why.map(([name, state]) => `${name}: ${state}`).join(' ');
    throw new AppError('unavailable', message, { payload: { checks: found }, retryAfterS: 5 });
  });
}

/** Runs the checks beside each other, at most one round at a time. */
function createReadiness(checks: readonly ReadyCheck[]): () => Promise<Readiness> {
  let round: { at: number; found: Promise<Readiness> } | undefined;
  return () => {
    const at = performance.now();
    if (round === undefined || at - round.at > cachedMs) {
      const started = { at: Number.POSITIVE_INFINITY, found: look(checks) };
      round = started;
      // Counted from its end: a round that takes long is the one under way.
      void started.found.then(() => {
        started.at = performance.now();
      });
    }
    return round.found;
  };
}

async function look(checks: readonly ReadyCheck[]): Promise<Readiness> {
  const found = await Promise.all(
    checks.map(async ({ name, find }) => [name, (await inTime(find)) ?? 'ok'] as const),
  );
  return { isReady: found.every(([, state]) => state === 'ok'), checks: Object.fromEntries(found) };
}

/** What is wrong; never rejects. An error's own message may hold an address or a name of the database's: it stays here. */
function inTime(find: ReadyCheck['find']): Promise<string | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(() => resolve(`No answer within ${limitMs / 1000} s.`), limitMs);
  });
  const failed = (error: unknown) =>
    error instanceof AppError && error.code === 'unavailable'
      ? 'The database does not answer.'
      : 'The check failed.';
  return Promise.race([find().catch(failed), late]).finally(() => clearTimeout(timer));
}
