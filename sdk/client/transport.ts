/**
 * Calls of the service: address, key, time limit, attempts, errors.
 *
 * Owns what every call has in common, by web standards alone. Does not own the list of calls (`trellis.ts` and the modules
 * beside it), nor calls of providers (`proxied-fetch.ts`), which are neither timed nor repeated here.
 */
import { errorOfAnswer, isTrellisError, TrellisError } from './errors.ts';
import { type Key, requireKeyText } from './key.ts';
import { longestTimerMs, pause, pauseBefore } from './retry.ts';
import type { CallOptions } from './route-call.ts';
import { unlessAborted, whenAborted } from './when-aborted.ts';

/** As `fetch` of the platform; whatever is given in its place is called without `this`. */
export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

export type TransportOptions = {
  url: string;
  key: NonNullable<Key>;
  fetch: Fetch;
  timeoutMs: number;
  retries: number;
};

export type Sent = CallOptions & {
  /** `GET /connections/{id}`: method and path, with names for its parts. */
  route: string;
  path?: Record<string, unknown> | undefined;
  /** Lists are repeated; what is undefined is left out. */
  query?: Record<string, unknown> | undefined;
  headers?: Record<string, unknown> | undefined;
  body?: unknown;
};

/** Whose repetition does no harm, beside GET: they say where something stands, not what is to be added. */
const repeatable = new Set([
  'PUT /records/consumers/{name}',
  'PATCH /records/prune',
  'POST /records/prune/estimate',
]);

const opaqueRedirect =
  'The provider answers with a redirect, and a browser tells no page where it leads. Have your server make this call, or ' +
  "say `redirect: 'manual'` to have the answer as the browser gives it, without status and headers.";

/** An answer whose body is still to be read, under its time limit. */
type Opened = { response: Response; limit: Limit };

export class Transport {
  /** Without a slash at the end. */
  readonly url: string;
  /** How long a call may take that says nothing of it. */
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

  /** The JSON of a 2xx, undefined where there is none. Throws `TrellisError`. */
  async json<T>(sent: Sent): Promise<T> {
    return this.#attempts(sent, async ({ response, limit }) => {
      try {
        return readJson(response, await response.text()) as T;
      } catch (error) {
        throw isTrellisError(error) ? error : this.#broken(sent, { limit, error });
      } finally {
        limit.release();
      }
    });
  }

  /** A 2xx whose body the caller reads, in its own time; the caller's signal ends that too. Throws `TrellisError`. */
  async raw(sent: Sent): Promise<Response> {
    return this.#attempts(sent, async ({ response, limit }) => {
      limit.stopClock();
      return sent.signal === undefined ? response : telling(response, limit.release);
    });
  }

  /**
   * Fetches with the key, as it is: nothing is timed, repeated or judged. Neither the key nor another header goes where an
   * answer leads: what is read elsewhere is read as by anybody, and what would be written, or leads back to the service, is the
   * caller's to look at. Throws a `TypeError` for a redirect that the platform shows to nobody, unless it was asked for.
   */
  async fetchWithKey(
    url: string,
    { redirect = 'follow', ...init }: RequestInit & { headers: Headers },
  ): Promise<Response> {
    init.headers.set('authorization', `Bearer ${await this.#keyNow(init.signal ?? undefined)}`);
    // Called without `this`, which a browser's own does not take.
    const fetch = this.#fetch;
    const answer = await fetch(url, { ...init, redirect: redirect === 'follow' ? 'manual' : redirect });
    if (answer.type === 'opaqueredirect' && redirect === 'follow') throw new TypeError(opaqueRedirect);
    const { method = 'GET', signal } = init;
    const isRead = /^(get|head)$/i.test(method);
    const target = redirect === 'follow' && isRead ? targetOf(answer, url) : undefined;
    if (target === undefined || target.origin === new URL(this.url).origin) return answer;
    await answer.body?.cancel();
    return fetch(target.href, { method, ...(signal && { signal }) });
  }

  /** Rejects with the signal's reason, with what the caller's function throws, or with a `TypeError` for what is no key. */
  async #keyNow(signal: AbortSignal | undefined): Promise<string> {
    if (signal?.aborted) throw signal.reason;
    if (typeof this.#key === 'string') return this.#key;
    const key = await unlessAborted(this.#key(), signal);
    requireKeyText(key);
    return key;
  }

  async #attempts<T>(sent: Sent, read: (opened: Opened) => Promise<T>): Promise<T> {
    const { signal, timeoutMs = this.timeoutMs, retries = this.#retries } = sent;
    const isRepeatable = methodOf(sent) === 'GET' || repeatable.has(sent.route);
    // What cannot be sent is no outage: a `TypeError`, before anything is.
    const request = { url: this.url + pathOf(sent), headers: headersOf(sent), body: bodyOf(sent) };
    const endsAt = Date.now() + timeoutMs;
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await read(await this.#open(sent, { ...request, leftMs: endsAt - Date.now() }));
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        if (!isTrellisError(error) || attempt >= retries) throw error;
        const pauseMs = pauseBefore(error, { attempt, isRepeatable, chance: Math.random() });
        if (pauseMs === undefined || Date.now() + pauseMs >= endsAt) throw error;
        await pause(pauseMs, signal);
      }
    }
  }

  async #open(
    sent: Sent,
    { url, headers, body, leftMs }: { url: string; headers: Headers; body: Jsoned; leftMs: number },
  ): Promise<Opened> {
    const limit = limitOf(sent.signal, leftMs);
    await this.#authorize(headers, { sent, limit });
    try {
      const fetch = this.#fetch;
      // Our routes lead nowhere else: a redirect is a proxy's, and the key is not carried there.
      const init = { method: methodOf(sent), headers, signal: limit.signal, redirect: 'manual' } as const;
      const response = await fetch(url, { ...init, ...body });
      if (response.ok) return { response, limit };
      throw errorOfAnswer(response, { text: await response.text() });
    } catch (error) {
      limit.release();
      throw isTrellisError(error) ? error : this.#broken(sent, { limit, error });
    }
  }

  /** Within the time for the call; what the caller's own function throws is no error of the way. */
  async #authorize(headers: Headers, { sent, limit }: { sent: Sent; limit: Limit }): Promise<void> {
    try {
      headers.set('authorization', `Bearer ${await this.#keyNow(limit.signal)}`);
    } catch (error) {
      limit.release();
      throw limit.isOver() ? this.#broken(sent, { limit, error }) : error;
    }
  }

  /** Why no whole answer came. */
  #broken({ route }: Sent, { limit, error: cause }: { limit: Limit; error: unknown }): TrellisError {
    if (limit.isOver()) {
      return new TrellisError({ code: 'timeout', message: `${route} took longer than it may.`, cause });
    }
    const message = `${this.url} was not reached, or its answer broke off: ${reasonOf(cause)}`;
    return new TrellisError({ code: 'network_error', message, cause });
  }
}

