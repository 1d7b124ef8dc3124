import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect, openTrellis, type TestTrellis } from '../../test/support/trellis.ts';
import { type Records, Trellis, type TrellisOptions } from './index.ts';

/** A service, an account that is connected, and a client with all rights. */
export type ClientBench = {
  service: TestTrellis;
  client: Trellis;
  /** Another client, by other settings. */
  open(options?: Partial<TrellisOptions>): Trellis;
  integration: string;
  connectionId: string;
  /** Of a model that no other test uses. */
  fresh<T extends object>(): Records<T>;
  close(): Promise<void>;
};

export async function openClientBench(env: Record<string, string> = {}): Promise<ClientBench> {
  const service = await openTrellis(env);
  const { integration, connectionId } = await connect(service);
  const open: ClientBench['open'] = (options = {}) =>
    new Trellis({ url: service.baseUrl, key: service.keys.dev, ...options });
  const client = open();
  let count = 0;
  return {
    ...{ service, client, open, integration, connectionId },
    fresh<T extends object>() {
      count += 1;
      return client.connection(integration, connectionId).records<T>(`Place${count}`);
    },
    close: () => service.close(),
  };
}

/** A server that answers as a test says, and how many requests have come. */
export type Answerer = { url: string; asked: IncomingMessage[]; close(): Promise<void> };

export async function answerer(
  answer: (request: IncomingMessage, response: ServerResponse, turn: number) => unknown,
): Promise<Answerer> {
  const asked: IncomingMessage[] = [];
  const server: Server = createServer((request, response) => {
    asked.push(request);
    void answer(request, response, asked.length - 1);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    asked,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** An answer of the service's shape. */
export function say(
  response: ServerResponse,
  { status = 200, body, headers = {} }: { status?: number; body?: unknown; headers?: Record<string, string> },
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(body === undefined ? undefined : JSON.stringify(body));
}
