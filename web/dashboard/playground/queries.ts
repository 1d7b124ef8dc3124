import { type QueryClient, queryOptions } from '@tanstack/react-query';
import { brand, call, environmentHeader, Fault } from '../../api/client.ts';
import { connectionsQuery } from '../connections/queries.ts';
import { providerQuery } from '../integrations/queries.ts';
import { bodyOf, type Body as ReadBody } from './answer.ts';
import { suggestionsFor } from './calls.ts';
import type { ProxiedRequest } from './request.ts';

/** The connection of the call. */
export type Caller = { environment: string; integration: string; connection: string };

/** The response of the provider or the service. Times are in ms since the call was sent, measured in the browser. */
export type ProxiedAnswer = {
  status: number;
  headers: [string, string][];
  /** The error code of the service; undefined: the provider responded. */
  ownError: string | undefined;
  bytes: Blob;
  body: ReadBody;
  headMs: number;
  totalMs: number;
  request: ProxiedRequest;
  caller: Caller;
  /** The last log entry before the call; undefined if it could not be read. */
  logBefore: string | undefined;
};

export type Progress = { status: number | undefined; receivedBytes: number };

/** The largest response that a page can hold. */
const maxBytes = 100_000_000;

/** The prefix of headers that are always passed to the provider. */
export const passOnPrefix = () => `${brand()}-proxy-`;

export const suggestionsQuery = (provider: string) =>
  queryOptions({
    queryKey: ['suggestions', provider],
    queryFn: () => suggestionsFor(provider),
    staleTime: Number.POSITIVE_INFINITY,
  });

/** Sends a call through the proxy as the signed-in user. Throws `Fault` without a complete response. */
export async function sendCall(
  caller: Caller,
  request: ProxiedRequest,
  { signal, onProgress }: { signal: AbortSignal; onProgress: (progress: Progress) => void },
): Promise<ProxiedAnswer> {
  const logBefore = await newestEntry(caller, signal);
  const startedAt = performance.now();
  const response = await fetch(`/proxy${request.target}`, {
    method: request.method,
    headers: headersOf(caller, request),
    ...(request.body !== undefined && { body: request.body }),
    credentials: 'same-origin',
    cache: 'no-store',
    redirect: 'manual',
    signal,
  }).catch(toFault);
  if (response.type === 'opaqueredirect') {
    throw new Fault({
      code: 'redirect',
      message: 'The provider answered with a redirect, which a browser follows or hides. Use curl to see it.',
      status: 0,
    });
  }
  const headMs = performance.now() - startedAt;
  const bytes = await readAll(response, (receivedBytes) =>
    onProgress({ status: response.status, receivedBytes }),
  ).catch(toFault);
  const totalMs = performance.now() - startedAt;
  return {
    status: response.status,
    headers: [...response.headers],
    ownError: response.headers.get(`x-${brand()}-error`) ?? undefined,
    bytes,
    body: bodyOf(new Uint8Array(await bytes.arrayBuffer()), response.headers.get('content-type') ?? ''),
    headMs,
    totalMs,
    request,
    caller,
    logBefore,
  };
}

function headersOf({ environment, integration, connection }: Caller, request: ProxiedRequest): Headers {
  const headers = new Headers();
  for (const [name, value] of request.headers) headers.append(name, value);
  headers.delete('provider-config-key');
  headers.set('integration-id', integration);
  headers.set('connection-id', connection);
  headers.set(environmentHeader(), environment);
  return headers;
}

async function readAll(response: Response, onProgress: (receivedBytes: number) => void): Promise<Blob> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  onProgress(0);
  for (const reader = response.body?.getReader(); reader !== undefined; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
    if (size > maxBytes) {
      void reader.cancel();
      throw new Fault({
        code: 'too_large',
        message: 'The answer has more than 100 MB. Use curl for answers of this size.',
        status: response.status,
      });
    }
    onProgress(size);
  }
  return new Blob(parts, { type: 'application/octet-stream' });
}

function toFault(error: unknown): never {
  if (error instanceof Fault || (error instanceof DOMException && error.name === 'AbortError')) throw error;
  throw new Fault({
    code: 'broken_off',
    message: 'There is no complete response: the connection was lost, or the service does not respond.',
    status: 0,
  });
}

/** The call is sent even if the log cannot be read. */
async function newestEntry(
  { environment, connection }: Caller,
  signal: AbortSignal,
): Promise<string | undefined> {
  const query = { type: 'proxy', connection_id: connection, limit: 1 } as const;
  const newest = await call('GET /operations', { environment, signal, query }).catch(() => undefined);
  signal.throwIfAborted();
  return newest && (newest.operations[0]?.id ?? '');
}

/** The polling interval and limit for the log entry of a call, which is written shortly after the response. */
const everyMs = 400;
const maxTries = 10;

/** The newest active connection whose provider has an HTTP API; without one, the newest connection; null without any. */
export const newestCallableQuery = (environment: string, queries: QueryClient) =>
  queryOptions({
    queryKey: [environment, 'connections', 'newest callable'],
    queryFn: async () => {
      const { connections } = await queries.fetchQuery(connectionsQuery(environment, { limit: 20 }));
      for (const connection of connections.filter(({ health }) => health.status === 'active')) {
        const provider = await queries
          .ensureQueryData(providerQuery(environment, connection.provider))
          .catch(() => undefined);
        if (provider?.proxy !== undefined) return connection;
      }
      return connections[0] ?? null;
    },
  });

/** The log entry of a call: the first one of this connection, method and path after the previous entry. */
export const entryQuery = (answer: ProxiedAnswer) =>
  queryOptions({
    queryKey: [answer.caller.environment, 'operations', 'of call', answer.logBefore, answer.request],
    queryFn: async ({ signal }) => {
      const { environment, connection } = answer.caller;
      const query = { type: 'proxy', connection_id: connection, limit: 20 } as const;
      const { operations } = await call('GET /operations', { environment, signal, query });
      const pathOf = (target: string) => target.split('?', 1)[0];
      const found = operations.findLast(
        ({ id, method, path, http_status: status }) =>
          id > (answer.logBefore ?? '') &&
          method === answer.request.method &&
          status === answer.status &&
          pathOf(path ?? '') === pathOf(answer.request.target),
      );
      return found ?? null;
    },
    enabled: answer.logBefore !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    refetchInterval: ({ state: { data, dataUpdateCount } }) =>
      data != null || dataUpdateCount >= maxTries ? false : everyMs,
  });
