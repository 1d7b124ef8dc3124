/**
 * Requests of one connection are done one after the other, as an unsafe one demands (RFC 9112 §9.3.2). Those that come
 * before their turn wait, and few of them, since they cost memory and have shown no key yet.
 */
import type { RequestListener } from 'node:http';
import type { Socket } from 'node:net';

/** Where so many wait on a connection nothing more is read from it: beyond that come those of the part that was read. */
const mostWaiting = 16;

/** Calls `listener` with each request once the answers before its own are out. */
export function inTurn(listener: RequestListener): RequestListener {
  const waiting = new WeakMap<Socket, number>();

  function wait(socket: Socket): void {
    const known = waiting.get(socket);
    waiting.set(socket, (known ?? 0) + 1);
    // Whoever reads a body, or leaves one, lets the connection flow again.
    if (known === undefined) socket.on('resume', () => pauseIfFull(socket));
    pauseIfFull(socket);
  }

  function leave(socket: Socket): void {
    const left = (waiting.get(socket) ?? 1) - 1;
    waiting.set(socket, left);
    if (left === mostWaiting - 1) socket.resume();
  }

  function pauseIfFull(socket: Socket): void {
    if ((waiting.get(socket) ?? 0) >= mostWaiting) socket.pause();
  }

  return (request, response) => {
    // Node gives an answer its socket when its turn has come.
    if (response.socket !== null) {
      listener(request, response);
      return;
    }
    const { socket } = request;
    wait(socket);
    response.once('socket', () => {
      leave(socket);
      listener(request, response);
    });
  };
}
