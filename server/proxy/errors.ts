/**
 * Errors of proxied calls: what the caller gets when a call fails on its way, and our errors in the provider's own format.
 * Pure.
 */
import type { Brand } from '../brand.ts';
import { AppError } from '../errors.ts';
import type { ProviderDefinition } from '../providers/definition.ts';

/** A phase of a call exceeded its time limit. */
export class PhaseTimeout extends Error {
  readonly code = 'PHASE_TIMEOUT';
}

/**
 * The error for a call without a response, according to what is certain about its outcome: `upstream_unreachable` if
 * nothing was sent or the request is safe to repeat, `upstream_unknown_outcome`, `upstream_timeout`,
 * `upstream_unreadable`. An AppError is returned unchanged.
 */
export function upstreamError(
  error: Error,
  { isSent, isRepeatable }: { isSent: boolean; isRepeatable: boolean },
): AppError {
  if (error instanceof AppError) return error;
  const cause = error;
  if (isUnreadable(error)) return unreadableError(error);
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

/** Whether the provider sent a response that is not valid HTTP. A retry would get the same response. */
export function isUnreadable(error: Error): boolean {
  const { code = '' } = error as NodeJS.ErrnoException;
  // undici uses this code for an unexpected response and for a broken socket.
  if (code === 'UND_ERR_SOCKET') return /^bad (response|upgrade)$/.test(error.message);
  return error.name === 'HTTPParserError' || unreadableCodes.has(code);
}

/** Heads that undici rejects: too long, with two lengths, or with a status below 100. */
const unreadableCodes: ReadonlySet<string> = new Set([
  'UND_ERR_HEADERS_OVERFLOW',
  'UND_ERR_RES_CONTENT_LENGTH_MISMATCH',
  'ERR_ASSERTION',
]);

export function unreadableError(cause: Error): AppError {
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

/** The request body has more bytes than the ticket allows. */
export function requestTooLong(): AppError {
  return new AppError('ticket_bytes_exceeded');
}

/** The response body has more bytes than the ticket allows. The provider has executed the call. */
export function responseTooLong(): AppError {
  return new AppError(
    'ticket_bytes_exceeded',
    'The response has more bytes than the ticket allows. The provider has executed the call.',
    { status: 502 },
  );
}

/** The status of `google.rpc.Code` for each HTTP status (google/rpc/code.proto). */
const googleStatus: Readonly<Record<number, string>> = {
  400: 'INVALID_ARGUMENT',
  401: 'UNAUTHENTICATED',
  403: 'PERMISSION_DENIED',
  404: 'NOT_FOUND',
  405: 'UNIMPLEMENTED',
  408: 'DEADLINE_EXCEEDED',
  409: 'ABORTED',
  424: 'FAILED_PRECONDITION',
  429: 'RESOURCE_EXHAUSTED',
  500: 'INTERNAL',
  501: 'UNIMPLEMENTED',
  502: 'UNAVAILABLE',
  503: 'UNAVAILABLE',
  504: 'DEADLINE_EXCEEDED',
};

/**
 * Our error in the provider's format, so that the provider's own clients can parse it. The reason is our code in capitals
 * (AIP-193). Undefined if the provider's definition names no format.
 */
export function inProviderFormat(
  error: AppError,
  { provider, brand }: { provider: Pick<ProviderDefinition, 'api'>; brand: Brand },
): Record<string, unknown> | undefined {
  if (provider.api.error_format !== 'google') return undefined;
  return {
    error: {
      code: error.status,
      message: error.message,
      status: googleStatus[error.status] ?? (error.status < 500 ? 'FAILED_PRECONDITION' : 'UNKNOWN'),
      details: [
        {
          '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
          reason: error.code.toUpperCase(),
          domain: brand.word,
          metadata: metadataOf(error.payload),
        },
      ],
    },
  };
}

/** ErrorInfo allows only strings; nested values become JSON. */
function metadataOf(payload: unknown): Record<string, string> {
  if (typeof payload !== 'object' || payload === null) return {};
  const known = Object.entries(payload).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(
    known.map(([name, value]) => [name, typeof value === 'string' ? value : JSON.stringify(value)]),
  );
}
