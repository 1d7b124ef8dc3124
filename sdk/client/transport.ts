/**
 * Sends calls to the service: address, key, time limit, retries, errors. Uses only web standards.
 *
 * Does not own the list of calls (`trellis.ts` and the modules beside it), nor calls to providers (`proxied-fetch.ts`), which
 * have no time limit and no retries here.
 */
import { errorOfResponse, isTrellisError, TrellisError } from './errors.ts';
import { longestTimerMs, pause, pauseBefore } from './retry.ts';
import type { Answer, KeyedCallOptions } from './route-call.ts';
import type { Routes } from './routes.ts';
import { unlessAborted, whenAborted } from './when-aborted.ts';

/** The signature of `fetch`. A custom function is called without `this`. */
export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

/**
 * A secret key, a ticket or the token of a connect session, or a function that returns one and is called before each
 * attempt. Undefined, as from a missing environment variable, is refused when the client is created.
 */
export type Key = string | undefined | (() => string | Promise<string>);

/** Throws a `TypeError` if `key` cannot be a key. The message never contains it. */
export function requireKeyText(key: unknown): asserts key is string {
  if (typeof key !== 'string' || key === '')
    throw new TypeError('key: missing. Pass a secret key of the environment.');
  if (!/^[\x21-\x7e]+$/.test(key))
    throw new TypeError('key: contains characters that no key has, such as a space or a line break.');
}

export type TransportOptions = {
  url: string;
  key: NonNullable<Key>;
  fetch: Fetch;
  timeoutMs: number;
  retries: number;
};

export type Sent = KeyedCallOptions & {
  /** Method and path template, such as `GET /connections/{id}`. */
  route: string;
  path?: Record<string, unknown> | undefined;
  /** A list becomes a repeated parameter; undefined is omitted. */
  query?: Record<string, unknown> | undefined;
  headers?: Record<string, unknown> | undefined;
  body?: unknown;
};

/** The routes whose JSON is `{ data }`. */
type DataRoute = { [R in keyof Routes]: Answer<R> extends { data: unknown } ? R : never }[keyof Routes];

/** The idempotent calls other than GET: they set a position or read, and add nothing. */
const idempotent = new Set([
  'PUT /records/consumers/{name}',
  'PATCH /records/prune',
  'POST /records/prune/estimate',
]);

/**
 * The routes that get a random Idempotency-Key. A synchronous action gets none, since the key would keep it running after the
 * caller's abort. A test compares this list with the OpenAPI document.
 */
export const keyedRoutes: ReadonlySet<string> = new Set([
  'POST /connect/sessions',
  'POST /connect/sessions/reconnect',
  'POST /connections',
  'POST /environment/api-keys',
  'POST /events/endpoints',
  'POST /integrations',
  'POST /integrations/quickstart',
  'POST /providers',
]);

const opaqueRedirect =
  'The provider returned a redirect, whose target a browser hides from pages. Make this call on your server, or set ' +
  "`redirect: 'manual'` to get the response as the browser returns it, without status and headers.";

/** A response whose body is not read yet, and the time limit of the call. */
type Opened = { response: Response; limit: TimeLimit };

export class Transport {
  /** The address of the service, without a trailing slash. */
  readonly url: string;
  /** The default time limit of a call. */
  readonly timeoutMs: number;
  readonly #key: NonNullable<Key>;
  readonly #fetch: Fetch;
  readonly #retries: number;

  constructor({ url, key, fetch, timeoutMs, retries }: TransportOptions) {
    this.url = url;
    this.#key = key;
    this.#fetch = fetch;
    this.timeoutMs = timeoutMs;
    this.#retries = retries;
  }

