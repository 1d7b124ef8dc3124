/**
 * Reads what token endpoints really send and turns it into what RFC 6749 §5 asks for, so that oauth4webapi, which is
 * strict, can judge it. The definition's `token.answer` says how a provider departs from the standard.
 *
 * Owns: size and time limits, decoding, the shape of the answer. Does not own: what an error means
 * (`token-fault.ts`), the requests (`oauth2.ts`), which addresses may be reached (`outbound.ts`, behind `fetch`).
 */
import { AppError } from '../errors.ts';
import { readRetryAfter } from '../http/retry-after.ts';
import type { ProviderDefinition } from '../providers/definition.ts';

export type JsonValue = string | number | boolean | null | JsonValue[] | { [key: string]: JsonValue };
export type JsonObject = { [key: string]: JsonValue };

/** The part of fetch that the modes use. The one passed in guards which addresses may be reached. */
export type Fetch = (
  url: string,
  init: {
    method: string;
    headers: Record<string, string>;
    body?: string;
    redirect: 'manual';
    signal: AbortSignal;
  },
) => Promise<{
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  readonly body: AsyncIterable<Uint8Array> | null;
}>;

/** Largest token answer that is read. Google's are under 4 KB. */
const MAX_ANSWER_BYTES = 1024 * 1024;
/** The longest lifetime that is accepted; a longer one could not be a date. */
const MAX_EXPIRES_IN_S = 100 * 365 * 24 * 3600;

/** Why an answer cannot be judged by its content. */
type UnreadableReason =
  | 'timeout'
  /** The connection broke: the request may have been carried out. */
  | 'network'
  /** There was no connection: nothing was sent. */
  | 'unreachable'
  | 'too_large'
  | 'html'
  | 'server_error'
  | 'not_json'
  | 'redirect';

/** Thrown out of the normalising fetch when there is no answer to judge. */
export class UnreadableAnswerError extends Error {
  readonly reason: UnreadableReason;
  readonly httpStatus: number | undefined;
  readonly retryAfterMs: number | undefined;
  constructor(
    reason: UnreadableReason,
    seen: { httpStatus?: number; retryAfterMs?: number; cause?: unknown } = {},
  ) {
    super(`the token endpoint gave no readable answer: ${reason}`, { cause: seen.cause });
    this.name = 'UnreadableAnswerError';
    this.reason = reason;
    this.httpStatus = seen.httpStatus;
    this.retryAfterMs = seen.retryAfterMs;
  }
}

/** What came back, before it was normalised. */
export type SeenAnswer = {
  httpStatus: number;
  /** The whole decoded answer. */
  raw: JsonObject;
  retryAfterMs: number | undefined;
  /** The secrets in the body that it answers: it may repeat them. */
  sent: readonly string[];
};

/** RFC 6749 §2.3.1, §4.1.3 and §6, RFC 7009 §2.1, RFC 7636 §4.5. */
const secretFields = ['client_secret', 'code', 'code_verifier', 'refresh_token', 'token'];

/**
 * A `customFetch` for oauth4webapi. It answers with RFC 6749 JSON, whatever the provider sent, and hands the decoded
 * original to `seen`. Throws UnreadableAnswerError for a timeout, a broken connection, an answer over 1 MB, HTML, a
 * 5xx, a redirect and text that cannot be decoded. An AppError of `fetch` (an address that may not be reached) goes
 * through as it is: it is the operator's to see, not an outage.
 */
