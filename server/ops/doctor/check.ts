import { setTimeout as sleep } from 'node:timers/promises';

/**
 * A check of an installation. `trellis doctor` runs all of them; each one judges one subject and names the remedy.
 *
 * A check changes nothing, ends within its time limit, and prints no secret.
 */
export type State = 'ok' | 'warn' | 'fail' | 'skipped';

export type Verdict = {
  state: State;
  /** The finding, in a sentence. */
  says: string;
  /** The remedy; present if the state is `warn` or `fail`. */
  mend?: string;
};

export type Check = {
  /** As docs/operations/doctor.md lists it. */
  name: string;
  run: () => Promise<Verdict>;
};

export type Finding = Verdict & { check: string };

export const ok = (says: string): Verdict => ({ state: 'ok', says });
export const warn = (says: string, mend: string): Verdict => ({ state: 'warn', says, mend });
export const fail = (says: string, mend: string): Verdict => ({ state: 'fail', says, mend });
export const skipped = (says: string): Verdict => ({ state: 'skipped', says });

const limitMs = 10_000;

/** Never rejects: a check that throws or takes too long has failed. */
export async function runCheck({ name, run }: Check): Promise<Finding> {
  const over = new AbortController();
  const late = fail(
    `No response within ${limitMs / 1000} s.`,
    'Make sure that the subject of the check is not overloaded.',
  );
  const judged = run().catch((error: unknown) =>
    fail(
      `The check failed: ${messageOf(error)}`,
      'Fix the cause in the message, and run this command again.',
    ),
  );
  const verdict = await Promise.race([judged, sleep(limitMs, late, { signal: over.signal })]);
  over.abort();
  return { check: name, ...verdict };
}

/** The message of an error and of its cause. The service's messages and those of the system hold no secret. */
export function messageOf(error: unknown): string {
  const { message, cause } = error as { message?: unknown; cause?: unknown };
  const why = cause instanceof Error && cause.message !== '' ? ` (${cause.message})` : '';
  return `${typeof message === 'string' && message !== '' ? message : String(error)}${why}`;
}
