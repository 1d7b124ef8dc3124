import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';

export type Sent = {
  method: string;
  /** As it goes on the wire, with its query: nothing of it is normalised. */
  path: string;
  headers?: Record<string, string> | undefined;
  body?: Uint8Array | string | undefined;
  signal?: AbortSignal | undefined;
};
export type Received = {
  status: number;
  statusText: string;
  /** Names in lower case; what came several times stands behind commas. */
  headers: Record<string, string>;
  body: Buffer;
};

/** No answer came, or not the whole of it. */
export class Unreachable extends Error {
  override name = 'Unreachable';
}

/** One HTTP request to an origin, and its whole answer. Follows no redirect. Throws `Unreachable` where none came. */
export function exchange(origin: string, sent: Sent): Promise<Received> {
  const { method, path, headers = {}, body, signal } = sent;
  const base = new URL(origin);
  const send = base.protocol === 'https:' ? httpsRequest : httpRequest;
  return new Promise((resolve, reject) => {
    const fail = (error: Error) =>
      reject(
        signal?.aborted ? signal.reason : new Unreachable(`${origin} cannot be reached: ${reasonOf(error)}`),
      );
    const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
    const options = {
      ...{ method, path, signal },
      ...{ protocol: base.protocol, hostname: base.hostname.replace(/^\[|\]$/g, ''), port: base.port },
      headers: { ...headers, ...length },
    };
    const request = send(options, (answer) => {
      wholeOf(answer).then(resolve, fail);
    });
    request.on('error', fail);
    request.end(body);
  });
}

async function wholeOf(answer: IncomingMessage): Promise<Received> {
  const parts: Uint8Array[] = [];
  for await (const part of answer) parts.push(part as Uint8Array);
  const headers = Object.entries(answer.headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, Array.isArray(value) ? value.join(', ') : value]],
  );
  return {
    status: answer.statusCode ?? 0,
    statusText: answer.statusMessage ?? '',
    headers: Object.fromEntries(headers),
    body: Buffer.concat(parts),
  };
}

/** Where a name has several addresses there is an error for each, and none for all. */
function reasonOf(error: Error): string {
  const [first] = error instanceof AggregateError ? error.errors : [error];
  return (first as Error).message;
}
