import type { Routes } from '../../sdk/client/routes.ts';

/**
 * The client of the service's API, authenticated by the session cookie instead of a key. Only the `queries.ts` of a
 * page uses it.
 */
type Route = keyof Routes;
export type Answer<R extends Route> = Routes[R]['answer'];
export type Query<R extends Route> = Routes[R]['query'];
export type Body<R extends Route> = Routes[R]['body'];

/** Parts without required fields are optional. */
type Part<Name extends string, T> = [T] extends [Record<string, never> | undefined]
  ? unknown
  : [Record<string, never>] extends [T]
    ? { [N in Name]?: T }
    : { [N in Name]: T };
type Call<R extends Route> = { environment: string; signal?: AbortSignal } & Part<'path', Routes[R]['path']> &
  Part<'query', Routes[R]['query']> &
  Part<'headers', Routes[R]['headers']> &
  Part<'body', Routes[R]['body']>;

type UntypedCall = {
  environment?: string;
  signal?: AbortSignal;
  path?: Record<string, string>;
  query?: Record<string, unknown>;
  headers?: Record<string, string>;
  body?: unknown;
};

/** An error response of the service. */
export class Fault extends Error {
  readonly code: string;
  readonly status: number;
  readonly requestId: string | undefined;
  /** The seconds to wait before the next attempt, if the service gave them. */
  readonly retryAfterS: number | undefined;
  /** The errors of single fields. */
  readonly fields: { path: string; message: string }[];
  /** Additional data of the error, in the form that its author chose. */
  readonly payload: unknown;

  constructor(known: {
    code: string;
    message: string;
    status: number;
    requestId?: string | undefined;
    retryAfterS?: number | undefined;
    fields?: { path: string; message: string }[];
    payload?: unknown;
  }) {
    super(known.message);
    this.name = 'Fault';
    this.code = known.code;
    this.status = known.status;
    this.requestId = known.requestId;
    this.retryAfterS = known.retryAfterS;
    this.fields = known.fields ?? [];
    this.payload = known.payload;
  }
}

/** The raw response, for an export or a stream. Throws `Fault`, as `call` does. */
export async function request(route: string, given: UntypedCall = {}): Promise<Response> {
  const [method = 'GET', pattern = '/'] = route.split(' ');
  const path = pattern.replace(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(given.path?.[name] ?? ''),
  );
  const headers = new Headers(given.headers);
  if (!headers.has('accept')) headers.set('accept', 'application/json');
  if (given.environment !== undefined) headers.set(environmentHeader(), given.environment);
  if (given.body !== undefined) headers.set('content-type', 'application/json');
  const url = path + searchOf(given.query);
  const early = method === 'GET' ? takeEarly(`${given.environment} ${url}`) : undefined;
  const response = await (
    early ??
    fetch(url, {
      method,
      headers,
      credentials: 'same-origin',
      ...(given.body !== undefined && { body: JSON.stringify(given.body) }),
      ...(given.signal !== undefined && { signal: given.signal }),
    })
  ).catch((error: unknown) => {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new Fault({ code: 'unreachable', message: 'The service did not respond. Try again.', status: 0 });
  });
  if (!response.ok) throw faultOfResponse(response, await jsonOf(response));
  return response;
}

/** The response that the document has requested before this code was loaded (`dashboard/index.html`); only once. */
function takeEarly(request: string): Promise<Response> | undefined {
  const { early } = globalThis as { early?: Map<string, Promise<Response>> };
  const response = early?.get(request);
  early?.delete(request);
  return response;
}

export type ExportFormat = 'csv' | 'ndjson';
const acceptOf = { csv: 'text/csv', ndjson: 'application/x-ndjson' };

/**
 * All entries of a list as a file, which the browser stores on disk. Throws `Fault`, with the code `cut_off` if the export is
 * incomplete.
 */
export async function exportList(
  route: Route,
  { format, ...given }: UntypedCall & { format: ExportFormat },
): Promise<Blob> {
  const headers = { ...given.headers, accept: acceptOf[format] };
  const response = await request(route, { ...given, headers });
  return response.blob().catch(() => {
    throw new Fault({
      code: 'cut_off',
      message: 'The export ended early: the connection was lost.',
      status: 0,
    });
  });
}

/** Calls a route that the OpenAPI document leaves out: sign-in and users. Throws `Fault`, as `call` does. */
export async function send(route: string, given: UntypedCall = {}): Promise<unknown> {
  return jsonOf(await request(route, given));
}

async function jsonOf(response: Response): Promise<unknown> {
  const isJson = response.headers.get('content-type')?.includes('application/json') === true;
  return isJson ? await response.json().catch(() => undefined) : undefined;
}

/** Calls a route of the API. Throws `Fault`, with the code `unreachable` if the service cannot be reached. */
export const call = send as unknown as <R extends Route>(route: R, options: Call<R>) => Promise<Answer<R>>;

function faultOfResponse(response: Response, answer: unknown): Fault {
  const body = (answer ?? {}) as { error?: Record<string, unknown>; code?: string; message?: string };
  // Sign-in returns code and message at the top level, all other routes below `error`.
  const error = typeof body.error === 'object' ? body.error : body;
  const retryAfter = response.headers.get('retry-after') ?? '';
  const errors = (error as { errors?: { path?: string[] | string; message?: string }[] }).errors ?? [];
  return new Fault({
    code: String(error.code ?? 'unknown').toLowerCase(),
    message: String(error.message ?? `The service responded with ${response.status}.`),
    status: response.status,
    requestId: response.headers.get('x-request-id') ?? undefined,
    retryAfterS: /^\d+$/.test(retryAfter) ? Number(retryAfter) : undefined,
    fields: errors.map(({ path, message }) => ({
      path: Array.isArray(path) ? path.join('.') : String(path ?? ''),
      message: String(message ?? ''),
    })),
    payload: (error as { payload?: unknown }).payload,
  });
}

function searchOf(query: Record<string, unknown> | undefined): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of [value].flat()) if (one !== undefined && one !== '') search.append(name, String(one));
  }
  return search.size > 0 ? `?${search}` : '';
}

/** Plain forms and links cannot send this header, so other sites cannot act in the user's name. */
export function environmentHeader(): string {
  return `x-${brand()}-environment`;
}

/** The brand in the names of headers. */
export function brand(): string {
  return document.documentElement.dataset.brand ?? 'trellis';
}
