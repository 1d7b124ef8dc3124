import { setTimeout as sleep } from 'node:timers/promises';

/**
 * A check of an installation. `trellis doctor` runs all of them; each one examines one subject and names the remedy.
 *
 * A check changes nothing, ends within its time limit, and prints no secret.
 */
export type State = 'ok' | 'warn' | 'fail' | 'skipped';

export type CheckResult = {
  state: State;
  /** The finding, in a sentence. */
  message: string;
  /** The remedy; present if the state is `warn` or `fail`. */
  fix?: string;
};

export type Check = {
  /** As docs/operations/doctor.md lists it. */
  name: string;
  run: () => Promise<CheckResult>;
};

export type Finding = CheckResult & { check: string };

export const ok = (message: string): CheckResult => ({ state: 'ok', message });
export const warn = (message: string, fix: string): CheckResult => ({ state: 'warn', message, fix });
export const fail = (message: string, fix: string): CheckResult => ({ state: 'fail', message, fix });
export const skipped = (message: string): CheckResult => ({ state: 'skipped', message });

const limitMs = 10_000;

/** Never rejects: a check that throws or takes too long has failed. */
export async function runCheck({ name, run }: Check): Promise<Finding> {
  const over = new AbortController();
  const late = fail(
    `No response within ${limitMs / 1000} s.`,
    'Make sure that the subject of the check is not overloaded.',
  );
  const running = run().catch((error: unknown) =>
    fail(
      `The check failed: ${messageOf(error)}`,
      'Fix the cause in the message, and run this command again.',
    ),
  );
  const result = await Promise.race([running, sleep(limitMs, late, { signal: over.signal })]);
  over.abort();
  return { check: name, ...result };
}

/** The message of an error and of its cause. The service's messages and those of the system hold no secret. */
export function messageOf(error: unknown): string {
  const { message, cause } = error as { message?: unknown; cause?: unknown };
  const why = cause instanceof Error && cause.message !== '' ? ` (${cause.message})` : '';
  return `${typeof message === 'string' && message !== '' ? message : String(error)}${why}`;
}
