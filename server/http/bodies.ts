/**
 * The bodies of requests, as far as they are the same for all: how long one may take, how much of one is read that nobody
 * wants any more, and when a caller that asks first is told to send it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Behind an answer so much is read of a body that nobody has asked for, and for so long. */
const unwantedBytes = 256 * 1024;
const unwantedMs = 1_000;
/** For so long one is read that was on its way to somebody. */
const wantedMs = 30_000;

/** Whether a body follows the head (RFC 9112 §6.3). */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/** Calls `expire` where the body is not there after so long (ms), and nobody has answered meanwhile. */
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

/** Whether the rest of a request comes in whose answer is out. */
export function isBehindAnswer(socket: Socket): boolean {
  return behindAnswers.has(socket);
}

/**
 * What becomes of a body that is still coming when the answer is written (lingering close, RFC 9112 §9.6): where it flows
 * to somebody, the rest is read for 30 s; where nobody has begun to read it, or reading was paused, 256 KB of it within a
 * second. The connection ends then, unless the body has ended before.
 *
 * To close at once would reset the connection while the caller still sends, which may cost it the answer. To read on
 * without end, as Node does, would let anybody without a key send for ever.
 */
export function lingerBehind(request: IncomingMessage, response: ServerResponse): void {
  // Comes before Node decides what becomes of the connection.
  response.once('prefinish', () => {
    if (request.complete || request.destroyed) return;
    const { socket } = request;
    const { destroySoon } = socket;
    let isLast = false;
    const isWanted = request.readableFlowing === true;
    let left = isWanted ? Number.POSITIVE_INFINITY : unwantedBytes;
    const timer = setTimeout(() => socket.destroy(), isWanted ? wantedMs : unwantedMs).unref();
    behindAnswers.add(socket);
    // What Node calls behind the last answer of a connection.
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
 * Sends `100 Continue` when somebody begins to read the body, so that a caller who waits for it is told first where an
 * answer is an error (RFC 9110 §10.1.1).
 */
export function continueWhenRead(request: IncomingMessage, response: ServerResponse): void {
  const read = request._read;
  request._read = (size) => {
    request._read = read;
    if (!response.headersSent) response.writeContinue();
    request._read(size);
  };
}
