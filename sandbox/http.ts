/**
 * The sandbox's HTTP floor: routes by method and path, bodies with a limit, answers written or broken on purpose.
 *
 * Knows nothing of OAuth, Sheets or the control routes; main.ts puts them together.
 */
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';

/** Whom a request concerns, as far as it is known by now, and which faults have struck it. */
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
  /** Aborts when the caller goes away or the sandbox closes: whatever waits must end then. */
  signal: AbortSignal;
  /** Empty at first; the handler fills it in, for the faults and for the list of calls. */
  about: About;
}

/** An answer. `cut` breaks the connection: before a byte is sent, or in the middle of the body. */
export interface Reply {
  status: number;
  headers: Record<string, string | string[]>;
  body: string | Buffer;
  cut?: 'before' | 'halfway';
}

/** How a request is answered. `refuse` looks at the head alone, before the body is read. */
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

/** A connection broken without a byte of answer. */
export const RESET: Reply = { status: 500, headers: {}, body: '', cut: 'before' };

/** Google's answer to a path or verb it does not know: HTML, never a 405. */
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
 * A server that answers by `findRoute`, for callers that name an allowed host.
 *
 * Other Host headers get 421: a web page that points its own name at 127.0.0.1 must not reach the sandbox.
 * An error thrown by a route is a 500 and goes to `log`.
 */
export function createHttpServer(options: {
  findRoute: FindRoute;
  isAllowedHost: (host: string) => boolean;
  closing: AbortSignal;
  log: (message: string, error: unknown) => void;
}): Server {
  const routeFor = (head: { method: string; path: string; headers: IncomingHttpHeaders }): Route | Reply => {
    if (!options.isAllowedHost(head.headers.host ?? '')) return HOST_NOT_ALLOWED;
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
    if (body === undefined) return BODY_TOO_LARGE;
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
        return INTERNAL;
      })
      .then((reply) => writeReply(response, reply));
  });
}

const HOST_NOT_ALLOWED = json(421, {
  error: { code: 'host_not_allowed', message: 'The sandbox does not answer to this Host header.' },
});
const BODY_TOO_LARGE = json(413, {
  error: { code: 'body_too_large', message: 'The body is larger than this route takes.' },
});
const INTERNAL = json(500, {
  error: { code: 500, message: 'Internal error encountered.', status: 'INTERNAL' },
});

// What goes over the limit is read and dropped: to answer while the caller still sends would reset the
// connection, and the caller would see that instead of the answer. Node ends requests that take over 5 minutes.
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
