/** The only module that turns errors into responses, for routes and for requests that never reach one. */

import { type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { $ZodIssue } from 'zod/v4/core';
import type { Brand } from '../brand.ts';
import { AppError, type ErrorCode, type FieldError } from '../errors.ts';
import { isBehindAnswer } from './bodies.ts';
import { anyOriginHeaders } from './cors.ts';
import { namedAsSent } from './spellings.ts';

/** A part of a request that does not match its schema. */
export class ValidationError extends Error {
  readonly issues: readonly $ZodIssue[];
  /** Set by Fastify: body, querystring, params or headers. */
  validationContext?: string;
  constructor(issues: readonly $ZodIssue[]) {
    super('validation');
    this.issues = issues;
  }
}

/**
 * Writes the errors of routes. Unknown errors are logged in full, and reported to the caller without details. `isRootAlias`
 * returns whether a path is one of a provider.
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
      ? 'This is a path of a provider. Send it with the headers Connection-Id and Integration-Id, or below /proxy.'
      : `${request.method} ${path} is not an address of this service.`;
    return sendError(reply, new AppError('not_found', message), request);
  });
}

/** Writes our error envelope: `{"error": {code, message, errors?, payload?}}`. */
export function sendError(reply: FastifyReply, error: AppError, request: FastifyRequest): FastifyReply {
  if (error.retryAfterS !== undefined) reply.header('retry-after', String(Math.ceil(error.retryAfterS)));
  if (error.headers !== undefined) reply.headers(error.headers);
  const body = errorBody(error, request.id);
  if (error.errors !== undefined) body.errors = namedAsSent(request, error.errors);
  return reply
    .code(error.status)
    .type('application/json; charset=utf-8')
    .send(JSON.stringify({ error: body }));
}

/** The value of `error` in our envelope. */
export function errorBody(error: AppError, requestId: string): Record<string, unknown> {
  return {
    code: error.code,
    message: error.code === 'internal' ? `${error.message.replace(/\.$/, '')}: ${requestId}.` : error.message,
    ...(error.errors && { errors: error.errors }),
    // Responses to failed authentication have an empty payload, which clients read.
    ...(error.payload !== undefined ? { payload: error.payload } : error.status === 401 && { payload: {} }),
    ...(error.upstream !== undefined && { upstream: error.upstream }),
  };
}

/** Maps Fastify's errors to ours; others become `internal`. */
function asAppError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  if (error instanceof ValidationError) return validationError(error);
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

/** The maximum number of issues that are reported. */
const maxErrors = 100;

const codeOfContext: Record<string, ErrorCode> = {
  body: 'invalid_body',
  querystring: 'invalid_query_params',
  params: 'invalid_uri_params',
  headers: 'invalid_headers',
};

function validationError(error: ValidationError): AppError {
  const errors: FieldError[] = error.issues.slice(0, maxErrors).map((issue) => ({
    code: issue.code ?? 'custom',
    message: issue.message,
    path: issue.path.map(String),
  }));
  return new AppError(codeOfContext[error.validationContext ?? 'body'] ?? 'invalid_body', undefined, {
    errors,
  });
}

export type Refuse = (socket: Socket, error: AppError, headers?: Record<string, string>) => void;

/**
 * Returns a function that writes an error to the bare socket, with our marker and the headers `own`, and ends the connection.
 *
 * If a response is being written, or is due to a request that was read completely, it resets the connection instead: the
 * client would mistake the error for that response or a part of it.
 */
export function createRefusal(
  brand: Brand,
  { own, nextId }: { own: Record<string, string>; nextId: () => string },
): Refuse {
  return (socket, error, more = {}) => {
    if (!socket.writable || isResponding(socket)) {
      socket.resetAndDestroy();
      return;
    }
    const { headers, body } = errorResponse(brand, { error, id: nextId() });
    const all = { ...own, ...headers, ...more, connection: 'close' };
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}\r\n${lines.join('')}\r\n${body}`);
    socket.destroySoon();
  };
}

/** Returns a function that refuses a request with an error and keeps its connection open. */
export function createTurnAway(
  brand: Brand,
  nextId: () => string,
): (response: ServerResponse, error: AppError) => void {
  return (response, error) => {
    const { headers, body } = errorResponse(brand, { error, id: nextId() });
    response.writeHead(error.status, headers).end(body);
  };
}

function errorResponse(
  brand: Brand,
  { error, id }: { error: AppError; id: string },
): { headers: Record<string, string>; body: string } {
  const body = JSON.stringify({ error: errorBody(error, id) });
  const headers = {
    ...anyOriginHeaders(brand),
    ...(error.retryAfterS !== undefined && { 'retry-after': String(Math.ceil(error.retryAfterS)) }),
    ...error.headers,
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(Buffer.byteLength(body)),
    'x-request-id': id,
    [brand.header('Error')]: error.code,
  };
  return { headers, body };
}

/** Node's name for the response that a socket is writing; its own error handler uses it too. */
type RespondingSocket = Socket & { _httpMessage?: ServerResponse | null };

function isResponding(socket: RespondingSocket): boolean {
  const response = socket._httpMessage;
  if (!response) return isBehindAnswer(socket);
  return response.headersSent || response.req.complete;
}

const codes: Record<string, ErrorCode> = {
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
  HPE_HEADER_OVERFLOW: 'headers_too_large',
};

/** Refuses a request that Node could not parse. */
export function refuseUnreadable(
  refuse: Refuse,
  { error, socket }: { error: NodeJS.ErrnoException; socket: Socket },
): void {
  // The client is gone, or has sent nothing: browsers open connections in advance.
  if (error.code === 'ECONNRESET' || socket.bytesRead === 0) socket.destroy();
  else refuse(socket, new AppError(codes[error.code ?? ''] ?? 'malformed_request'));
}
