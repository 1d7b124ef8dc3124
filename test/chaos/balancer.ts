/**
 * A balancer in front of the nodes: a request goes to the next one in turn. One that could not be sent, since nobody
 * listens there, goes to the one after; what was sent is never sent again, and where no answer comes of it the caller gets
 * 502 with `x-balancer: broken`. Bodies are small and held; there is no time-out.
 */
import { createServer, type IncomingMessage, type ServerResponse, request as send } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Balancer = { url: string; close(): Promise<void> };

/** `portsNow` are those of the nodes; one that is down may stand among them. */
export async function openBalancer(portsNow: () => readonly number[]): Promise<Balancer> {
  let turn = 0;

  async function pass(incoming: IncomingMessage, answer: ServerResponse): Promise<void> {
    const body = Buffer.concat(await Array.fromAsync(incoming as AsyncIterable<Buffer>));
    turn += 1;
    const ports = portsNow();
    const inTurn = ports.map((_, index) => ports[(turn + index) % ports.length]!);
    for (const port of inTurn) {
      const outcome = await attempt(port, { incoming, body, answer });
      if (outcome === 'answered') return;
      if (outcome === 'broken') break;
    }
    if (answer.headersSent) answer.destroy();
    else answer.writeHead(502, { 'x-balancer': 'broken' }).end();
  }

  const server = createServer((incoming, answer) => {
    pass(incoming, answer).catch(() => answer.destroy());
  });
  server.keepAliveTimeout = 0;
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://localhost:${(server.address() as AddressInfo).port}`,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** A connection of its own each: so it is plain whether anything was sent. */
function attempt(
  port: number,
  { incoming, body, answer }: { incoming: IncomingMessage; body: Buffer; answer: ServerResponse },
): Promise<'answered' | 'unsent' | 'broken'> {
  const { promise, resolve } = Promise.withResolvers<'answered' | 'unsent' | 'broken'>();
  const { method = 'GET', url = '/', headers } = incoming;
  const outgoing = send(
    {
      host: '127.0.0.1',
      port,
      method,
      path: url,
      agent: false,
      headers: { ...headers, connection: 'close' },
    },
    (response) => {
      const { connection: _, 'transfer-encoding': __, ...kept } = response.headers;
      answer.writeHead(response.statusCode!, kept);
      response.pipe(answer);
      response.once('close', () => resolve(response.complete ? 'answered' : 'broken'));
    },
  );
  let isConnected = false;
  const connected = () => {
    isConnected = true;
  };
  outgoing.once('socket', (socket) => socket.once('connect', connected));
  outgoing.once('error', () => resolve(isConnected ? 'broken' : 'unsent'));
  answer.once('close', () => outgoing.destroy());
  outgoing.end(body);
  return promise;
}
