import { once } from 'node:events';
import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import { type AddressInfo, BlockList, connect, createServer as createTcp, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import type { TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { promisify } from 'node:util';
import { authModes, type Credentials } from '../auth-modes/modes.ts';
import { brandNames } from '../brand.ts';
import type { LiveConnection } from '../connections/store/reader.ts';
import { AppError } from '../errors.ts';
import type { Authenticate, AuthenticateCall, KeyCaller } from '../http/auth/caller.ts';
import type { ProxyRule } from '../http/auth/proxy-rule.ts';
import { createDrain } from '../http/drain.ts';
import { createHttp } from '../http/server.ts';
import type { Integration } from '../integrations/store.ts';
import { createLog, type Logger } from '../log.ts';
import { createOutbound, type Outbound } from '../outbound/outbound.ts';
import { definitionSchema, type ProviderDefinition } from '../providers/definition.ts';
import type { ProxyDeps } from './exchange.ts';
import { createProxy } from './proxy.ts';

export const brand = brandNames('trellis');
export const secretKey = 'key-of-the-environment';

/** Ranges that let a test reach servers of its own. */
export function loopbackRanges(): BlockList {
  const ranges = new BlockList();
  ranges.addSubnet('127.0.0.0', 8, 'ipv4');
  ranges.addAddress('::1', 'ipv6');
  return ranges;
}

/** A definition like Google's, at an address of the test's choice. */
export function definitionAt(baseUrl: string, api: Record<string, unknown> = {}): ProviderDefinition {
  const parsed = definitionSchema(authModes).parse({
    display_name: 'Test',
    categories: ['other'],
    docs: 'https://docs.example/',
    logo: 'test.svg',
    auth_mode: 'OAUTH2',
    authorization: { url: 'https://auth.example/authorize' },
    token: { url: 'https://auth.example/token' },
    api: {
      base_url: 'https://api.example',
      forbid: {
        headers: ['x-goog-user-project', 'x-goog-api-key'],
        query: ['key', 'access_token', 'oauth_token'],
      },
      root_aliases: ['/v4/spreadsheets'],
      error_format: 'google',
      ...api,
    },
  });
  return { ...parsed, name: 'test', api: { ...parsed.api, base_url: baseUrl } };
}

export function bearer(access_token: string): Credentials {
  return { type: 'OAUTH2', access_token, raw: {} };
}

export type RunningProxy = {
  port: number;
  url: string;
  /** The results of `renewed`, the first one first. */
  renewals: (Credentials | undefined | Promise<Credentials | undefined>)[];
  renewedWith: Credentials[];
  /** From now on its key is unknown. */
  revoke(): void;
  /** From now on its connection is gone. */
  forget(): void;
  /** Resolves when no caller has a connection any more. */
  left(): Promise<void>;
  /** As a stop of the service: resolves when every answer is out. */
  stop(): Promise<void>;
  /** As `stop`, after a delay that `endDelay` ends. */
  stopDelayed(): Promise<void>;
  endDelay(): void;
  close(): Promise<void>;
};

type ProxySettings = {
  definition: ProviderDefinition;
  integrationConfig?: Record<string, string>;
  proxyRules?: readonly ProxyRule[];
  keyRules?: readonly ProxyRule[];
  isTest?: boolean;
  /** `at_once`: key, connection and credentials are cached, as they are for most calls. */
  pace?: 'fetched' | 'at_once';
  outbound?: Outbound;
  fresh?: ProxyDeps['credentials']['fresh'];
  observer?: ProxyDeps['observer'];
  /** Of the integration. */
  fault?: Integration['fault'];
  activity?: ProxyDeps['activity'];
  quota?: ProxyDeps['quota'];
  /** Silent otherwise. */
  log?: Logger;
};

/** The service's HTTP server with the proxy's routes alone, one integration `google` and one connection `alice`. */
export async function startProxy(settings: ProxySettings): Promise<RunningProxy> {
  const { definition, integrationConfig = {}, isTest = false, proxyRules = [] } = settings;
  const outbound = settings.outbound ?? createOutbound({ allow: [{ addresses: loopbackRanges() }] });
  const integration = {
    key: 'google',
    provider: definition,
    isTest,
    integrationConfig,
    proxyRules,
    fault: settings.fault,
  } as Integration;
  const renewals: RunningProxy['renewals'] = [];
  const renewedWith: Credentials[] = [];
  const log = settings.log ?? createLog({ level: 'silent', format: 'json' });
  const isRootAlias = (path: string) => path.startsWith('/v4/spreadsheets');
  const isAtOnce = settings.pace === 'at_once';
  const keyCaller = (secret: string): KeyCaller => {
    if (secret !== secretKey || isRevoked) throw new AppError('unknown_account');
    return {
      kind: 'key',
      environmentId: 1,
      environment: 'dev',
      keyId: 1,
      scopes: new Set(['*']),
      ...(settings.keyRules && { proxyRules: settings.keyRules }),
    };
  };
  const connection = { connectionId: 'alice', connectionConfig: {}, integration } as LiveConnection;
  let isRevoked = false;
  let isForgotten = false;
  const isKnown = (connectionId: string, integrationKey: string) =>
    connectionId === 'alice' && integrationKey === 'google' && !isForgotten;
  const authenticate: Authenticate & AuthenticateCall = {
    key: isAtOnce ? keyCaller : async (secret: string) => keyCaller(secret),
    ticket: async () => {
      throw new AppError('invalid_ticket');
    },
    session: async () => {
      throw new AppError('unknown_connect_session_token');
    },
  };
  const interceptor = createProxy({
    log,
    isRootAlias,
    authenticate,
    brand,
    outbound,
    ...(settings.observer && { observer: settings.observer }),
    ...(settings.activity && { activity: settings.activity }),
    ...(settings.quota && { quota: settings.quota }),
    connections: {
      known: ({ connectionId, integrationKey }) =>
        isAtOnce && isKnown(connectionId, integrationKey) ? connection : undefined,
      get: async ({ connectionId, integrationKey }) => {
        if (!isKnown(connectionId, integrationKey)) throw new AppError('unknown_connection');
        return { ...connection };
      },
      getIntegration: async ({ integrationKey }) => {
        if (integrationKey !== 'google') throw new AppError('unknown_provider_config');
        return integration;
      },
    },
    credentials: {
      proven: () => {},
      refused: () => {},
      current: () => (isAtOnce ? bearer('token-1') : undefined),
      fresh: settings.fresh ?? (async () => bearer('token-1')),
      renewed: async (_connection, used) => {
        renewedWith.push(used);
        return renewals.shift();
      },
    },
  });
  const app = await createHttp({
    config: { brand, trustedProxies: [], baseUrl: 'http://localhost' },
    log,
    isRootAlias,
    authenticate,
    interceptor,
  });
  const delayed = Promise.withResolvers<void>();
  const drain = createDrain(app, () => delayed.promise);
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  return {
    port,
    url: `http://127.0.0.1:${port}`,
    renewals,
    renewedWith,
    revoke() {
      isRevoked = true;
    },
    forget() {
      isForgotten = true;
    },
    async left() {
      const count = promisify(app.server.getConnections.bind(app.server));
      while ((await count()) > 0) await setImmediate();
      // A connection is counted out before its end is announced.
      await setImmediate();
    },
    stop: () => app.close(),
    stopDelayed: () => drain({ delayMs: 1, limitMs: 86_400_000 }),
    endDelay: () => delayed.resolve(),
    async close() {
      app.server.closeAllConnections();
      await app.close();
      await outbound.close();
    },
  };
}

/** The headers that every proxied call needs. */
export const callHeaders = {
  authorization: `Bearer ${secretKey}`,
  'connection-id': 'alice',
  'provider-config-key': 'google',
};

type RawUpstream = { url: string; close(): Promise<void> };

/** A provider on a bare socket: `serve` gets each connection. */
export async function startTcp(serve: (socket: Socket) => void): Promise<RawUpstream> {
  const open = new Set<Socket>();
  const server = createTcp((socket) => {
    open.add(socket.on('error', () => {}).on('close', () => open.delete(socket)));
    serve(socket);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      for (const socket of open) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** A provider that keeps the bytes of each request up to the empty line and answers all of them alike. */
export async function startRecorder(
  answer = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok',
): Promise<RawUpstream & { heads: string[] }> {
  const heads: string[] = [];
  const upstream = await startTcp((socket) => {
    let seen = '';
    socket.on('data', (chunk) => {
      seen += chunk.toString('latin1');
      for (let end = seen.indexOf('\r\n\r\n'); end !== -1; end = seen.indexOf('\r\n\r\n')) {
        heads.push(seen.slice(0, end));
        seen = seen.slice(end + 4);
        socket.write(answer, 'latin1');
      }
    });
  });
  return { ...upstream, heads };
}

/** A provider made of Node's own HTTP server. */
export async function startHttp(
  handler: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<RawUpstream & { server: Server }> {
  const server = createServer(handler);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    server,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

/** Sends bytes as they are and resolves with all that comes back until the connection ends. */
export async function exchange(port: number, bytes: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  socket.write(bytes, 'latin1');
  let answer = '';
  for await (const chunk of socket) answer += (chunk as Buffer).toString('latin1');
  return answer;
}

/** A request head for the proxy, with the headers that every call needs. */
export function head(requestLine: string, headers: string[] = []): string {
  const own = Object.entries(callHeaders).map(([name, value]) => `${name}: ${value}`);
  return `${[`${requestLine} HTTP/1.1`, 'Host: proxy', 'Connection: close', ...own, ...headers].join('\r\n')}\r\n\r\n`;
}

/** A proxy to that provider; both are stopped with the test. */
export async function proxyTo(
  t: TestContext,
  upstream: { url: string; close(): Promise<void> },
  api: Record<string, unknown> = {},
) {
  const proxy = await startProxy({ definition: definitionAt(upstream.url, api) });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  return proxy;
}

/** One call; `answer` resolves with its head. */
export function send(
  url: string,
  init: { method?: string; headers?: Record<string, string>; body?: Readable | Buffer } = {},
) {
  const request = httpRequest(url, {
    method: init.method ?? 'GET',
    headers: { ...callHeaders, ...init.headers },
  });
  const answer = new Promise<IncomingMessage>((resolve, reject) => {
    request.on('response', resolve).on('error', reject);
  });
  if (init.body instanceof Readable) init.body.pipe(request);
  else request.end(init.body);
  return { request, answer };
}

export async function bytesOf(message: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