  /** Returns the JSON of a 2xx response, or undefined for an empty body. Throws `TrellisError`. */
  async json<T>(sent: Sent): Promise<T> {
    return this.#attempts(sent, async ({ response, limit }) => {
      try {
        return readJson(response, await response.text()) as T;
      } catch (error) {
        throw isTrellisError(error) ? error : this.#failure(sent, { limit, error });
      } finally {
        limit.release();
      }
    });
  }

  /** Like `json`, for a route whose JSON is `{ data }`. Returns the value of `data`. */
  async data<R extends DataRoute>(sent: Sent & { route: R }): Promise<Answer<R>['data']> {
    return (await this.json<Answer<R>>(sent)).data;
  }

  /**
   * Returns a 2xx response with an unread body. The time limit ends with the headers; the caller's signal also aborts the body.
   * Throws `TrellisError`.
   */
  async raw(sent: Sent): Promise<Response> {
    return this.#attempts(sent, async ({ response, limit }) => {
      limit.stopClock();
      return sent.signal === undefined ? response : withBodyEnd(response, limit.release);
    });
  }

  /**
   * Calls `fetch` with the key, without a time limit, retries or a check of the status.
   *
   * Follows a redirect of a GET or HEAD without any header, so the key is never sent to the target. Returns any other redirect,
   * and a redirect to the service, to the caller. Throws a `TypeError` for a redirect whose target the platform hides, unless
   * `redirect` is `manual`.
   */
  async fetchWithKey(
    url: string,
    { redirect = 'follow', ...init }: RequestInit & { headers: Headers },
  ): Promise<Response> {
    init.headers.set('authorization', `Bearer ${await this.#readKey(init.signal ?? undefined)}`);
    // Called without `this`: the `fetch` of a browser throws if it is called as a method.
    const fetch = this.#fetch;
    const response = await fetch(url, { ...init, redirect: redirect === 'follow' ? 'manual' : redirect });
    if (response.type === 'opaqueredirect' && redirect === 'follow') throw new TypeError(opaqueRedirect);
    const { method = 'GET', signal } = init;
    const isRead = /^(get|head)$/i.test(method);
    const target = redirect === 'follow' && isRead ? targetOf(response, url) : undefined;
    if (target === undefined || target.origin === new URL(this.url).origin) return response;
    await response.body?.cancel();
    return fetch(target.href, { method, ...(signal && { signal }) });
  }

  /** Rejects with the signal's reason, the error of the caller's function, or a `TypeError` for an invalid key. */
  async #readKey(signal: AbortSignal | undefined): Promise<string> {
    if (signal?.aborted) throw signal.reason;
    if (typeof this.#key === 'string') return this.#key;
    const key = await unlessAborted(this.#key(), signal);
    requireKeyText(key);
    return key;
  }

  async #attempts<T>(sent: Sent, read: (opened: Opened) => Promise<T>): Promise<T> {
    const { signal, timeoutMs = this.timeoutMs, retries = this.#retries } = sent;
    const isIdempotent = methodOf(sent) === 'GET' || idempotent.has(sent.route);
    // Throws a `TypeError` for invalid arguments before anything is sent.
    const request = { url: this.url + pathOf(sent), headers: headersOf(sent), body: bodyOf(sent) };
    const isKeyed = request.headers.has('idempotency-key');
    const endsAt = Date.now() + timeoutMs;
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await read(await this.#open(sent, { ...request, leftMs: endsAt - Date.now() }));
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        if (!isTrellisError(error) || attempt >= retries) throw error;
        const pauseMs = pauseBefore(error, { attempt, isIdempotent, isKeyed, chance: Math.random() });
        if (pauseMs === undefined || Date.now() + pauseMs >= endsAt) throw error;
        await pause(pauseMs, signal);
      }
    }
  }

  async #open(
    sent: Sent,
    { url, headers, body, leftMs }: { url: string; headers: Headers; body: JsonBody; leftMs: number },
  ): Promise<Opened> {
    const limit = limitOf(sent.signal, leftMs);
    await this.#authorize(headers, { sent, limit });
    try {
      const fetch = this.#fetch;
      // The service sends no redirects, so a redirect is from an intermediary. The key is not sent to its target.
      const init = { method: methodOf(sent), headers, signal: limit.signal, redirect: 'manual' } as const;
      const response = await fetch(url, { ...init, ...body });
      if (response.ok) return { response, limit };
      throw errorOfResponse(response, { text: await response.text() });
    } catch (error) {
      limit.release();
      throw isTrellisError(error) ? error : this.#failure(sent, { limit, error });
    }
  }

  /** Sets the key within the time limit of the call. An error of the caller's key function is thrown unchanged. */
  async #authorize(headers: Headers, { sent, limit }: { sent: Sent; limit: TimeLimit }): Promise<void> {
    try {
      headers.set('authorization', `Bearer ${await this.#readKey(limit.signal)}`);
    } catch (error) {
      limit.release();
      throw limit.isOver() ? this.#failure(sent, { limit, error }) : error;
    }
  }

  /** The error for a missing or incomplete response. */
  #failure({ route }: Sent, { limit, error: cause }: { limit: TimeLimit; error: unknown }): TrellisError {
    if (limit.isOver()) {
      return new TrellisError({ code: 'timeout', message: `${route} exceeded its time limit.`, cause });
    }
    const message = `${this.url} could not be reached, or its response was incomplete: ${reasonOf(cause)}`;
    return new TrellisError({ code: 'network_error', message, cause });
  }
}

