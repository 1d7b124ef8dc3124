/**
 * Sends all requests to addresses that a definition, a user or customer code names. It checks on every connection, after the
 * name is resolved, that the address may be reached. With TRELLIS_OUTBOUND_PROXY it then connects to the checked address
 * through that proxy (`proxy-tunnel.ts`); the sandbox is reached without it.
 *
 * Three addresses, which the operator sets, are reached without this module: the database (`db/`), the mail server
 * (`users/mail.ts`, `ops/doctor/address.ts`) and the collector of traces (`tracing/export.ts`).
 */
import { type LookupAddress, type LookupOptions, lookup } from 'node:dns';
import { isIP, type LookupFunction, type Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { Agent, buildConnector, Client, type Dispatcher, errors, Pool } from 'undici';
import type { OutboundProxyConfig } from '../config/outbound-proxy.ts';
import { type AllowedRange, type OutboundPurpose, outboundPurposes } from '../config/setting-values.ts';
import { AppError } from '../errors.ts';
import { isCovered, isPublicAddress } from './addresses.ts';
import { bypassesByAddress, bypassesByName, openTunnel } from './proxy-tunnel.ts';

/** Receives a response while it arrives; `undici` documents the methods. */
export type ResponseHandler = Dispatcher.DispatchHandler & {
  /** Called at once, before anything is sent, with the connection of the call. */
  onConnecting?(connecting: Connecting): void;
};
export type ResponseController = Dispatcher.DispatchController;

export type OutboundCall = {
  /** `https://host[:port]`, as `URL.origin` spells it. */
  origin: string;
  /** Path and query, sent byte for byte. */
  path: string;
  method: string;
  /** Names and values in turn; repeated names stay repeated. */
  headers: string[];
  body: Buffer | Readable | null;
  /** Whether the integration has test credentials: only such calls may reach the sandbox. */
  isTest: boolean;
  /** Sent if the server requests one. No call with another certificate, or with none, uses the same TLS connection. */
  clientCertificate?: ClientCertificate | undefined;
  /** The time limits for the response's head, and then for each part of the body. */
  headersTimeoutMs: number;
  bodyIdleTimeoutMs: number;
};

/** In PEM; the certificate may be followed by others of its chain. */
export type ClientCertificate = { readonly key: string; readonly cert: string };

type FetchInit = {
  method: string;
  headers: Record<string, string>;
  body?: string;
  redirect: 'manual';
  signal: AbortSignal;
  /** Sent if the server requests one (RFC 8446 §4.4.2). Such a request has a connection of its own. */
  clientCertificate?: ClientCertificate | undefined;
};
type FetchResponse = {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  readonly body: AsyncIterable<Uint8Array> | null;
};
/** The part of fetch that modules use. It reaches only the addresses that are allowed, and follows no redirect. */
export type Fetch = (url: string, init: FetchInit) => Promise<FetchResponse>;
/** `entries` in lower case, each name once. */
type WholeResponse = FetchResponse & {
  readonly headers: { get(name: string): string | null; entries(): [name: string, value: string][] };
};

export type Outbound = {
  /**
   * Sends one call and passes the response to the handler as it arrives. Follows no redirect, decodes nothing, repeats
   * nothing. Every error goes to `onResponseError`; if the address may not be reached, it is the AppError
   * `address_not_allowed`, and nothing was sent.
   */
  dispatch(call: OutboundCall, handler: ResponseHandler): void;
  /**
   * A fetch for small exchanges such as token calls. Follows no redirect and decodes nothing. The caller ends it by its
   * signal, and limits how much it reads. Throws the AppError `address_not_allowed`.
   */
  fetchFor(caller: {
    isTest: boolean;
    /** Default: `providers`. */
    purpose?: OutboundPurpose;
  }): Fetch;
  /** As `fetchFor` without test credentials, but with all headers of the response. */
  fetchWhole(url: string, init: FetchInit): Promise<WholeResponse>;
  /**
   * Throws `address_not_allowed` if the URL of an event endpoint holds an address that may not be reached, or a name of this
   * machine. Other names are checked at each connection only.
   */
  requireReachable(url: URL): void;
  /** Aborts all calls and resolves when all sockets are closed. */
  close(): Promise<void>;
};

type Settings = {
  /** Ranges that may be reached although they are not public, also over plain http. */
  allow: readonly AllowedRange[];
  /** Its exact origin, `http://host:port`. */
  sandbox?: { origin: string };
  /** Undefined: connections are direct. */
  proxy?: OutboundProxyConfig | undefined;
  /** Resolves names; default: the system's resolver. */
  resolve?: Resolve;
};

/** All addresses of a name. */
type Resolve = (
  hostname: string,
  options: LookupOptions & { all: true },
  callback: (error: Error | null, addresses: LookupAddress[]) => void,
) => void;

/** The upper limit for all connections; callers have shorter limits of their own. */
const connectTimeoutMs = 120_000;
/** A larger header section is an error of the provider. */
const maxHeaderBytes = 64 * 1024;
/** How many pools of connections with a certificate are kept for further calls, and for how long after the last call. */
const maxCertifiedPools = 200;
const certifiedIdleMs = 60_000;

/** To be closed when the service stops. */
export function createOutbound({ allow, sandbox, proxy, resolve = lookup }: Settings): Outbound {
  // HTTP/1.1 only: HTTP/2 would change the case of header names, and bare paths.
  const options = { allowH2: false, maxHeaderSize: maxHeaderBytes } as const;
  const connections = new Connections();
  const agentBy = (connect: Connector) => new Agent({ ...options, factory: connections.factoryBy(connect) });
  // One agent for each purpose, so that no call gets an open socket of another purpose from the pool.
  const guarded = new Map(
    outboundPurposes.map((purpose) => [
      purpose,
      agentBy(guardedConnector({ allow, purpose, proxy, resolve })),
    ]),
  );
  /** The pools of calls with a certificate, by origin and certificate, the least recently used first. */
  const certified = new Map<string, { pool: Dispatcher; idle: NodeJS.Timeout }>();
  /** Pools of calls with a certificate that get no further call. */
  const closing = new Set<Dispatcher>();
  // A separate agent, so that no other call gets an open socket of the sandbox from the pool.
  const toSandbox = agentBy(unguardedConnector());
  const isSandbox = sandbox === undefined ? () => false : sameHostAs(new URL(sandbox.origin));

  /** Throws `address_not_allowed`. */
  function agentFor(
    { origin, path, isTest }: Pick<OutboundCall, 'origin' | 'path' | 'isTest'>,
    purpose: OutboundPurpose,
  ): Agent {
    const own = guarded.get(purpose)!;
    if (!isSandbox(origin)) return own;
    if (isControlPath(path)) {
      throw new AppError(
        'address_not_allowed',
        'The control routes of the sandbox are not for integrations.',
      );
    }
    return isTest && origin === sandbox?.origin ? toSandbox : own;
  }

  function poolWith(
    clientCertificate: ClientCertificate,
    { origin, purpose }: { origin: string; purpose: OutboundPurpose },
  ): Dispatcher {
    const connect = guardedConnector({ allow, purpose, proxy, resolve, clientCertificate });
    return connections.factoryBy(connect)(origin, options);
  }

  /** The pool of all calls with this certificate to this origin. */
  function sharedPool(certificate: ClientCertificate, origin: string): Dispatcher {
    const key = origin + certificate.key + certificate.cert;
    const known = certified.get(key);
    const pool = known?.pool ?? poolWith(certificate, { origin, purpose: 'providers' });
    const idle = known?.idle.refresh() ?? setTimeout(() => drop(key), certifiedIdleMs).unref();
    certified.delete(key);
    certified.set(key, { pool, idle });
    const [oldest = key] = certified.keys();
    if (certified.size > maxCertifiedPools) drop(oldest);
    return pool;
  }

  function drop(key: string): void {
    const { pool, idle } = certified.get(key)!;
    clearTimeout(idle);
    certified.delete(key);
    closeAfterCalls(pool);
  }

  /** Closes when its calls have ended, with their bodies. */
  function closeAfterCalls(pool: Dispatcher): void {
    closing.add(pool);
    void pool.close().finally(() => closing.delete(pool));
  }

  async function fetchBy(
    url: string,
    {
      method,
      headers,
      body,
      signal,
      clientCertificate,
      isTest,
      purpose,
    }: FetchInit & { isTest: boolean; purpose: OutboundPurpose },
  ): Promise<WholeResponse> {
    const { origin, pathname, search } = new URL(url);
    const path = pathname + search;
    let connecting: Connecting | undefined;
    const giveUp = () => connecting?.giveUp();
    const options = {
      origin,
      path,
      method,
      headers,
      body: body ?? null,
      signal,
      waiting: {
        onConnecting(given: Connecting) {
          connecting = given;
        },
      },
    };
    signal.addEventListener('abort', giveUp);
    const shared = agentFor({ origin, path, isTest }, purpose);
    const own = clientCertificate && poolWith(clientCertificate, { origin, purpose });
    try {
      const responding = (own ?? shared).request(options);
      if (own !== undefined) closeAfterCalls(own);
      const response = await responding;
      return { status: response.statusCode, headers: namedHeaders(response.headers), body: response.body };
    } finally {
      signal.removeEventListener('abort', giveUp);
    }
  }

  return {
    dispatch(call, handler) {
      try {
        const options = {
          origin: call.origin,
          path: call.path,
          method: call.method,
          headers: call.headers,
          body: call.body,
          headersTimeout: call.headersTimeoutMs,
          bodyTimeout: call.bodyIdleTimeoutMs,
          waiting: handler,
        };
        const shared = agentFor(call, 'providers');
        const { clientCertificate: certificate } = call;
        // After `close`, no pool is made.
        const isShared = certificate === undefined || shared.destroyed;
        const dispatcher = isShared ? shared : sharedPool(certificate, call.origin);
        dispatcher.dispatch(options, handler);
      } catch (error) {
        handler.onResponseError?.(neverStarted, error as Error);
      }
    },
    fetchFor:
      ({ isTest, purpose = 'providers' }) =>
      (url, init) =>
        fetchBy(url, { ...init, isTest, purpose }),
    fetchWhole: (url, init) => fetchBy(url, { ...init, isTest: false, purpose: 'providers' }),
    requireReachable({ protocol, hostname, port: given }) {
      const host = hostname.replace(/^\[|\]$/g, '');
      const address = loopbackNames.has(hostname) && isIP(host) === 0 ? '127.0.0.1' : host;
      // Plain http is permitted to the operator's ranges only, whatever address a name resolves to.
      const port = portOf(protocol, given);
      const ranges = allow.filter((range) => (range.purpose ?? 'endpoints') === 'endpoints');
      if (isIP(address) === 0 && (protocol === 'https:' || ranges.some((one) => (one.port ?? port) === port)))
        return;
      const isReachable =
        isCovered(ranges, { address, port, purpose: 'endpoints' }) ||
        (protocol === 'https:' && isPublicAddress(address));
      if (!isReachable) throw refusal(host);
    },
    async close() {
      for (const key of certified.keys()) drop(key);
      const destroyed = Promise.all(
        [...guarded.values(), ...closing, toSandbox].map((dispatcher) => dispatcher.destroy()),
      );
      connections.giveUpAll();
      await destroyed;
    },
  };
}

/** The controller of a call that never got a socket. */
const neverStarted: ResponseController = {
  aborted: true,
  paused: false,
  reason: null,
  abort() {},
  pause() {},
  resume() {},
};

/**
 * Connects if the address may be reached. It connects to the address that was checked: a name is resolved once, and refused
 * if any of its addresses is forbidden.
 */
function guardedConnector({
  allow,
  purpose,
  proxy,
  resolve,
  clientCertificate,
}: Pick<Settings, 'allow' | 'proxy'> & {
  purpose: OutboundPurpose;
  resolve: Resolve;
  clientCertificate?: ClientCertificate;
}): Connector {
  const connectors = new Map<string, Connector>();
  // Plain http exposes credentials on the network, so it is permitted to the operator's ranges only.
  function connectorOf(protocol: string, port: number): Connector {
    const isReachable = (address: string) =>
      (protocol === 'https:' && isPublicAddress(address)) || isCovered(allow, { address, port, purpose });
    return proxy === undefined
      ? connectorTo(isReachable, { resolve, clientCertificate })
      : connectorThrough(proxy, { isReachable, resolve, clientCertificate });
  }
  return (options, callback) => {
    const { protocol } = options;
    const port = portOf(protocol, options.port);
    // All ports that no range names share a connector.
    const key = protocol + (allow.some((range) => range.port === port) ? port : '');
    const connect = connectors.get(key) ?? connectorOf(protocol, port);
    connectors.set(key, connect);
    return connect(options, callback);
  };
}

/** From a URL's port, which is empty for the default port of the protocol. */
function portOf(protocol: string, port: string): number {
  return Number(port) || (protocol === 'https:' ? 443 : 80);
}

function connectorTo(
  isReachable: (address: string) => boolean,
  { resolve, clientCertificate }: { resolve: Resolve; clientCertificate: ClientCertificate | undefined },
): Connector {
  const connect = unguardedConnector({ lookup: guardedLookup(isReachable, resolve), ...clientCertificate });
  return (options, callback) => {
    // An address in the URL is not looked up, so it is checked here.
    const isRefused = isIP(options.hostname) !== 0 && !isReachable(options.hostname);
    if (!isRefused) return connect(options, callback);
    process.nextTick(callback, refusal(options.hostname), null);
    return undefined;
  };
}

/** As `connectorTo`, through the proxy except for the names and addresses that bypass it. */
function connectorThrough(
  proxy: OutboundProxyConfig,
  {
    isReachable,
    resolve,
    clientCertificate,
  }: {
    isReachable: (address: string) => boolean;
    resolve: Resolve;
    clientCertificate: ClientCertificate | undefined;
  },
): Connector {
  const direct = connectorTo(isReachable, { resolve, clientCertificate });
  const inTunnel = unguardedConnector(clientCertificate);
  return (options, callback) => {
    const port = portOf(options.protocol, options.port);
    if (bypassesByName(proxy.bypass, { hostname: options.hostname, port })) return direct(options, callback);
    const ending = new AbortController();
    const { signal } = ending;
    const limit = setTimeout(() => ending.abort(new errors.ConnectTimeoutError()), connectTimeoutMs);
    const opening = (async () => {
      const found = await checkedAddresses(options.hostname, { isReachable, resolve });
      signal.throwIfAborted();
      const addresses = found.map(({ address }) => address);
      if (bypassesByAddress(proxy.bypass, { addresses, port })) {
        // To the addresses for which the proxy is bypassed, which another resolution might not return.
        const connect = unguardedConnector({ lookup: lookupOf(found), ...clientCertificate });
        return await connected(options, { connect, signal });
      }
      const tunnel = await openTunnel(proxy, { addresses, port, signal });
      tunnel.setNoDelay(true).setKeepAlive(true, keepAliveMs);
      if (options.protocol !== 'https:') return tunnel;
      return await connected({ ...options, httpSocket: tunnel }, { connect: inTunnel, signal });
    })();
    // A name that is being resolved does not delay the end. Its result is not used then.
    const ended = new Promise<never>((_resolve, reject) =>
      signal.addEventListener('abort', () => reject(signal.reason)),
    );
    Promise.race([opening, ended])
      .finally(() => clearTimeout(limit))
      .then(
        (socket) => callback(null, socket),
        (error) => callback(error, null),
      );
    return { destroy: (error) => ending.abort(error) };
  };
}

/** As undici's connectors set it. */
const keepAliveMs = 60_000;

function connected(
  options: buildConnector.Options,
  { connect, signal }: { connect: Connector; signal: AbortSignal },
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const abort = () => attempt?.destroy(signal.reason);
    const attempt = connect(options, (...[error, socket]) => {
      signal.removeEventListener('abort', abort);
      // undici passes no second argument with an error.
      if (error === null) resolve(socket as Socket);
      else reject(error);
    });
    signal.addEventListener('abort', abort);
  });
}

