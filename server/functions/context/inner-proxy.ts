/**
 * Calls of a run through the proxy: they take the path of all other callers, over an HTTP server that does not listen.
 *
 * Each call is a pair of streams in memory, which the server gets as a connection. So no other process can call, and the key
 * of a call is valid only in this process, for one call.
 */
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { type Duplex, duplexPair, Readable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import type { Brand } from '../../brand.ts';
import { AppError, type ErrorCode, errorCatalogue } from '../../errors.ts';
import type { AuthenticateCall, KeyCaller } from '../../http/auth/caller.ts';
import { readRetryAfter } from '../../http/retry-after.ts';
import type { RequestInterceptor } from '../../http/server.ts';
import { type Cause, currentCause } from '../../tracing/tracing.ts';

/** The caller, and the connection of its calls. */
type ProxyUser = {
  environmentId: number;
  environment: string;
  integrationKey: string;
  connectionId: string;
  /** The row of the connection: another row with the same ID is another account. */
  connectionRow: number;
  /** Calls in the background leave the provider's quota to calls with a waiting caller. */
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
  /** Called before each attempt, also after a wait. If it throws, the call ends with that error. */
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
   * Sends one call, and waits for the provider's quota until the signal aborts. Throws the errors of the proxy itself as
   * AppErrors; every response of the provider is an answer.
   */
  call(user: ProxyUser, call: ProxiedCall): Promise<ProxiedAnswer>;
  /** Aborts the calls under way. */
  close(): void;
};

type InnerProxyDeps = {
  brand: Brand;
  /** Creates the proxy with this authentication, and with the trace cause of a request. */
  createFront: (
    authenticate: AuthenticateCall,
    causeOf: (request: Pick<IncomingMessage, 'headers'>) => Cause | undefined,
  ) => RequestInterceptor;
  /** How long the proxy waits for the quota in its own queue. */
  quotaWaitS?: number;
};

/** The maximum of a request's body that is kept, so that the body can be sent again after a wait. */
const maxKeptBytes = 4 * 1024 * 1024;
/** The same for the calls of all runs together, small bodies excepted. A body beyond the maximum is not kept. */
const maxKeptTogether = 32 * 1024 * 1024;
const smallBytes = 64 * 1024;
const maxQuotaWaitS = 60;
const minPauseMs = 250;

export function createInnerProxy({
  brand,
  createFront,
  quotaWaitS = maxQuotaWaitS,
}: InnerProxyDeps): InnerProxy {
  /** Calls under way, by their secrets. */
  const calls = new Map<string, { caller: KeyCaller; cause: Cause | undefined }>();
  const refuse = (): never => {
    throw new AppError('unknown_account');
  };
  const interceptor = createFront(
    { key: (secret) => calls.get(secret)?.caller ?? refuse(), ticket: refuse },
    // The streams in between do not carry the async context.
    ({ headers }) => calls.get(headers.authorization?.slice('Bearer '.length) ?? '')?.cause,
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
    const { environmentId, environment, connectionRow } = user;
    const scopes = new Set(['proxy:read', 'proxy:write'] as const);
    const caller = { kind: 'key', environmentId, environment, keyId: 0, scopes, connectionRow } as const;
    calls.set(secret, { caller, cause: currentCause() });
    try {
      return await exchange(connect, {
        path: pathOf(call),
        headers: { ...headersOf(brand, { user, call, secret }), 'quota-wait': String(quotaWaitS) },
        call,
      });
    } finally {
      calls.delete(secret);
    }
  }

  return {
    async call(user, call) {
      const body = await readAhead(call.body);
      try {
        for (;;) {
          await call.admit?.();
          const answer = await once(user, { ...call, body: body.stream() });
          const fault = await proxyError(answer, brand);
          if (fault === undefined) return answerFrom(answer);
          if (fault.code !== 'quota_exhausted' || !body.isWhole) throw fault;
          const { signal } = call;
          const pauseMs = Math.max(minPauseMs, (fault.retryAfterS ?? 1) * 1000);
          await pause(pauseMs, undefined, { signal }).catch(() => signal.throwIfAborted());
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

/** Reads up to `maxKeptBytes` of a body before the call begins. A body that ends within them can be sent again. */
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

/** Encodes characters that a request line cannot contain, as clients do. Encoded characters stay as they are. */
function encoded(path: string): string {
  // A lone surrogate has no encoding.
  return path.toWellFormed().replace(/[^\x21-\x7e]+/g, encodeURIComponent);
}

function headersOf(
  brand: Brand,
  of: { user: ProxyUser; call: Omit<ProxiedCall, 'body'> & { body: unknown }; secret: string },
): Record<string, string> {
  const { user, call, secret } = of;
  const { headers, retries, retryOn, baseUrlOverride, decompress, body } = call;
  const given = Object.entries(headers).map(([name, value]) => [`${brand.proxyHeaderPrefix}${name}`, value]);
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
  of: {
    path: string;
    headers: Record<string, string>;
    call: { method: string; body: Readable | Buffer; signal: AbortSignal };
  },
): Promise<IncomingMessage> {
  const { path, headers } = of;
  const { method, body, signal } = of.call;
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

/** The proxy's own error, if the response does not come from the provider. */
async function proxyError(answer: IncomingMessage, brand: Brand): Promise<AppError | undefined> {
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

/** The error in the body; empty if the response to a HEAD has no body, or if the body is incomplete. */
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
