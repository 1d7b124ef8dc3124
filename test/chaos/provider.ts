/**
 * The surroundings of the nodes: the sandbox, behind one proxy for each node that records refreshes, and the
 * application's receiver of events. A process of its own, which no test kills: `node <this> <settings as JSON>`.
 */
import { createServer, type IncomingMessage, type ServerResponse, request as send } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Webhook } from 'standardwebhooks';
import { startSandbox } from '../../sandbox/main.ts';
import { type Book, type LeaseTiming, openBook, type Told } from './token-book.ts';

export type Settings = { dataDir: string; nodes: readonly string[]; timing: LeaseTiming };
export type Ready = {
  sandboxUrl: string;
  client: { clientId: string; clientSecret: string };
  proxyUrls: Record<string, string>;
  receiverUrl: string;
};
/** What the receiver got: events by id, each with the number of its deliveries; `bad` had no good signature, or one of another time, and were refused. */
type Received = { events: Record<string, number>; bad: number };
/** `ended` is done once what the process sent has been noted. */
export type Order =
  | { order: 'stopped' | 'goes on' | 'ended'; node: string }
  | { order: 'signing key'; key: string }
  | { order: 'tell' };
export type Report = { tokens: Told; received: Received };
/** An order, and that it was done: with the state of things then. */
export type Sent = Order & { id: number };
export type Done = Report & { id: number };

// `node --test` without a pattern takes every file under test/ for a test.
if (process.argv[2] !== undefined && process.send) {
  const { dataDir, nodes, timing } = JSON.parse(process.argv[2]) as Settings;
  const sandbox = await startSandbox({ port: 0, dataDir });
  const book = openBook(timing);
  const proxies = new Map<string, NodeProxy>();
  for (const node of nodes) proxies.set(node, await openProxy(sandbox.url, { node, book }));
  const receiver = await openReceiver();
  const follow = async (sent: Sent) => {
    if (sent.order === 'stopped') book.stopped(sent.node);
    if (sent.order === 'goes on') book.goesOn(sent.node);
    if (sent.order === 'ended') {
      await proxies.get(sent.node)?.untilQuiet();
      book.ended(sent.node);
    }
    if (sent.order === 'signing key') receiver.verifyWith(sent.key);
    process.send?.({ id: sent.id, tokens: book.told(), received: receiver.received } satisfies Done);
  };
  process.on('message', (sent: Sent) => {
    // What goes wrong here ends the process, and the trial with it.
    void follow(sent);
  });
  process.on('disconnect', () => process.exit());
  process.send({
    sandboxUrl: sandbox.url,
    client: sandbox.client,
    proxyUrls: Object.fromEntries([...proxies].map(([node, { url }]) => [node, url])),
    receiverUrl: receiver.url,
  } satisfies Ready);
}

/** A proxy to the sandbox. `untilQuiet` resolves once no client is connected and all sent bytes have been read. */
type NodeProxy = { url: string; untilQuiet(): Promise<void> };

async function openProxy(
  sandboxUrl: string,
  { node, book }: { node: string; book: Book },
): Promise<NodeProxy> {
  const { hostname, port, host } = new URL(sandboxUrl);
  const server = createServer({ keepAlive: true }, async (incoming, answer) => {
    // Of a process that was killed meanwhile.
    const body = await bytesOf(incoming).catch(() => undefined);
    if (body === undefined) return void answer.destroy();
    const form = incoming.url === '/token' ? new URLSearchParams(body.toString()) : undefined;
    const token = form?.get('grant_type') === 'refresh_token' ? form.get('refresh_token') : undefined;
    const note = token ? book.asked({ node, token }) : undefined;
    const outgoing = send(
      { hostname, port, method: incoming.method, path: incoming.url, headers: { ...incoming.headers, host } },
      async (response) => {
        const bytes = await bytesOf(response).catch(() => undefined);
        const isWhole = bytes !== undefined && response.complete;
        const given = isWhole ? answerIn(bytes) : undefined;
        const isAccepted = response.statusCode === 200 && given?.access_token !== undefined;
        const over = () =>
          note?.answered({
            successor: isAccepted ? (given?.refresh_token ?? token ?? undefined) : undefined,
            error: given?.error,
            isAccepted,
            isDelivered: answer.writableFinished,
          });
        if (answer.closed) over();
        else answer.once('close', over);
        if (!isWhole || answer.destroyed) return void answer.destroy();
        answer.writeHead(response.statusCode!, withoutFraming(response.headers)).end(bytes);
      },
    );
    outgoing.on('error', () => {
      const nothing = { successor: undefined, error: undefined };
      note?.answered({ ...nothing, isAccepted: false, isDelivered: false });
      answer.destroy();
    });
    outgoing.end(body);
  });
  // Node closes idle connections of its own accord; a request that comes at that moment would look like a fault.
  server.keepAliveTimeout = 0;
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  return {
    url: `http://localhost:${await listening(server)}`,
    async untilQuiet() {
      // Also one that waits to be taken up comes within a turn.
      do {
        await Promise.all([...sockets].map((socket) => new Promise((done) => socket.once('close', done))));
        await nextTurn();
      } while (sockets.size > 0);
    },
  };
}

type Given = { access_token?: string; refresh_token?: string; error?: string };

function answerIn(bytes: Buffer): Given | undefined {
  try {
    return JSON.parse(bytes.toString()) as Given;
  } catch {
    return undefined;
  }
}

function withoutFraming(headers: IncomingMessage['headers']) {
  const { 'transfer-encoding': _, connection: __, 'keep-alive': ___, ...kept } = headers;
  return kept;
}

async function openReceiver() {
  const received: Received = { events: {}, bad: 0 };
  let webhook: Webhook | undefined;
  const take = async (incoming: IncomingMessage, answer: ServerResponse) => {
    const body = (await bytesOf(incoming)).toString();
    try {
      const event = webhook!.verify(body, incoming.headers as Record<string, string>) as { id: string };
      received.events[event.id] = (received.events[event.id] ?? 0) + 1;
    } catch {
      received.bad += 1;
      answer.statusCode = 400;
    }
    answer.end();
  };
  const server = createServer((incoming, answer) => {
    take(incoming, answer).catch(() => answer.destroy());
  });
  return {
    received,
    url: `http://127.0.0.1:${await listening(server)}/events`,
    verifyWith(key: string) {
      webhook = new Webhook(key);
    },
  };
}

async function bytesOf(message: IncomingMessage): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(message as AsyncIterable<Buffer>));
}

async function listening(server: ReturnType<typeof createServer>): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}