export function normalizingFetch(options: {
  fetch: Fetch;
  token: Pick<NonNullable<ProviderDefinition['token']>, 'answer' | 'body' | 'timeout_ms'>;
  /** What an end that is told as a date is counted from; the system's clock if absent. */
  now?: Date | undefined;
  /** Whether an id_token is judged. Otherwise it is left out of the answer, and stays in what `seen` gets. */
  keepIdToken?: boolean;
  signal?: AbortSignal | undefined;
  seen: (answer: SeenAnswer) => void;
}) {
  return async (
    url: string,
    init: { method: string; headers: Record<string, string>; body?: URLSearchParams | null },
  ) => {
    const { status, contentType, retryAfterMs, text } = await readAnswer(url, init, options);
    const unreadable = (reason: UnreadableReason) =>
      new UnreadableAnswerError(reason, {
        httpStatus: status,
        ...(retryAfterMs !== undefined && { retryAfterMs }),
      });
    if (status >= 300 && status < 400) throw unreadable('redirect');
    const raw = decode(text, contentType, options.token.answer.format);
    if (status >= 500) throw unreadable('server_error');
    if (raw === undefined)
      throw unreadable(isHtml(text, contentType) ? 'html' : status === 429 ? 'server_error' : 'not_json');
    const sent = secretFields.flatMap((name) => init.body?.get(name) ?? []);
    options.seen({ httpStatus: status, raw, retryAfterMs, sent });
    const answer = conform(raw, { status, answer: options.token.answer, now: options.now ?? new Date() });
    if (options.keepIdToken !== true) delete answer.body.id_token;
    return new Response(JSON.stringify(answer.body), {
      status: answer.status,
      headers: { 'content-type': 'application/json' },
    });
  };
}

async function readAnswer(
  url: string,
  init: { method: string; headers: Record<string, string>; body?: URLSearchParams | null },
  options: Parameters<typeof normalizingFetch>[0],
) {
  const timeout = AbortSignal.timeout(options.token.timeout_ms);
  const signal = options.signal === undefined ? timeout : AbortSignal.any([timeout, options.signal]);
  let httpStatus: number | undefined;
  try {
    const response = await options.fetch(url, {
      method: init.method,
      headers: init.headers,
      ...(init.body && { body: init.body.toString() }),
      ...(init.body && options.token.body === 'json' && asJson(init.headers, init.body)),
      redirect: 'manual',
      signal,
    });
    httpStatus = response.status;
    const chunks: Uint8Array[] = [];
    let sizeBytes = 0;
    for await (const chunk of response.body ?? []) {
      sizeBytes += chunk.byteLength;
      if (sizeBytes > MAX_ANSWER_BYTES) throw new UnreadableAnswerError('too_large', { httpStatus });
      chunks.push(chunk);
    }
    return {
      status: response.status,
      contentType: response.headers.get('content-type')?.split(';')[0]?.trim().toLowerCase() ?? '',
      retryAfterMs: readRetryAfter(
        response.headers.get('retry-after'),
        (options.now ?? new Date()).getTime(),
      ),
      text: new TextDecoder().decode(Buffer.concat(chunks)),
    };
  } catch (error) {
    if (error instanceof UnreadableAnswerError) throw error;
    const refusal = refusalBehind(error);
    if (refusal !== undefined) throw refusal;
    const reason = signal.aborted ? 'timeout' : isUnreachable(error) ? 'unreachable' : 'network';
    throw new UnreadableAnswerError(reason, {
      cause: error,
      ...(httpStatus !== undefined && { httpStatus }),
    });
  }
}

/** Lives are numbers, as in answers (RFC 6749 §5.1). */
const numberFields: ReadonlySet<string> = new Set(['expires_in', 'refresh_token_expires_in']);

function asJson(headers: Record<string, string>, body: URLSearchParams) {
  const fields = [...body].map(([name, value]) => [name, numberFields.has(name) ? Number(value) : value]);
  return {
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify(Object.fromEntries(fields)),
  };
}

function decode(text: string, contentType: string, format: 'json' | 'form'): JsonObject | undefined {
  const json = parseJson(text);
  if (json !== undefined) return json;
  const isForm = format === 'form' || contentType === 'application/x-www-form-urlencoded';
  if (!isForm || isHtml(text, contentType) || !/^[^\s<>=]+=/.test(text)) return undefined;
  return Object.fromEntries(new URLSearchParams(text.trim()));
}

