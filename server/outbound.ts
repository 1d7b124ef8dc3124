/**
 * The only way to the world.
 *
 * Owns: sockets to other hosts, and which addresses may be reached, checked on every connection after the name is
 * resolved. Does not own: what is sent (`proxy/`, `auth-modes/`), retries, or which provider an integration names.
 * Environment variables that name a proxy are not read.
 */
import { type LookupAddress, type LookupOptions, lookup } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { isIP } from 'node:net';
import type { Readable } from 'node:stream';
import { Agent, buildConnector, type Dispatcher } from 'undici';
import { type AllowedRange, type OutboundPurpose, outboundPurposes } from './config/outbound-allow.ts';
import { AppError } from './errors.ts';
import { isCovered, isPublicAddress } from './outbound-addresses.ts';
import { type Connecting, Connections, type Connector } from './outbound-connections.ts';

export type { Connecting } from './outbound-connections.ts';

/** What an answer is told to while it arrives; `undici` documents the calls. */
export type AnswerHandler = Dispatcher.DispatchHandler & {
  /** Told at once, before anything is sent, of the connection that the call takes. */
  onConnecting?(connecting: Connecting): void;
};
export type AnswerController = Dispatcher.DispatchController;

export type OutboundCall = {
  /** `https://host[:port]`, as `URL.origin` spells it. */
  origin: string;
  /** Path and query as they are to be sent, byte for byte. */
  path: string;
  method: string;
  /** Names and values in turn; repeated names stay repeated. */
  headers: string[];
  body: Buffer | Readable | null;
  /** Whether the call is of an integration with test credentials, which alone may reach the sandbox. */
  isTest: boolean;
  /** How long the answer's head, and then each part of the body, may take. */
  headersTimeoutMs: number;
  bodyIdleTimeoutMs: number;
};

type FetchInit = {
  method: string;
  headers: Record<string, string>;
  body?: string;
  redirect: 'manual';
  signal: AbortSignal;
};
type FetchAnswer = {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  readonly body: AsyncIterable<Uint8Array> | null;
};
/** `entries` in lower case, each name once. */
type WholeAnswer = FetchAnswer & {
  readonly headers: { get(name: string): string | null; entries(): [name: string, value: string][] };
};

export type Outbound = {
  /**
   * Sends one call and reports what comes back to the handler as it arrives. Follows no redirect, decodes nothing,
   * repeats nothing. Every failure goes to `onResponseError`; an address that may not be reached is the AppError
   * `address_not_allowed`, and nothing was sent.
   */
  dispatch(call: OutboundCall, handler: AnswerHandler): void;
  /**
   * A fetch for small exchanges such as token calls. Follows no redirect and decodes nothing; the caller's signal
   * ends it, the caller limits what it reads. Throws `address_not_allowed` as an AppError.
   */
  fetchFor(caller: {
    isTest: boolean;
    /** `providers` where none is named. */
    purpose?: OutboundPurpose;
  }): (url: string, init: FetchInit) => Promise<FetchAnswer>;
  /** As `fetchFor` without test credentials, for who passes the whole answer on. */
  fetchWhole(url: string, init: FetchInit): Promise<WholeAnswer>;
  /**
   * Throws `address_not_allowed` where an address to which events are going to be delivered can be judged now: it stands in
   * the URL, or is a name of this machine. Any other name is judged at each connection, as every address is.
   */
  requireReachable(url: URL): void;
  /** Cuts what still runs and resolves when all sockets are closed. */
  close(): Promise<void>;
};

type Settings = {
  /** What may be reached although it is not public, and over plain http. */
  allow: readonly AllowedRange[];
  /** Its exact origin, `http://host:port`. */
  sandbox?: { origin: string };
  /** How names become addresses; the system's resolver when absent. */
  resolve?: Resolve;
};

/** All addresses of a name. */
type Resolve = (
  hostname: string,
  options: LookupOptions & { all: true },
  callback: (error: Error | null, addresses: LookupAddress[]) => void,
) => void;

/** The longest that anybody may wait for a connection; who waits gives up earlier. */
const connectTimeoutMs = 120_000;
/** Larger header sections than this are a fault of the provider's. */
const maxHeaderBytes = 64 * 1024;

