/**
 * The way of a run's calls into the proxy: the same that everybody's take, over a server that listens nowhere.
 *
 * Each call is a pair of streams in memory, handed to the server as its connection. So no other process can call, and
 * what a call carries as its key is good here alone, and for one run.
 */
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { type Duplex, duplexPair, Readable } from 'node:stream';
import type { Brand } from '../../brand.ts';
import { AppError, type ErrorCode, errorCatalogue } from '../../errors.ts';
import type { AuthenticateCall } from '../../http/authorize.ts';
import type { KeyCaller } from '../../http/caller.ts';
import { readRetryAfter } from '../../http/retry-after.ts';
import type { RequestInterceptor } from '../../http/server.ts';
import { type Cause, currentCause } from '../../tracing/cause.ts';

/** Whose calls these are. */
type ProxyUser = {
  environmentId: number;
  environment: string;
  integrationKey: string;
  connectionId: string;
  /** Another connection that has the ID by now is another account. */
  connectionRow: number;
  /** Calls of what nobody waits for leave the provider's quota to those that somebody does. */
  priority: 'background' | 'interactive';
};

export type ProxiedCall = {
  method: string;
  endpoint: string;
  /** Without the question mark. */
  query: string;
  headers: Record<string, string>;
  retries?: number | undefined;
  retryOn?: readonly number[] | undefined;
  baseUrlOverride?: string | undefined;
  decompress?: boolean | undefined;
  body: AsyncIterable<Uint8Array> | undefined;
  signal: AbortSignal;
  /** Asked before each attempt, also the one behind a wait; what it throws ends the call. */
  admit?: (() => Promise<void>) | undefined;
};

type ProxiedAnswer = {
  status: number;
  statusText: string;
  headers: Record<string, string>;
  body: AsyncIterable<Uint8Array>;
};

export type InnerProxy = {
  /**
   * Sends one call. A quota that is used up is waited for, as long as the signal lasts. Throws what the proxy itself says
   * is wrong, as the AppError that it is; whatever the provider answers is an answer.
   */
  call(user: ProxyUser, call: ProxiedCall): Promise<ProxiedAnswer>;
  /** Breaks off what is under way. */
  close(): void;
};

type Deps = {
  brand: Brand;
  /** Makes the proxy with this way to tell who calls, and what for. */
  createFront: (
    authenticate: AuthenticateCall,
    causeOf: (request: Pick<IncomingMessage, 'headers'>) => Cause | undefined,
  ) => RequestInterceptor;
  /** How long the proxy itself waits for the quota, in its own line: the longest that it takes unless told otherwise. */
  quotaWaitS?: number;
};

/** The maximum of a request's body that is kept, so that the body can be sent again after a wait. */
const maxKeptBytes = 4 * 1024 * 1024;
/** The same for the calls of all runs together, small bodies excepted. A body beyond the maximum is not kept. */
const maxKeptTogether = 32 * 1024 * 1024;
const smallBytes = 64 * 1024;
const maxQuotaWaitS = 60;
const minPauseMs = 250;

export function createInnerProxy({ brand, createFront, quotaWaitS = maxQuotaWaitS }: Deps): InnerProxy {
  const callers = new Map<string, KeyCaller>();
  const refuse = (): never => {
    throw new AppError('unknown_account');
  };
  /** By the same secrets: what a run calls is part of it, whatever the streams in between know. */
  const causes = new Map<string, Cause>();
  const interceptor = createFront(
    {
      key: (secret) => callers.get(secret) ?? refuse(),
      ticket: refuse,
    },
    ({ headers }) => causes.get(headers.authorization?.slice('Bearer '.length) ?? ''),
  );
  const server = createServer(interceptor.handle);
  const open = new Set<Duplex>();

  function connect(): Duplex {
    const [ours, theirs] = duplexPair();
    for (const side of [ours, theirs]) {
      open.add(side);
      side.on('close', () => open.delete(side));
      // The reader of the call receives the error of a broken end.
      side.on('error', () => {});
    }
    server.emit('connection', theirs);
    return ours;
  }

  async function once(user: ProxyUser, call: Omit<ProxiedCall, 'body'> & { body: Readable | Buffer }) {
    const secret = crypto.randomUUID();
    const cause = currentCause();
    if (cause !== undefined) causes.set(secret, cause);
    callers.set(secret, {
      kind: 'key',
      environmentId: user.environmentId,
      environment: user.environment,
      keyId: 0,
      scopes: new Set(['proxy:read', 'proxy:write']),
      connectionRow: user.connectionRow,
    });
    try {
      return await exchange(connect, {
        path: pathOf(call),
        headers: { ...headersOf(brand, { user, call, secret }), 'quota-wait': String(quotaWaitS) },
        call,
      });
    } finally {
      callers.delete(secret);
      causes.delete(secret);
    }
  }

  return {
    async call(user, call) {
      const body = await readAhead(call.body);
      try {
        for (;;) {
          await call.admit?.();
          const answer = await once(user, { ...call, body: body.stream() });
          const fault = await faultOf(answer, brand);
          if (fault === undefined) return answerFrom(answer);
          if (fault.code !== 'quota_exhausted' || !body.isWhole) throw fault;
          await pause(Math.max(minPauseMs, (fault.retryAfterS ?? 1) * 1000), call.signal);
        }
      } finally {
        body.end();
      }
    },
    close() {
      for (const side of open) side.destroy();
      server.close();
    },
  };
}

