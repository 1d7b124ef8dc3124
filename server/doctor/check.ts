/**
 * What a check of an installation is. `trellis doctor` runs them all; each judges one thing and says how to mend it.
 *
 * Owns: the checks, by area, and nothing that they look at. A check never changes anything, ends within its time, and says
 * nothing secret.
 */

export type State = 'ok' | 'warn' | 'fail' | 'skipped';

export type Verdict = {
  state: State;
  /** What was found, in a sentence. */
  says: string;
  /** What to do about it; present where the state is `warn` or `fail`. */
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

/** Never rejects: a check that throws or takes too long is a failure of what it looks at. */
export async function runCheck({ name, run }: Check): Promise<Finding> {
  const late = Promise.withResolvers<Verdict>();
  const timer = setTimeout(
    () =>
      late.resolve(
        fail(`There was no answer within ${limitMs / 1000} s.`, 'See that what it asks is not overloaded.'),
      ),
    limitMs,
  );
  const judged = run().catch((error: unknown) =>
    fail(`It could not be judged: ${messageOf(error)}`, 'Mend what the message names, and run this again.'),
  );
  return Promise.race([judged, late.promise])
    .then((verdict) => ({ check: name, ...verdict }))
    .finally(() => clearTimeout(timer));
}

/** Of our own words and the system's; messages of either hold no secret. */
export function messageOf(error: unknown): string {
  const { message, cause } = error as { message?: unknown; cause?: unknown };
  const why = cause instanceof Error && cause.message !== '' ? ` (${cause.message})` : '';
  return `${typeof message === 'string' && message !== '' ? message : String(error)}${why}`;
}
