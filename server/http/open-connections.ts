/**
 * How many connections callers may have open.
 *
 * Where all places are taken, a newcomer gets the place of somebody who uses theirs for nothing: first of those who have
 * never sent a whole request, however slowly they send, then of those who wait between two. So nobody keeps others out by
 * holding connections; only where each has a request under way is a newcomer turned away.
 */
import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** One pass over all connections frees places for several newcomers at once. */
const evictedShare = 0.02;

/** Node's names for the answer that is under way on a socket, and for what reads requests from it. */
type Connection = Socket & { _httpMessage?: ServerResponse | null; parser?: object | null };

export function limitConnections(server: Server, max: number): void {
  const open = new Set<Connection>();
  server.on('connection', (socket: Connection) => {
    // Before the others are told of it: a place that is not to be had costs nothing.
    if (open.size >= max && !evict(open, Math.ceil(max * evictedShare))) {
      socket.destroy();
      return;
    }
    open.add(socket);
    socket.on('close', () => open.delete(socket));
  });
}

/** Ends up to `wanted` of them; whether any was. */
function evict(open: Set<Connection>, wanted: number): boolean {
  const unused = [...open].filter(isUnused);
  const silent = unused.filter(({ bytesWritten }) => bytesWritten === 0);
  const waiting = unused.filter(({ bytesWritten }) => bytesWritten > 0);
  const ended = [...silent, ...waiting].slice(0, wanted);
  for (const socket of ended) {
    // Its place is free at once, whenever it is told of its end.
    open.delete(socket);
    socket.destroy();
  }
  return ended.length > 0;
}

/** One that became a socket of another protocol has no parser of requests any more. */
function isUnused({ _httpMessage: answer, parser }: Connection): boolean {
  return !answer && parser !== null && parser !== undefined;
}
