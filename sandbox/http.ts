/**
 * The HTTP server of the sandbox: routing, bodies with a limit, and responses that may be cut off on purpose.
 */
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';

/** The account and client of a request, as far as they are known, and the faults applied to it. */
export interface About {
  sub?: string | undefined;
  clientId?: string | undefined;
  faults: string[];
}

/** A request whose body has been read. */
export interface Incoming {
  method: string;
  path: string;
  query: URLSearchParams;
  rawUrl: string;
  headers: IncomingHttpHeaders;
  body: Buffer;
  /** Aborts when the client disconnects or the sandbox closes. */
  signal: AbortSignal;
  /** Filled in by the handler, for the faults and the list of calls. */
  about: About;
}

/** A response. `cut` closes the connection: before any byte is sent, or in the middle of the body. */
export interface Reply {
  status: number;
  headers: Record<string, string | string[]>;
  body: string | Buffer;
  cut?: 'before' | 'halfway';
}

/** A route. `refuse` checks the head of a request before the body is read. */
export interface Route {
  bodyLimitBytes: number;
  refuse?: (head: { method: string; headers: IncomingHttpHeaders }) => Reply | undefined;
  answer: (request: Incoming) => Promise<Reply> | Reply;
}

/** Finds the route of a method and path; undefined is a 404. */
export type FindRoute = (method: string, path: string) => Route | undefined;

/** Pretty-printed JSON, as Google sends it. */
export function json(status: number, value: unknown, headers: Record<string, string> = {}): Reply {
  return {
    status,
    headers: { 'content-type': 'application/json; charset=utf-8', ...headers },
    body: `${JSON.stringify(value, null, 2)}\n`,
  };
}

/** A connection reset without a response. */
export const resetReply: Reply = { status: 500, headers: {}, body: '', cut: 'before' };

/** Google's response to an unknown path or method: HTML, never a 405. */
function notFound(path: string): Reply {
  const shown = path.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
  return {
    status: 404,
    headers: { 'content-type': 'text/html; charset=UTF-8', 'referrer-policy': 'no-referrer' },
    body: `<!DOCTYPE html>
<html lang=en>
  <meta charset=utf-8>
  <title>Error 404 (Not Found)!!1</title>
  <p><b>404.</b> <ins>That’s an error.</ins>
  <p>The requested URL <code>${shown}</code> was not found on this server.  <ins>That’s all we know.</ins>
`,
  };
}

/**
 * A server with the routes of `findRoute`.
 *
 * A Host header that is not allowed gets 421, which prevents DNS rebinding. An error thrown by a route becomes a 500 and is
 * logged.
 */
export function createHttpServer(options: {
  findRoute: FindRoute;
  isAllowedHost: (host: string) => boolean;
  closing: AbortSignal;
  log: (message: string, error: unknown) => void;
}): Server {
  const routeFor = (head: { method: string; path: string; headers: IncomingHttpHeaders }): Route | Reply => {
    if (!options.isAllowedHost(head.headers.host ?? '')) return hostNotAllowed;
    const route = options.findRoute(head.method, head.path);
    if (route === undefined) return notFound(head.path);
    return route.refuse?.(head) ?? route;
  };

  const answer = async (message: IncomingMessage, signal: AbortSignal): Promise<Reply> => {
    const { headers, method = 'GET', url: rawUrl = '/' } = message;
    const path = rawUrl.split('?', 1)[0]!;
    const route = routeFor({ method, path, headers });
    const body = await readBody(message, 'answer' in route ? route.bodyLimitBytes : 0);
    if (!('answer' in route)) return route;
    if (body === undefined) return bodyTooLarge;
    const query = new URLSearchParams(rawUrl.slice(path.length));
    return route.answer({ method, path, query, rawUrl, headers, body, signal, about: { faults: [] } });
  };

  return createServer((message, response) => {
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const signal = AbortSignal.any([gone.signal, options.closing]);
    answer(message, signal)
      .catch((error: unknown): Reply => {
        if (!signal.aborted) options.log(`${message.method} ${message.url?.split('?', 1)[0]} failed`, error);
        return internalError;
      })
      .then((reply) => writeReply(response, reply));
  });
}

const hostNotAllowed = json(421, {
  error: { code: 'host_not_allowed', message: 'The sandbox does not accept this Host header.' },
});
const bodyTooLarge = json(413, {
  error: { code: 'body_too_large', message: 'The body exceeds the size limit of this route.' },
});
const internalError = json(500, {
  error: { code: 500, message: 'Internal error encountered.', status: 'INTERNAL' },
});

// Bytes above the limit are read and dropped: a response during the upload would reset the connection, and the client would
// not receive it. Node ends requests that take over 5 minutes.
async function readBody(message: IncomingMessage, limitBytes: number): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of message as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length;
    if (sizeBytes <= limitBytes) chunks.push(chunk);
  }
  return sizeBytes <= limitBytes ? Buffer.concat(chunks) : undefined;
}

function writeReply(response: ServerResponse, reply: Reply): void {
  const { socket } = response;
  if (socket === null || socket.destroyed) return;
  if (reply.cut === 'before') {
    socket.resetAndDestroy();
    return;
  }
  const body = Buffer.isBuffer(reply.body) ? reply.body : Buffer.from(reply.body);
  // 204 and 304 carry neither a body nor a length (RFC 9110 §8.6).
  const length = reply.status === 204 || reply.status === 304 ? {} : { 'content-length': body.length };
  response.writeHead(reply.status, { ...reply.headers, ...length });
  if (reply.cut === 'halfway') response.write(body.subarray(0, body.length >> 1), () => socket.destroy());
  else response.end(body);
}
