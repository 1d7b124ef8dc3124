/**
 * Requests of one connection are done one after the other, as an unsafe one demands (RFC 9112 §9.3.2). Those that come
 * before their turn wait, and few of them, since they cost memory and have shown no key yet: what is sent beyond is not even
 * read. They are begun a few in each turn of the event loop, so that who sends thousands ahead keeps nobody else waiting.
 */
import type { RequestListener } from 'node:http';
import type { Socket } from 'node:net';

/** Where so many wait on a connection nothing more is read from it, until half of them are begun. */
const maxWaiting = 16;
/** So many are begun before it is looked who else has sent something. */
const maxAtOnce = 16;

/**
 * Node reads all heads of a part, up to 64 KB, before it looks whether anybody wants them: 1,800 requests in 10 ms. So its
 * reader is stopped in the middle, by what `onIncoming` answers to llhttp, which is told as an error with the rest of the part.
 */
type Read = Socket & { parser?: Reader | null };
type Reader = { onIncoming: (...given: unknown[]) => number; resume(): void };
type Stop = Partial<{ code: string; rawPacket: Buffer; bytesParsed: number }>;
/** `HPE_OK` and `HPE_PAUSED` of llhttp. */
const goOn = 0;
const stop = 21;

export type RequestQueue = {
  /** Calls `listener` with each request once the answers before its own are out. */
  each(listener: RequestListener): RequestListener;
  /** To be called with each connection when it opens. */
  watch(socket: Socket): void;
  /** Whether what Node calls an error is a reader that was stopped here. */
  isStop(error: Error, socket: Socket): boolean;
};

export function createRequestQueue(): RequestQueue {
  const waiting = new WeakMap<Socket, number>();
  /** What came behind the head at which a reader was stopped. */
  const unread = new WeakMap<Socket, Buffer>();
  const ready: (() => void)[] = [];
  let isDue = false;

  const isFull = (socket: Socket) => (waiting.get(socket) ?? 0) >= maxWaiting || unread.has(socket);

  function leave(socket: Socket): void {
    const left = (waiting.get(socket) ?? 1) - 1;
    waiting.set(socket, left);
    if (left === maxWaiting / 2 && unread.has(socket)) setImmediate(() => readOn(socket));
  }

  function readOn(socket: Read): void {
    const rest = unread.get(socket);
    unread.delete(socket);
    if (!socket.parser) return;
    socket.parser.resume();
    // Not by way of the stream, which would begin to read ahead.
    socket.emit('data', rest);
    if (!unread.has(socket)) socket.resume();
  }

  function begin(work: () => void): void {
    ready.push(work);
    if (isDue) return;
    isDue = true;
    setImmediate(beginSome);
  }

  function beginSome(): void {
    for (const work of ready.splice(0, maxAtOnce)) setImmediate(work);
    isDue = ready.length > 0;
    if (isDue) setImmediate(beginSome);
  }

  return {
    each: (listener) => (request, response) => {
      // Node gives an answer its socket when its turn has come.
      if (response.socket !== null) {
        listener(request, response);
        return;
      }
      const { socket } = request;
      waiting.set(socket, (waiting.get(socket) ?? 0) + 1);
      response.once('socket', () => {
        leave(socket);
        begin(() => {
          if (!socket.destroyed) listener(request, response);
        });
      });
    },
    watch(socket: Read) {
      const { parser } = socket;
      if (!parser) return;
      const { onIncoming } = parser;
      parser.onIncoming = (...given) => {
        const answer = onIncoming(...given);
        return answer === goOn && isFull(socket) ? stop : answer;
      };
      // The reader of a body, or the code that skips one, lets the connection flow again.
      socket.on('resume', () => {
        if (!isFull(socket)) return;
        socket.pause();
        // One that was paused since it was told to flow does not say so once more, and flows.
        socket.emit('pause');
      });
    },
    isStop(error, socket) {
      const { code, rawPacket, bytesParsed } = error as Stop;
      if (code !== 'HPE_PAUSED' || rawPacket === undefined || unread.has(socket)) return false;
      unread.set(socket, rawPacket.subarray(bytesParsed));
      socket.pause();
      return true;
    },
  };
}
