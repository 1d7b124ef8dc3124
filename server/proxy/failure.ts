import { AppError } from '../errors.ts';

/** Methods that a repetition does not make worse (RFC 9110 §9.2.2). */
const idempotent = new Set([
  'GET',
  'HEAD',
  'OPTIONS',
  'PUT',
  'DELETE',
  'PROPFIND',
  'REPORT',
  'SEARCH',
  'QUERY',
]);

/**
 * What a caller is told of an attempt that got no answer, with what is known of its outcome: `upstream_unreachable`
 * where nothing was sent or the method may be repeated, `upstream_unknown_outcome`, `upstream_timeout`. An AppError
 * stays what it is.
 */
export function failureOf(error: Error, { isSent, method }: { isSent: boolean; method: string }): AppError {
  if (error instanceof AppError) return error;
  const cause = error;
  const isRepeatable = !isSent || idempotent.has(method);
  switch ((error as NodeJS.ErrnoException).code) {
    case 'UND_ERR_CONNECT_TIMEOUT':
    case 'UND_ERR_HEADERS_TIMEOUT':
    case 'UND_ERR_BODY_TIMEOUT':
      if (isRepeatable) return new AppError('upstream_timeout', undefined, { cause });
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
