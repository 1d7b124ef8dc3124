import { z } from 'zod';
import { AppError } from '../errors.ts';
import type { App } from './server.ts';

/** A check of `/ready`: `find` resolves with the problem, as a sentence without secrets, or rejects. */
export type ReadyCheck = { name: string; find: () => Promise<string | undefined> };

type Readiness = { isReady: boolean; checks: Record<string, string> };

/** A check that takes longer has failed. */
const limitMs = 2_000;
/** The minimum time between two runs of the checks. */
const cachedMs = 1_000;

/** `/health`: the process responds. `/ready`: the service can work, and is not about to stop. */
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
        summary: 'Whether the process responds',
        description: 'For a supervisor that restarts the process. Does not use the database.',
        response: { 200: z.object({ result: ok }) },
      },
    },
    () => ({ result: 'ok' as const }),
  );
  const whole = z.object({ result: ok, checks: z.record(z.string(), z.string()) });
  const readySchema = {
    operationId: 'getReadiness',
    summary: 'Whether the service can do its work',
    description: 'For a load balancer: 503 if a check fails, and when the service is about to stop.',
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

/** Runs the checks concurrently, at most one round at a time. */
function createReadiness(checks: readonly ReadyCheck[]): () => Promise<Readiness> {
  let round: { at: number; found: Promise<Readiness> } | undefined;
  return () => {
    const at = performance.now();
    if (round === undefined || at - round.at > cachedMs) {
      const started = { at: Number.POSITIVE_INFINITY, found: look(checks) };
      round = started;
      // The time counts from the end of a round; callers share a long one.
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

/** The problem; never rejects. It omits the message of an error, which may hold an address or a name of the database. */
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