function parseJson(text: string): JsonObject | undefined {
  try {
    const value: JsonValue = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isHtml(text: string, contentType: string): boolean {
  return (
    contentType === 'text/html' ||
    contentType === 'application/xhtml+xml' ||
    /^\s*<(?:!doctype|html)/i.test(text)
  );
}

type Departures = NonNullable<ProviderDefinition['token']>['answer'];

/** RFC 6749 §5.1 and §5.2 out of what the provider sent. */
function conform(
  raw: JsonObject,
  { status, answer, now }: { status: number; answer: Departures; now: Date },
): { status: number; body: JsonObject } {
  if (status >= 400) {
    const error = answer.error === undefined ? undefined : at(raw, answer.error);
    return { status, body: { ...raw, ...(typeof error === 'string' && error !== '' && { error }) } };
  }
  const failure = answer.error_in_success === undefined ? undefined : at(raw, answer.error_in_success);
  if (typeof failure === 'string' && failure !== '') return { status: 400, body: { ...raw, error: failure } };
  const inside = at(raw, answer.token_path);
  // An answer to a refresh may have at its top what the answer to a code has further in (Slack).
  const found = isObject(inside) && typeof inside.access_token === 'string' ? inside : raw;
  // RFC 6749 §5.2 under a 200, as GitHub and Slack send it.
  if (typeof found.access_token !== 'string' && typeof raw.error === 'string' && raw.error !== '')
    return { status: 400, body: { ...raw } };
  return { status: 200, body: conformToken(found, answer, now) };
}

function conformToken(found: JsonObject, answer: Departures, now: Date): JsonObject {
  const { expires_in, refresh_token, refresh_token_expires_in, scope: _scope, token_type, ...others } = found;
  const scope = at(found, answer.scope ?? 'scope');
  const expiresIn =
    secondsOf(answer.expires_in === undefined ? expires_in : at(found, answer.expires_in)) ??
    secondsUntil(answer.expires_at === undefined ? undefined : at(found, answer.expires_at), now);
  const refreshExpiresIn = secondsOf(
    answer.refresh_expires_in === undefined ? refresh_token_expires_in : at(found, answer.refresh_expires_in),
  );
  const type = typeof token_type === 'string' && token_type !== '' ? token_type : answer.default_token_type;
  const isBearer = type !== undefined && answer.bearer_token_types.includes(type);
  return {
    ...Object.fromEntries(Object.entries(others).filter(([, value]) => value !== null)),
    ...(type !== undefined && { token_type: isBearer ? 'bearer' : type }),
    // A life of nothing would be a refresh for each call: it says as little as none.
    ...(expiresIn && { expires_in: expiresIn }),
    ...(refreshExpiresIn !== undefined && { refresh_token_expires_in: refreshExpiresIn }),
    ...(typeof refresh_token === 'string' && refresh_token !== '' && { refresh_token }),
    ...(typeof scope === 'string' && { scope }),
    ...(Array.isArray(scope) && { scope: scope.filter((part) => typeof part === 'string').join(' ') }),
  };
}

const noConnection = /^(ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|UND_ERR_CONNECT_TIMEOUT)$/;

function isUnreachable(error: unknown): boolean {
  return causesOf(error).some(({ code }) => noConnection.test(code ?? ''));
}

function refusalBehind(error: unknown): AppError | undefined {
  return causesOf(error).find((cause) => cause instanceof AppError);
}

/** `fetch` wraps what its connector throws. */
function causesOf(error: unknown): NodeJS.ErrnoException[] {
  const causes: Error[] = [];
  for (let cause = error; cause instanceof Error && causes.length < 5; cause = cause.cause)
    causes.push(cause);
  return causes;
}

/** Seconds from a number or its text; undefined for what is absent or no number. Never negative. */
function secondsOf(value: JsonValue | undefined): number | undefined {
  if (typeof value !== 'number' && (typeof value !== 'string' || value.trim() === '')) return undefined;
  const seconds = Number(value);
  return Number.isFinite(seconds) ? Math.min(Math.max(seconds, 0), MAX_EXPIRES_IN_S) : undefined;
}

/** Seconds until a moment that is told as an ISO 8601 date or in Unix seconds; undefined for anything else. */
function secondsUntil(value: JsonValue | undefined, now: Date): number | undefined {
  const unixS =
    secondsOf(value) ?? (typeof value === 'string' ? secondsOf(Date.parse(value) / 1000) : undefined);
  return unixS === undefined ? undefined : Math.max(Math.round(unixS - now.getTime() / 1000), 0);
}

/** The value at `a.b.c`; the whole for no path. */
export function at(raw: JsonObject, path: string | undefined): JsonValue | undefined {
  let value: JsonValue | undefined = raw;
  for (const step of path?.split('.') ?? [])
    value = isObject(value) && Object.hasOwn(value, step) ? value[step] : undefined;
  return value;
}

export function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
