import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { $ZodIssue } from 'zod/v4/core';
import { AppError, type ErrorCode, type FieldError } from '../errors.ts';

/** A request part that does not fit its schema. */
export class ValidationFault extends Error {
  readonly issues: readonly $ZodIssue[];
  /** Set by Fastify: body, querystring, params or headers. */
  validationContext?: string;
  constructor(issues: readonly $ZodIssue[]) {
    super('validation');
    this.issues = issues;
  }
}

/**
 * The one place where an error becomes an answer. Unknown errors are logged whole and answered bare. `isRootAlias`
 * knows the paths that are a provider's own.
 */
export function writeErrors(app: FastifyInstance, isRootAlias: (path: string) => boolean): void {
  app.setErrorHandler<FastifyError>((error, request, reply) => {
    const known = asAppError(error);
    if (known.code === 'internal') request.log.error({ err: error }, 'unexpected error');
    else if (known.status >= 500)
      request.log.warn(known.quotesCode ? { code: known.code } : { err: known }, 'request failed');
    return sendError(reply, known, request);
  });
  app.setNotFoundHandler((request, reply) => {
    const path = request.originalUrl.split('?', 1)[0] ?? '';
    const message = isRootAlias(path)
      ? 'This is a path of a provider. Send it with the headers Connection-Id and Provider-Config-Key, or below /proxy.'
      : `${request.method} ${path} is not an address of this service.`;
    return sendError(reply, new AppError('not_found', message), request);
  });
}

/** Writes our error envelope: `{"error": {code, message, errors?, payload?}}`. */
export function sendError(reply: FastifyReply, error: AppError, request: FastifyRequest): FastifyReply {
  if (error.retryAfterS !== undefined) reply.header('retry-after', String(Math.ceil(error.retryAfterS)));
  if (error.headers !== undefined) reply.headers(error.headers);
  return reply
    .code(error.status)
    .type('application/json; charset=utf-8')
    .send(JSON.stringify({ error: errorBody(error, request.id) }));
}

/** What stands below `error` in an answer of ours. */
export function errorBody(error: AppError, requestId: string): Record<string, unknown> {
  return {
    code: error.code,
    message: error.code === 'internal' ? `${error.message.replace(/\.$/, '')}: ${requestId}.` : error.message,
    ...(error.errors && { errors: error.errors }),
    // The authentication answers have always carried an empty payload; clients read it.
    ...(error.payload !== undefined ? { payload: error.payload } : error.status === 401 && { payload: {} }),
    ...(error.upstream !== undefined && { upstream: error.upstream }),
  };
}

/** What of Fastify's own errors a caller may see. */
function asAppError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  if (error instanceof ValidationFault) return validationError(error);
  const { code, statusCode } = error as Partial<FastifyError>;
  if (code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE') return new AppError('invalid_content_type');
  if (code === 'FST_ERR_CTP_BODY_TOO_LARGE') return new AppError('body_too_large');
  if (
    code === 'FST_ERR_CTP_INVALID_JSON_BODY' ||
    code === 'FST_ERR_CTP_INVALID_CONTENT_LENGTH' ||
    error instanceof SyntaxError
  ) {
    return new AppError('invalid_json');
  }
  if (code === 'FST_ERR_BAD_URL')
    return new AppError('invalid_uri_params', 'The path is not a valid URL path.');
  if (error instanceof RangeError && /call stack|Nested too deeply/.test(error.message)) {
    return new AppError('invalid_body', 'The body is nested too deeply.');
  }
  if (statusCode === 400) return new AppError('invalid_json');
  return new AppError('internal', undefined, { cause: error });
}

/** Of a body's faults at most so many are named. */
const maxErrors = 100;

const codeOfContext: Record<string, ErrorCode> = {
  body: 'invalid_body',
  querystring: 'invalid_query_params',
  params: 'invalid_uri_params',
  headers: 'invalid_headers',
};

function validationError(fault: ValidationFault): AppError {
  const errors: FieldError[] = fault.issues.slice(0, maxErrors).map((issue) => ({
    code: issue.code ?? 'custom',
    message: issue.message,
    path: issue.path.map(String),
  }));
  return new AppError(codeOfContext[fault.validationContext ?? 'body'] ?? 'invalid_body', undefined, {
    errors,
  });
}