/** The guarded way out. `close` it when the service stops. */
export function createOutbound({ allow, sandbox, resolve = lookup }: Settings): Outbound {
  // HTTP/1.1 alone: over HTTP/2 neither the case of header names nor a bare path would stay as sent.
  const options = { allowH2: false, maxHeaderSize: maxHeaderBytes } as const;
  const connections = new Connections();
  const agentBy = (connect: Connector) => new Agent({ ...options, factory: connections.factoryBy(connect) });
  // One for each purpose, so that no call finds open sockets in the pool that another purpose alone may have.
  const guarded = new Map(
    outboundPurposes.map((purpose) => [purpose, agentBy(guardedConnector({ allow, purpose, resolve }))]),
  );
  // An agent of its own, so that no other call finds the sandbox's open sockets in the pool.
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

  async function fetchBy(
    url: string,
    {
      method,
      headers,
      body,
      signal,
      isTest,
      purpose,
    }: FetchInit & { isTest: boolean; purpose: OutboundPurpose },
  ): Promise<WholeAnswer> {
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
    try {
      const answer = await agentFor({ origin, path, isTest }, purpose).request(options);
      return { status: answer.statusCode, headers: namedHeaders(answer.headers), body: answer.body };
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
        agentFor(call, 'providers').dispatch(options, handler);
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
      // Whatever a name leads to, plain http goes to the operator's own ranges alone.
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
      const destroyed = Promise.all([...guarded.values(), toSandbox].map((agent) => agent.destroy()));
      connections.giveUpAll();
      await destroyed;
    },
  };
}

/** Stands for the controller of a call that never got as far as a socket. */
const neverStarted: AnswerController = {
  aborted: true,
  paused: false,
  reason: null,
  abort() {},
  pause() {},
  resume() {},
};

/**
 * Connects where the address may be reached. The address that was checked is the one connected to: a name is resolved
 * once, by us, and an answer that holds one forbidden address is refused whole.
 */
function guardedConnector({
  allow,
  purpose,
  resolve,
}: Pick<Settings, 'allow'> & { purpose: OutboundPurpose; resolve: Resolve }): Connector {
  const connectors = new Map<string, Connector>();
  // Plain http shows credentials to everyone on the way, so it stays inside the operator's own ranges.
  function connectorOf(protocol: string, port: number): Connector {
    const isReachable = (address: string) =>
      (protocol === 'https:' && isPublicAddress(address)) || isCovered(allow, { address, port, purpose });
    return connectorTo(isReachable, resolve);
  }
  return (options, callback) => {
    const { protocol } = options;
    const port = portOf(protocol, options.port);
    // Ports that no range names are judged alike.
    const key = protocol + (allow.some((range) => range.port === port) ? port : '');
    const connect = connectors.get(key) ?? connectorOf(protocol, port);
    connectors.set(key, connect);
    return connect(options, callback);
  };
}

/** As a URL has it: empty where it is that of the protocol. */
function portOf(protocol: string, port: string): number {
  return Number(port) || (protocol === 'https:' ? 443 : 80);
}

function connectorTo(isReachable: (address: string) => boolean, resolve: Resolve): Connector {
  const connect = unguardedConnector(guardedLookup(isReachable, resolve));
  return (options, callback) => {
    // An address that stands in the URL is connected to without a look-up.
    const isRefused = isIP(options.hostname) !== 0 && !isReachable(options.hostname);
    if (!isRefused) return connect(options, callback);
    process.nextTick(callback, refusal(options.hostname), null);
    return undefined;
  };
}

function unguardedConnector(lookup?: LookupFunction): Connector {
  // It returns the socket, which its types do not say.
  return buildConnector({
    allowH2: false,
    timeout: connectTimeoutMs,
    ...(lookup && { lookup }),
  }) as Connector;
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
    `${host} is a private, loopback or reserved address, or asks for plain http. ` +
      'TRELLIS_OUTBOUND_ALLOW can permit a range.',
  );
}

const loopbackNames = new Set(['localhost', '127.0.0.1', '[::1]']);

/** Tells whether an origin can mean this server, by whichever name of this machine. */
function sameHostAs(server: URL): (origin: string) => boolean {
  // Calls go to few origins, over and over.
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

/** Whether a server that decodes or normalises more than it should could read the path as one of `/_sandbox`. */
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

function namedHeaders(headers: Record<string, string | string[] | undefined>): WholeAnswer['headers'] {
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