const methodOf = ({ route }: Sent) => route.slice(0, route.indexOf(' '));

/** The path and query of a call. Throws a `TypeError` for a parameter that would change the route: empty, `.` or `..`. */
function pathOf({ route, path = {}, query = {} }: Sent): string {
  const filled = route.slice(route.indexOf(' ') + 1).replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = String(path[name] ?? '');
    if (/^\.{0,2}$/.test(value)) throw new TypeError(`"${value}" cannot be the ${name} of ${route}.`);
    return encodeURIComponent(value);
  });
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== undefined) search.append(name, String(one));
  }
  return search.size > 0 ? `${filled}?${search}` : filled;
}

function headersOf({ route, headers = {}, body, idempotencyKey }: Sent): Headers {
  const result = new Headers({ accept: 'application/json' });
  const key = idempotencyKey ?? (keyedRoutes.has(route) ? randomKey() : undefined);
  for (const [name, value] of Object.entries({ 'idempotency-key': key, ...headers })) {
    if (value === undefined) continue;
    // Header values are limited to Latin-1, and the errors of platforms do not name the header.
    if (/[^\t\x20-\x7e\x80-\xff]/.test(String(value)))
      throw new TypeError(
        `"${value}" cannot be the ${name} of a call: it contains characters that a header cannot have.`,
      );
    result.set(name, String(value));
  }
  if (body !== undefined) result.set('content-type', 'application/json');
  return result;
}

/** Browsers have `crypto.randomUUID` only on pages with https. */
export function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join('-');
}

/** Serializes the body once for all attempts. Throws a `TypeError` for a value without a JSON form, such as a BigInt. */
const bodyOf = ({ body }: Sent): JsonBody => (body === undefined ? {} : { body: JSON.stringify(body) });
type JsonBody = { body?: string };

/** Throws `TrellisError` if the response is not JSON, and so not from the service. */
function readJson(response: Response, text: string): unknown {
  if (text === '') return undefined;
  if (!/^application\/json\b/i.test(response.headers.get('content-type') ?? ''))
    throw errorOfResponse(response, { text: '' });
  return JSON.parse(text);
}

/** Returns the response without its `url`. Calls `done` once the body was read, was cancelled or failed. */
function withBodyEnd(response: Response, done: () => void): Response {
  if (response.body === null) {
    done();
    return response;
  }
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  // The reader of the body receives an error of the body.
  response.body.pipeTo(writable).then(done, done);
  return new Response(readable, response);
}

/** Node's `fetch` has only "fetch failed" as its message; the reason is in the cause. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error && error.cause.message !== '' ? error.cause.message : error.message;
}

/** A signal that aborts with the caller's signal, and when the time is over. */
type TimeLimit = {
  signal: AbortSignal;
  isOver(): boolean;
  /** Removes the time limit. The caller's signal still aborts. */
  stopClock(): void;
  release(): void;
};

function limitOf(signal: AbortSignal | undefined, leftMs: number): TimeLimit {
  const controller = new AbortController();
  let isOver = false;
  const removeCallback = whenAborted(signal, () => controller.abort(signal?.reason));
  const end = () => {
    isOver = true;
    controller.abort(new Error('The time limit was exceeded.'));
  };
  const timer = leftMs > longestTimerMs ? undefined : setTimeout(end, Math.max(0, leftMs));
  const stopClock = () => clearTimeout(timer);
  const release = () => {
    stopClock();
    removeCallback();
  };
  return { signal: controller.signal, isOver: () => isOver, stopClock, release };
}

/** The HTTP target of a redirect (RFC 9110 §15.4). */
function targetOf({ status, headers }: Response, from: string): URL | undefined {
  const location = headers.get('location');
  if (![301, 302, 303, 307, 308].includes(status) || location === null) return undefined;
  const target = URL.canParse(location, from) ? new URL(location, from) : undefined;
  return target && /^https?:$/.test(target.protocol) ? target : undefined;
}
