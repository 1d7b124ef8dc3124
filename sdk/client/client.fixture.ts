import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect, openTrellis, type TestTrellis } from '../../test/support/trellis.ts';
import { type Records, Trellis, type TrellisOptions } from './index.ts';

/** A service, a connected account, and a client with all scopes. */
export type ClientBench = {
  service: TestTrellis;
  client: Trellis;
  /** Creates another client with other options. */
  open(options?: Partial<TrellisOptions>): Trellis;
  integration: string;
  connectionId: string;
  /** The records of a model that no other test uses. */
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
    service,
    client,
    open,
    integration,
    connectionId,
    fresh<T extends object>() {
      count += 1;
      return client.connection(integration, connectionId).records<T>(`Place${count}`);
    },
    close: () => service.close(),
  };
}

/** A server with the responses of a test, and the requests that it received. */
export type TestServer = { url: string; requests: IncomingMessage[]; close(): Promise<void> };

export async function startServer(
  answer: (request: IncomingMessage, response: ServerResponse, turn: number) => unknown,
): Promise<TestServer> {
  const requests: IncomingMessage[] = [];
  const server: Server = createServer((request, response) => {
    requests.push(request);
    void answer(request, response, requests.length - 1);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    requests,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Sends a response in the form of the service. */
export function respond(
  response: ServerResponse,
  { status = 200, body, headers = {} }: { status?: number; body?: unknown; headers?: Record<string, string> },
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(body === undefined ? undefined : JSON.stringify(body));
}
