/**
 * The bodies of all requests: their time limit, how much of an unneeded body is read, and when a client that waits for
 * `100 Continue` gets it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** The limits for reading the rest of an unused body after the response. */
const unwantedBytes = 256 * 1024;
const unwantedMs = 1_000;
/** The time limit for the rest of a body that was being read. */
const wantedMs = 30_000;

/** Calls `expire` if the body is not complete after `limitMs`, and the response has not ended before. */
export function limitBody(
  request: IncomingMessage,
  { response, limitMs, expire }: { response: ServerResponse; limitMs: number; expire: () => void },
): void {
  const timer = setTimeout(() => {
    if (!request.complete) expire();
  }, limitMs);
  const clear = () => clearTimeout(timer);
  request.once('close', clear);
  response.once('close', clear);
}

const behindAnswers = new WeakSet<Socket>();

/** Whether the connection still receives the rest of a request after its response. */
export function isBehindAnswer(socket: Socket): boolean {
  return behindAnswers.has(socket);
}

/**
 * Reads the rest of a body after the response (lingering close, RFC 9112 §9.6): for 30 s if it was being read, else 256 KB of
 * it within a second. Then the connection ends, unless the body has ended before.
 *
 * If it were closed at once, the connection would be reset while the client sends, which may destroy the response. If it were
 * read without limit, as Node does, a client without a key could send for ever.
 */
export function lingerBehind(request: IncomingMessage, response: ServerResponse): void {
  // This event precedes the decision of Node about the connection.
  response.once('prefinish', () => {
    if (request.complete || request.destroyed) return;
    const { socket } = request;
    const { destroySoon } = socket;
    let isLast = false;
    const isWanted = request.readableFlowing === true;
    let left = isWanted ? Number.POSITIVE_INFINITY : unwantedBytes;
    const timer = setTimeout(() => socket.destroy(), isWanted ? wantedMs : unwantedMs).unref();
    behindAnswers.add(socket);
    // Node calls it after the last response of a connection.
    socket.destroySoon = () => {
      isLast = true;
      socket.end();
    };
    request.on('error', () => {});
    request.on('data', (chunk: Buffer) => {
      left -= chunk.length;
      if (left < 0) request.pause();
    });
    request.resume();
    request.once('close', () => {
      clearTimeout(timer);
      behindAnswers.delete(socket);
      socket.destroySoon = destroySoon;
      if (isLast) socket.destroySoon();
    });
  });
}

/**
 * Sends `100 Continue` when the body is read, so that a client which waits for it can get an error instead (RFC 9110
 * §10.1.1).
 */
export function continueWhenRead(request: IncomingMessage, response: ServerResponse): void {
  const read = request._read;
  request._read = (size) => {
    request._read = read;
    if (!response.headersSent) response.writeContinue();
    request._read(size);
  };
}
