import type { FetchedBody, FetchedHeaders, FetchResponse } from '../context.ts';
import { bytesOf, type Service } from './service.ts';

type Request = { url: URL; method?: string; headers?: Record<string, string>; body?: string | null };
type AnswerHead = { status: number; statusText: string; url: string; headers: Record<string, string> };

/** Statuses whose answers have no body (WHATWG Fetch §2.2.3). */
const withoutBody = new Set([101, 103, 204, 205, 304]);

/** A request to a public address, without credentials. */
export async function uncontrolledFetch(
  service: Service,
  request: Request,
): Promise<FetchResponse & Response> {
  const { url, method = 'GET', headers = {}, body } = request;
  const answer = await service.call(
    'uncontrolledFetch',
    { url: String(url), method, headers },
    body === undefined || body === null ? undefined : [body],
  );
  const head = answer.value as AnswerHead;
  const isEmpty = withoutBody.has(head.status) || method.toUpperCase() === 'HEAD';
  return responseOf(head, {
    source: new Source(answer.body),
    isEmpty,
    isRedirected: head.url !== String(url),
  });
}

/** A body that is either read once as a stream, or kept whole for several readers. */
class Source {
  readonly #stream: AsyncIterable<Uint8Array> | undefined;
  #whole: Promise<Buffer> | undefined;
  #isStreamed = false;
  #isShared = false;

  constructor(stream: AsyncIterable<Uint8Array> | undefined) {
    this.#stream = stream;
  }

  async whole(): Promise<Buffer> {
    this.#requireUnread();
    this.#whole ??= bytesOf(this.#stream);
    return this.#whole;
  }

  /** Keeps the body whole from now on, for several readers. */
  share(): void {
    this.#requireUnread();
    this.#isShared = true;
  }

  async *parts(): AsyncGenerator<Uint8Array, undefined, void> {
    if (this.#isShared || this.#whole !== undefined) {
      yield new Uint8Array(await this.whole());
      return;
    }
    this.#requireUnread();
    this.#isStreamed = true;
    if (this.#stream !== undefined) yield* this.#stream;
  }

  /** Cancels a body that no reader has begun to read. */
  async cancel(): Promise<void> {
    if (this.#isShared || this.#whole !== undefined || this.#isStreamed) return;
    this.#isStreamed = true;
    await this.#stream?.[Symbol.asyncIterator]().return?.();
  }

  #requireUnread(): void {
    if (this.#isStreamed) throw new TypeError('The body was read as it came, and can be read once.');
  }
}

function responseOf(
  head: AnswerHead,
  of: { source: Source; isEmpty: boolean; isRedirected: boolean },
): FetchResponse & Response {
  const { status, statusText, url } = head;
  const { source } = of;
  const headers = headersOf(head.headers);
  let bodyUsed = false;
  const whole = () => {
    bodyUsed = true;
    return source.whole();
  };
  const text = async () => (await whole()).toString('utf8');
  const bytes = async () => new Uint8Array(await whole());
  const response: FetchResponse = {
    ok: status >= 200 && status < 300,
    status,
    statusText,
    url,
    redirected: of.isRedirected,
    headers,
    body: of.isEmpty
      ? null
      : bodyOf(source, () => {
          bodyUsed = true;
        }),
    get bodyUsed() {
      return bodyUsed;
    },
    text,
    bytes,
    json: async () => JSON.parse(await text()),
    arrayBuffer: async () => (await bytes()).buffer,
    blob: async () => new Blob([await bytes()], { type: headers.get('content-type') ?? '' }),
    formData: async () =>
      new Response(await bytes(), {
        headers: { 'content-type': headers.get('content-type') ?? '' },
      }).formData(),
    clone() {
      source.share();
      return responseOf(head, of);
    },
  };
  // `Response` has more, which functions seldom use and whose types they need.
  return response as FetchResponse & Response;
}

function headersOf(given: Record<string, string>): FetchedHeaders {
  const received = new Map(Object.entries(given));
  const headers: FetchedHeaders = {
    get: (name) => received.get(name.toLowerCase()) ?? null,
    has: (name) => received.has(name.toLowerCase()),
    entries: () => received.entries(),
    keys: () => received.keys(),
    values: () => received.values(),
    forEach(each) {
      for (const [name, value] of received) each(value, name, headers);
    },
    [Symbol.iterator]: () => received.entries(),
  };
  return headers;
}

function bodyOf(source: Source, used: () => void): FetchedBody {
  const read = () => {
    used();
    return source.parts();
  };
  return {
    [Symbol.asyncIterator]: read,
    getReader() {
      const parts = read();
      return {
        read: () => parts.next() as Promise<{ done: boolean; value?: Uint8Array }>,
        async cancel() {
          await parts.return(undefined);
          await source.cancel();
        },
        releaseLock() {},
      };
    },
    cancel: () => source.cancel(),
  };
}