let keptBytes = 0;

/** Up to `maxKeptBytes` of a body are read before the call begins: what is whole by then can be sent again. */
async function readAhead(body: AsyncIterable<Uint8Array> | undefined) {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  const end = () => {
    keptBytes -= bytes;
    bytes = 0;
  };
  const rest = body?.[Symbol.asyncIterator]();
  try {
    for (let next = await rest?.next(); next !== undefined && !next.done; next = await rest?.next()) {
      parts.push(next.value);
      bytes += next.value.byteLength;
      keptBytes += next.value.byteLength;
      const isTooMuch = bytes > maxKeptBytes || (bytes > smallBytes && keptBytes > maxKeptTogether);
      if (isTooMuch) return { isWhole: false, stream: () => Readable.from(chained(parts, rest!)), end };
    }
  } catch (error) {
    end();
    throw error;
  }
  const whole = Buffer.concat(parts);
  return { isWhole: true, stream: () => whole, end };
}

async function* chained(parts: readonly Uint8Array[], rest: AsyncIterator<Uint8Array>) {
  yield* parts;
  for (let next = await rest.next(); !next.done; next = await rest.next()) yield next.value;
}

function pathOf({ endpoint, query }: Pick<ProxiedCall, 'endpoint' | 'query'>): string {
  const path = `/proxy/${endpoint.replace(/^\/+/, '')}`;
  if (query === '') return encoded(path);
  return encoded(`${path}${path.includes('?') ? '&' : '?'}${query}`);
}

/** What may not stand in a request line is sent as clients send it; what is encoded already stays as it is. */
function encoded(path: string): string {
  // A lone surrogate has no encoding.
  return path.toWellFormed().replace(/[^\x21-\x7e]+/g, encodeURIComponent);
}

function headersOf(
  brand: Brand,
  {
    user,
    call,
    secret,
  }: { user: ProxyUser; call: Omit<ProxiedCall, 'body'> & { body: unknown }; secret: string },
): Record<string, string> {
  const given = Object.entries(call.headers).map(([name, value]) => [
    `${brand.proxyHeaderPrefix}${name}`,
    value,
  ]);
  const { retries, retryOn, baseUrlOverride, decompress, body } = call;
  return {
    ...Object.fromEntries(given),
    authorization: `Bearer ${secret}`,
    'provider-config-key': user.integrationKey,
    'connection-id': user.connectionId,
    ...(user.priority === 'background' && { [`${brand.word}-is-sync`]: 'true' }),
    ...(retries !== undefined && { retries: String(retries) }),
    ...(retryOn !== undefined && retryOn.length > 0 && { 'retry-on': retryOn.join(',') }),
    ...(baseUrlOverride !== undefined && { 'base-url-override': baseUrlOverride }),
    ...(decompress !== false && { decompress: 'true' }),
    ...(Buffer.isBuffer(body) && body.length > 0 && { 'content-length': String(body.length) }),
  };
}

function exchange(
  connect: () => Duplex,
  {
    path,
    headers,
    call,
  }: {
    path: string;
    headers: Record<string, string>;
    call: { method: string; body: Readable | Buffer; signal: AbortSignal };
  },
): Promise<IncomingMessage> {
  const { method, body, signal } = call;
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const createConnection = () => connect() as Socket;
  const sent = httpRequest({ host: 'inner', method, path, headers, createConnection, signal }, resolve);
  sent.on('error', (error) => reject(new AppError('upstream_unknown_outcome', undefined, { cause: error })));
  if (Buffer.isBuffer(body)) sent.end(body);
  else {
    body.on('error', (error) => sent.destroy(error));
    body.pipe(sent);
  }
  return promise;
}

/** The proxy's own word, where the answer is none of the provider's. */
async function faultOf(answer: IncomingMessage, brand: Brand): Promise<AppError | undefined> {
  const code = answer.headers[brand.header('Error').toLowerCase()];
  if (typeof code !== 'string' || !Object.hasOwn(errorCatalogue, code)) return undefined;
  const error = readFault(Buffer.concat(await answer.toArray()).toString());
  const retryAfterMs = readRetryAfter(answer.headers['retry-after'], Date.now());
  return new AppError(code as ErrorCode, error.message, {
    ...(error.payload !== undefined && { payload: error.payload }),
    ...(error.errors !== undefined && { errors: error.errors }),
    ...(retryAfterMs !== undefined && { retryAfterS: retryAfterMs / 1000 }),
  });
}

/** What it says of the fault; nothing where the answer to a HEAD has no body, or it broke off. */
function readFault(body: string): { message?: string; payload?: unknown; errors?: [] } {
  try {
    return (JSON.parse(body) as { error: object }).error;
  } catch {
    return {};
  }
}

function answerFrom(answer: IncomingMessage): ProxiedAnswer {
  const headers = Object.entries(answer.headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, Array.isArray(value) ? value.join(', ') : value]],
  );
  return {
    status: answer.statusCode ?? 0,
    statusText: answer.statusMessage ?? '',
    headers: Object.fromEntries(headers),
    body: answer,
  };
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const stop = () => reject(signal.reason);
  const timer = setTimeout(() => {
    signal.removeEventListener('abort', stop);
    resolve();
  }, ms);
  signal.addEventListener(
    'abort',
    () => {
      clearTimeout(timer);
      stop();
    },
    { once: true },
  );
  return promise;
}
