import { AppError } from '../errors.ts';

/** A phase of a call took longer than it may. */
export class PhaseTimeout extends Error {
  readonly code = 'PHASE_TIMEOUT';
}

/**
 * What a caller is told of a call that got no answer, with what is known of its outcome: `upstream_unreachable` where
 * nothing was sent or the request may be repeated, `upstream_unknown_outcome`, `upstream_timeout`,
 * `upstream_unreadable`. An AppError stays what it is.
 */
export function failureOf(
  error: Error,
  { isSent, isRepeatable }: { isSent: boolean; isRepeatable: boolean },
): AppError {
  if (error instanceof AppError) return error;
  const cause = error;
  if (isUnreadable(error)) return unreadable(error);
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

/** Whether the provider answered, but in no HTTP that can be read or written: it would do so again. */
export function isUnreadable(error: Error): boolean {
  const { code = '' } = error as NodeJS.ErrnoException;
  // An answer that was read, but not asked for. A socket that broke has the same code.
  if (code === 'UND_ERR_SOCKET') return /^bad (response|upgrade)$/.test(error.message);
  return error.name === 'HTTPParserError' || unreadableCodes.has(code);
}

/** Heads that undici reads and refuses: too long, of two lengths, of a status below 100. */
const unreadableCodes: ReadonlySet<string> = new Set([
  'UND_ERR_HEADERS_OVERFLOW',
  'UND_ERR_RES_CONTENT_LENGTH_MISMATCH',
  'ERR_ASSERTION',
]);

/** `upstream_unreadable`, because of this. */
export function unreadable(cause: Error): AppError {
  return new AppError('upstream_unreadable', undefined, { cause });
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
