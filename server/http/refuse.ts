/**
 * Errors that are told before any route has seen the request: on the bare socket those of requests that could not be read.
 *
 * Owns: what Node's parser and its time limits complain of, and what may still be written then. Does not own: errors
 * of requests that were read and begun (`error-writer.ts`, and the proxy's own).
 */
import { type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { Brand } from '../brand.ts';
import { AppError, type ErrorCode } from '../errors.ts';
import { isBehindAnswer } from './bodies.ts';
import { anyOriginHeaders } from './cors.ts';
import { errorBody } from './error-writer.ts';
import { requestIds } from './request-id.ts';

export type Refuse = (socket: Socket, error: AppError, headers?: Record<string, string>) => void;

/**
 * What ends a connection with an error of ours, marked as such and with the headers `own`.
 *
 * Where an answer is under way, or belongs to a request that has been read to its end, the connection is reset instead:
 * bytes of ours would pass for a part of that answer, or for that answer.
 */
export function createRefusal(brand: Brand, own: Record<string, string>): Refuse {
  const nextId = requestIds();
  return (socket, error, more = {}) => {
    if (!socket.writable || isAnswering(socket)) {
      socket.resetAndDestroy();
      return;
    }
    const { headers, body } = written(brand, { error, id: nextId() });
    const all = { ...own, ...headers, ...more, connection: 'close' };
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}\r\n${lines.join('')}\r\n${body}`);
    socket.destroySoon();
  };
}

/** What answers a request that is not begun, and leaves its connection open for others. */
export function createTurnAway(brand: Brand): (response: ServerResponse, error: AppError) => void {
  const nextId = requestIds();
  return (response, error) => {
    const { headers, body } = written(brand, { error, id: nextId() });
    response.writeHead(error.status, headers).end(body);
  };
}

function written(
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

/** Node's name for the answer whose turn it is on a socket; its own error handler judges by it too. */
type Answering = Socket & { _httpMessage?: ServerResponse | null };

function isAnswering(socket: Answering): boolean {
  const answer = socket._httpMessage;
  if (!answer) return isBehindAnswer(socket);
  return answer.headersSent || answer.req.complete;
}

const codes: Record<string, ErrorCode> = {
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
  HPE_HEADER_OVERFLOW: 'headers_too_large',
};

/** Answers what Node could not read as a request. */
export function refuseUnreadable(
  refuse: Refuse,
  { error, socket }: { error: NodeJS.ErrnoException; socket: Socket },
): void {
  // Nobody is there, or nobody has asked for anything: browsers open connections ahead.
  if (error.code === 'ECONNRESET' || socket.bytesRead === 0) socket.destroy();
  else refuse(socket, new AppError(codes[error.code ?? ''] ?? 'malformed_request'));
}
