/** Calls to the service, with its address and key. */
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { CommandContext } from './arguments.ts';

export type Sent = {
  method: string;
  /** The path with its query, sent without normalization. */
  path: string;
  headers?: Record<string, string> | undefined;
  body?: Uint8Array | string | undefined;
  signal?: AbortSignal | undefined;
};
export type Received = {
  status: number;
  statusText: string;
  /** Names in lower case. The values of a repeated header are joined by commas. */
  headers: Record<string, string>;
  body: Buffer;
};

/** An error of the service. `faults` are the lines to print; `errors` are the faults of single fields. */
type ApiError = { faults: string[]; status: number; code: string; errors: FieldFault[] };
export type FieldFault = { message: string; path: string[] };
type ApiResult = { body: unknown } | ApiError;

export type Api = {
  url: string;
  /** Throws `UnreachableError` if the service cannot be reached. */
  get(path: string, headers?: Record<string, string>): Promise<ApiResult>;
  post(path: string, body: object, headers?: Record<string, string>): Promise<ApiResult>;
  /** Sends any request with the key, and returns the response unchanged. */
  send(sent: Sent): Promise<Received>;
  /** The brand of the service: the word in the names of its headers and fields. */
  brand(): Promise<string>;
};

type ErrorBody = {
  error?: { code?: string; message?: string; errors?: FieldFault[] };
};

/** Uses TRELLIS_URL (default http://localhost:3003) and TRELLIS_SECRET_KEY. Throws if either is invalid, or if the key is missing. */
export function createApi(env: CommandContext['env']): Api {
  const url = (env.TRELLIS_URL ?? 'http://localhost:3003').replace(/\/+$/, '');
  const key = env.TRELLIS_SECRET_KEY;
  if (!key) throw new Error('TRELLIS_SECRET_KEY is not set. Set it to a secret key of the environment.');
  if (!/^[\x21-\x7e]+$/.test(key))
    throw new Error(
      'TRELLIS_SECRET_KEY contains characters that no key has, such as a space or a line break.',
    );
  if (!/^https?:/.test(url) || !URL.canParse(url)) throw new Error(`${url} is not the address of a service.`);
  const base = new URL(url);
  let brand: string | undefined;
  const send = async (sent: Sent): Promise<Received> => {
    const received = await sendRequest(base.origin, {
      ...sent,
      path: `${base.pathname.replace(/\/$/, '')}${sent.path}`,
      headers: { ...sent.headers, authorization: `Bearer ${key}` },
    });
    brand ??= brandIn(received.headers);
    return received;
  };
  return {
    url,
    send,
    get: async (path, headers) => parseResult(await send({ method: 'GET', path, headers })),
    post: async (path, body, headers) =>
      parseResult(
        await send({
          method: 'POST',
          path,
          body: JSON.stringify(body),
          headers: { ...headers, 'content-type': 'application/json' },
        }),
      ),
    async brand() {
      if (brand === undefined) await send({ method: 'GET', path: '/providers/none' });
      return brand ?? 'trellis';
    },
  };
}

/** Returns the body of a success. Throws an `Error` with the lines of an `ApiError`. */
export function requireBody<T>(result: ApiResult): T {
  if ('faults' in result) throw new Error(result.faults.join('\n'));
  return result.body as T;
}

/** Every response exposes the error header, `X-<Brand>-Error`, to pages of other origins; its name contains the brand. */
function brandIn(headers: Record<string, string>): string | undefined {
  return /\bX-(\w+)-Error\b/.exec(headers['access-control-expose-headers'] ?? '')?.[1]?.toLowerCase();
}

function parseResult({ status, body }: Received): ApiResult {
  const text = body.toString('utf8');
  try {
    const parsed: unknown = text === '' ? null : JSON.parse(text);
    return status < 300 ? { body: parsed } : { ...errorLines(parsed as ErrorBody | null, status), status };
  } catch {
    return {
      faults: [`The response of the service has the status ${status} and is not JSON.`],
      status,
      code: String(status),
      errors: [],
    };
  }
}

function errorLines(json: ErrorBody | null, status: number): Omit<ApiError, 'status'> {
  const { code = String(status), message = '', errors = [] } = json?.error ?? {};
  if (code === 'invalid_function')
    return { code, errors, faults: [...errors.map((one) => one.message), 'Nothing was deployed.'] };
  return {
    code,
    errors,
    faults: [`${message} (${code})`, ...errors.map((one) => `  ${one.path.join('.')}: ${one.message}`)],
  };
}

/** The response is missing or incomplete. */
export class UnreachableError extends Error {
  override name = 'UnreachableError';
}

/** Sends an HTTP request and reads the whole response. Follows no redirect. Throws `UnreachableError`, or the signal's reason. */
function sendRequest(origin: string, sent: Sent): Promise<Received> {
  const { method, path, headers = {}, body, signal } = sent;
  const base = new URL(origin);
  const send = base.protocol === 'https:' ? httpsRequest : httpRequest;
  return new Promise((resolve, reject) => {
    const fail = (error: Error) =>
      reject(
        signal?.aborted
          ? signal.reason
          : new UnreachableError(`${origin} cannot be reached: ${reasonOf(error)}`),
      );
    const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
    const options = {
      method,
      path,
      signal,
      protocol: base.protocol,
      hostname: base.hostname.replace(/^\[|\]$/g, ''),
      port: base.port,
      headers: { ...headers, ...length },
    };
    const request = send(options, (response) => {
      readResponse(response).then(resolve, fail);
    });
    request.on('error', fail);
    request.end(body);
  });
}

async function readResponse(response: IncomingMessage): Promise<Received> {
  const parts: Uint8Array[] = [];
  for await (const part of response) parts.push(part as Uint8Array);
  const headers = Object.entries(response.headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, Array.isArray(value) ? value.join(', ') : value]],
  );
  return {
    status: response.statusCode ?? 0,
    statusText: response.statusMessage ?? '',
    headers: Object.fromEntries(headers),
    body: Buffer.concat(parts),
  };
}

/** For a name with several addresses, the message of the first of the errors. */
function reasonOf(error: Error): string {
  const [first] = error instanceof AggregateError ? error.errors : [error];
  return (first as Error).message;
}
