import type { About } from './service.ts';

/**
 * Throws `other_connection` where a call names another connection or integration than the run's: it would be made with
 * the wrong account. What is left out, or empty, is the run's.
 */
export function requireOwn(
  about: About,
  asked: { providerConfigKey?: string | undefined; connectionId?: string | undefined },
): void {
  const integration = asked.providerConfigKey || about.providerConfigKey;
  const connection = asked.connectionId || about.connectionId;
  if (integration === about.providerConfigKey && connection === about.connectionId) return;
  throw Object.assign(
    new Error(
      `The call names the connection "${connection}" of "${integration}". This run is for "${about.connectionId}" of ` +
        `"${about.providerConfigKey}", and a function is given no other connection than its run's.`,
    ),
    { code: 'other_connection' },
  );
}

/** The error of a request for a value that functions do not get. */
export function notGiven(what: string, why: string): Error {
  return Object.assign(new Error(`${what} is told to no function: ${why}`), {
    code: 'not_told_to_functions',
  });
}