const methodOf = ({ route }: Sent) => route.slice(0, route.indexOf(' '));

/** The address behind the service's own, its names filled in. Throws where one of them is empty: that is another route. */
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

function headersOf({ headers = {}, body }: Sent): Headers {
  const made = new Headers({ accept: 'application/json' });
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined) continue;
    // A header takes Latin-1 alone, and platforms say so without a word of what it was about.
    if (/[^\t\x20-\x7e\x80-\xff]/.test(String(value)))
      throw new TypeError(`"${value}" cannot be the ${name} of a call: a header takes no such characters.`);
    made.set(name, String(value));
  }
  if (body !== undefined) made.set('content-type', 'application/json');
  return made;
}

/** Written once for all attempts. Throws a `TypeError` for what JSON has no form of, such as a circle or a BigInt. */
const bodyOf = ({ body }: Sent): Jsoned => (body === undefined ? {} : { body: JSON.stringify(body) });
type Jsoned = { body?: string };

/** Throws `TrellisError` for what is no JSON: it is not the service that answered. */
function readJson(response: Response, text: string): unknown {
  if (text === '') return undefined;
  if (!/^application\/json\b/i.test(response.headers.get('content-type') ?? ''))
    throw errorOfAnswer(response, { text: '' });
  return JSON.parse(text);
}

/** The same response except for its address, with a callback once its body was read, cancelled or broken off. */
function telling(response: Response, done: () => void): Response {
  if (response.body === null) {
    done();
    return response;
  }
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  // The reader gets the error; here it only matters that the body has ended.
  response.body.pipeTo(writable).then(done, done);
  return new Response(readable, response);
}

/** `fetch` of Node says "fetch failed", and why only in the cause. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error && error.cause.message !== '' ? error.cause.message : error.message;
}

/** A signal that goes with the caller's, and by itself when the time is over. */
type Limit = {
  signal: AbortSignal;
  isOver(): boolean;
  /** The caller's signal counts on. */
  stopClock(): void;
  release(): void;
};

function limitOf(signal: AbortSignal | undefined, leftMs: number): Limit {
  const own = new AbortController();
  let isOver = false;
  const stopWaiting = whenAborted(signal, () => own.abort(signal?.reason));
  const end = () => {
    isOver = true;
    own.abort(new Error('The time is over.'));
  };
  const timer = leftMs > longestTimerMs ? undefined : setTimeout(end, Math.max(0, leftMs));
  const stopClock = () => clearTimeout(timer);
  const release = () => {
    stopClock();
    stopWaiting();
  };
  return { signal: own.signal, isOver: () => isOver, stopClock, release };
}

/** Where a redirect leads (RFC 9110 §15.4), in a form that may be fetched. */
function targetOf({ status, headers }: Response, from: string): URL | undefined {
  const location = headers.get('location');
  if (![301, 302, 303, 307, 308].includes(status) || location === null) return undefined;
  const target = URL.canParse(location, from) ? new URL(location, from) : undefined;
  return target && /^https?:$/.test(target.protocol) ? target : undefined;
}
