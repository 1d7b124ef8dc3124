import { AppError } from '../errors.ts';

/** A phase of a call took longer than it may. */
export class PhaseTimeout extends Error {
  readonly code = 'PHASE_TIMEOUT';
}

/**
 * What a caller is told of a call that got no answer, with what is known of its outcome: `upstream_unreachable` where
 * nothing was sent or the request may be repeated, `upstream_unknown_outcome`, `upstream_timeout`. An AppError stays
 * what it is.
 */
export function failureOf(
  error: Error,
  { isSent, isRepeatable }: { isSent: boolean; isRepeatable: boolean },
): AppError {
  if (error instanceof AppError) return error;
  const cause = error;
  if (isTimeout(error)) {
    if (!isSent || isRepeatable) return new AppError('upstream_timeout', undefined, { cause });
    return new AppError(
      'upstream_timeout',
      'The provider did not answer in time. The request was sent: its outcome is unknown.',
      { cause },
    );
  }
  if (!isSent) {
    const code = (error as NodeJS.ErrnoException).code ?? error.name;
    const message = `The provider could not be reached (${code}). Nothing was sent.`;
    return new AppError('upstream_unreachable', message, { cause });
  }
  if (!isRepeatable) return new AppError('upstream_unknown_outcome', undefined, { cause });
  return new AppError(
    'upstream_unreachable',
    'The connection to the provider broke before it answered. The request can be sent again safely.',
    { cause },
  );
}

function isTimeout(error: Error): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return (
    code === 'PHASE_TIMEOUT' ||
    code === 'UND_ERR_CONNECT_TIMEOUT' ||
    code === 'UND_ERR_HEADERS_TIMEOUT' ||
    code === 'UND_ERR_BODY_TIMEOUT'
  );
}