/** All addresses of a name, or the address itself. Throws `address_not_allowed` if any of them may not be reached. */
async function checkedAddresses(
  hostname: string,
  { isReachable, resolve }: { isReachable: (address: string) => boolean; resolve: Resolve },
): Promise<LookupAddress[]> {
  const host = hostname.replace(/^\[|\]$/g, '');
  const family = isIP(host);
  const found = await new Promise<LookupAddress[]>((done, fail) => {
    if (family !== 0) done([{ address: host, family }]);
    else resolve(host, { all: true }, (error, addresses) => (error === null ? done(addresses) : fail(error)));
  });
  if (found.length === 0) throw new Error(`${host} has no address`);
  if (!found.every(({ address }) => isReachable(address))) throw refusal(host);
  return found;
}

/** Returns these addresses for any name. */
function lookupOf(found: readonly LookupAddress[]): LookupFunction {
  return guardedLookup(
    () => true,
    (_hostname, _options, callback) => callback(null, [...found]),
  );
}

function unguardedConnector(
  options: { lookup?: LookupFunction } & Partial<ClientCertificate> = {},
): Connector {
  // It returns the socket, which its types omit.
  return buildConnector({ allowH2: false, timeout: connectTimeoutMs, ...options }) as Connector;
}

function guardedLookup(isReachable: (address: string) => boolean, resolve: Resolve): LookupFunction {
  return (hostname, options: LookupOptions, callback) => {
    resolve(hostname, { ...options, all: true }, (error, addresses) => {
      const [first] = addresses ?? [];
      if (error !== null || first === undefined) {
        callback(error ?? new Error(`${hostname} has no address`), []);
      } else if (!addresses.every(({ address }) => isReachable(address))) {
        callback(refusal(hostname), []);
      } else if (options.all === true) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };
}

function refusal(host: string): AppError {
  return new AppError(
    'address_not_allowed',
    `${host} is a private, loopback or reserved address, or uses plain http. ` +
      'TRELLIS_OUTBOUND_ALLOW can permit a range.',
  );
}

const loopbackNames = new Set(['localhost', '127.0.0.1', '[::1]']);

/** Returns whether an origin can be this server, by any name of this machine. */
function sameHostAs(server: URL): (origin: string) => boolean {
  // Most calls go to few origins.
  const known = new Map<string, boolean>();
  return (origin) => {
    const answer = known.get(origin) ?? isSameHost(new URL(origin), server);
    if (known.size >= 1_000) known.clear();
    known.set(origin, answer);
    return answer;
  };
}

function isSameHost(one: URL, other: URL): boolean {
  if (one.port !== other.port) return false;
  return (
    one.hostname === other.hostname || (loopbackNames.has(one.hostname) && loopbackNames.has(other.hostname))
  );
}

/** Whether a server that decodes or normalizes too much could read the path as one below `/_sandbox`. */
function isControlPath(path: string): boolean {
  let text = path.split('?', 1)[0] ?? '';
  for (let depth = 0; depth < 3; depth++) {
    if (text.split(/[/\\;]/).some((segment) => segment.toLowerCase() === '_sandbox')) return true;
    text = text.replace(/%([0-9a-f]{2})/gi, (_, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    );
  }
  return false;
}

function namedHeaders(headers: Record<string, string | string[] | undefined>): WholeResponse['headers'] {
  const joined = (value: string | string[]) => (Array.isArray(value) ? value.join(', ') : value);
  return {
    get(name) {
      const value = headers[name.toLowerCase()];
      return value === undefined ? null : joined(value);
    },
    entries: () =>
      Object.entries(headers).flatMap(([name, value]) =>
        value === undefined ? [] : [[name.toLowerCase(), joined(value)]],
      ),
  };
}

/** As undici's, but returns the socket that it connects, or what ends its attempt; undefined: none. */
export type Connector = (
  options: buildConnector.Options,
  callback: buildConnector.Callback,
) => Ending | undefined;

type Ending = { destroy(error?: Error): unknown };

/** The connection of a call, which may not be open yet. */
export type Connecting = {
  /** Ends the attempt; has no effect on an open connection. To be called only while the call waits for it. */
  giveUp(): void;
};

/**
 * All attempts to connect. Each ends when its call is aborted: undici continues such attempts until its connector times out,
 * so they would accumulate for a host that does not answer.
 */
export class Connections {
  readonly #attempts = new Set<Attempt>();

  /** The factory for the pools of undici's Agent; each of their calls can end its attempt. */
  factoryBy(connect: Connector): (origin: string | URL, options: object) => Dispatcher {
    const factory = (origin: string | URL, options: object) =>
      new ReportingClient(origin, options, new Attempt(connect, this.#attempts));
    return (origin, options) => new Pool(origin, { ...options, factory });
  }

  giveUpAll(): void {
    for (const attempt of this.#attempts) attempt.giveUp();
  }
}

/** The attempts of one client of a pool, one at a time. */
class Attempt implements Connecting {
  readonly connect: buildConnector.connector;
  #socket: Ending | undefined;

  constructor(connect: Connector, attempts: Set<Attempt>) {
    this.connect = (options, callback) => {
      this.#socket = connect(options, (...result) => {
        this.#socket = undefined;
        attempts.delete(this);
        callback(...result);
      });
      if (this.#socket !== undefined) attempts.add(this);
    };
  }

  giveUp(): void {
    this.#socket?.destroy(new Error('the connection is not needed'));
  }
}

/** A pool gives a client without a connection one call only, so the attempt belongs to that call. */
class ReportingClient extends Client {
  readonly #attempt: Attempt;

  constructor(origin: string | URL, options: Client.Options, attempt: Attempt) {
    super(origin, { ...options, connect: attempt.connect });
    this.#attempt = attempt;
  }

  override dispatch(
    options: Dispatcher.DispatchOptions & { waiting?: Pick<ResponseHandler, 'onConnecting'> },
    handler: Dispatcher.DispatchHandler,
  ): boolean {
    options.waiting?.onConnecting?.(this.#attempt);
    return super.dispatch(options, handler);
  }
}
