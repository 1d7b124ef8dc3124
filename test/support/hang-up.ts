import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { TestTrellis } from './trellis.ts';

/**
 * Opens an answer on a connection of its own, takes its first part and hangs up. Resolves once the service has seen that
 * and every connection to the database is free again.
 */
export async function hangUpHalfWay(
  { app, db }: Pick<TestTrellis, 'app' | 'db'>,
  open: () => Promise<IncomingMessage>,
): Promise<void> {
  const closed = new Promise<void>((resolve) => {
    app.server.once('connection', (socket: Socket) => socket.once('close', () => resolve()));
  });
  const answer = await open();
  await once(answer, 'data');
  answer.destroy();
  await closed;
  while (db.load().total > db.load().idle) await nextTurn();
}
