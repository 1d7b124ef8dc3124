/**
 * Reads the responses of token endpoints and converts them to the form of RFC 6749 §5 for oauth4webapi, which is
 * strict. The definition's `token.answer` describes how a provider departs from the standard.
 *
 * Owns: size and time limits, decoding, the shape of the response. Does not own: the meaning of an error
 * (`token-fault.ts`), the requests (`oauth2.ts`), which addresses may be reached (`outbound/outbound.ts`, behind
 * `fetch`).
 */
import { AppError } from '../errors.ts';
import { readRetryAfter } from '../http/retry-after.ts';
import type { Fetch } from '../outbound/outbound.ts';
import { readBody } from '../outbound/read-body.ts';
import type { ProviderDefinition } from '../providers/definition.ts';

export type JsonValue = string | number | boolean | null | JsonValue[] | { [key: string]: JsonValue };
export type JsonObject = { [key: string]: JsonValue };

/** The largest token response that is read. Google's are under 4 KB. */
const maxAnswerBytes = 1024 * 1024;
/** The longest lifetime that is accepted: the expiry must be a valid date. */
const maxExpiresInS = 100 * 365 * 24 * 3600;

/** Why the content of a response cannot be read. */
type UnreadableReason =
  | 'timeout'
  /** The connection broke: the provider may have carried out the request. */
  | 'network'
  /** No connection was made: nothing was sent. */
  | 'unreachable'
  | 'too_large'
  | 'html'
  | 'server_error'
  | 'not_json'
  | 'redirect';

/** Thrown by the normalizing fetch when there is no response to read. */
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

/** The response before it was normalized. */
export type SeenAnswer = {
  httpStatus: number;
  /** The whole decoded response. */
  raw: JsonObject;
  retryAfterMs: number | undefined;
  /** The secrets in the request, which the response may repeat. */
  sent: readonly string[];
};

/** RFC 6749 §2.3.1, §4.1.3 and §6, RFC 7009 §2.1, RFC 7523 §2.1, RFC 7636 §4.5. */
const secretFields = [
  'assertion',
  'client_assertion',
  'client_secret',
  'code',
  'code_verifier',
  'refresh_token',
  'token',
];

/**
 * A `customFetch` for oauth4webapi. It returns RFC 6749 JSON, whatever the provider sent; `seen()` returns the decoded
 * original. Throws UnreadableAnswerError for a timeout, a broken connection, a response over 1 MB, HTML, a
 * 5xx, a redirect and text that cannot be decoded. Rethrows an AppError of `fetch` (an address that may not be
 * reached): it is for the operator, and not an outage.
 */
export function normalizingFetch(options: {
  fetch: Fetch;
  token: Pick<NonNullable<ProviderDefinition['token']>, 'answer' | 'body' | 'timeout_ms'>;
  /** The time from which an expiry date is counted; the system's clock if absent. */
  now?: Date | undefined;
  /** Whether the response keeps an id_token, to be checked. `seen()` has it in any case. */
  keepIdToken?: boolean;
  signal?: AbortSignal | undefined;
}) {
  let seen: SeenAnswer | undefined;
  const fetch = async (
    url: string,
    init: { method: string; headers: Record<string, string>; body?: URLSearchParams | null },
  ) => {
    const { status, contentType, retryAfterMs, text } = await readAnswer(
      url,
      encoded(init, options.token.body),
      {
        ...options,
        timeoutMs: options.token.timeout_ms,
      },
    );
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
    seen = { httpStatus: status, raw, retryAfterMs, sent };
    const answer = conform(raw, { status, answer: options.token.answer, now: options.now ?? new Date() });
    if (options.keepIdToken !== true) delete answer.body.id_token;
    return new Response(JSON.stringify(answer.body), {
      status: answer.status,
      headers: { 'content-type': 'application/json' },
    });
  };
  return { fetch, seen: () => seen };
}

/** The whole response to a token request. Throws as `normalizingFetch` if there is none, or if it is over 1 MB. */
export async function readAnswer(
  url: string,
  init: { method: string; headers: Record<string, string>; body?: string },
  options: { fetch: Fetch; timeoutMs: number; signal?: AbortSignal | undefined; now?: Date | undefined },
) {
  const timeout = AbortSignal.timeout(options.timeoutMs);
  const signal = options.signal === undefined ? timeout : AbortSignal.any([timeout, options.signal]);
  let httpStatus: number | undefined;
  try {
    const response = await options.fetch(url, {
      ...init,
      redirect: 'manual',
      signal,
    });
    httpStatus = response.status;
    const body = await readBody(response.body, maxAnswerBytes);
    if (body.isTooLarge) throw new UnreadableAnswerError('too_large', { httpStatus });
    const retryAfter = response.headers.get('retry-after');
    const { now = new Date() } = options;
    return {
      status: response.status,
      contentType: response.headers.get('content-type')?.split(';')[0]?.trim().toLowerCase() ?? '',
      retryAfterMs: retryAfter === null ? undefined : readRetryAfter(retryAfter, now.getTime()),
      text: new TextDecoder().decode(body.bytes),
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

/** Lifetimes are numbers, as in responses (RFC 6749 §5.1). */
const numberFields: ReadonlySet<string> = new Set(['expires_in', 'refresh_token_expires_in']);

function encoded(
  {
    method,
    headers,
    body,
  }: { method: string; headers: Record<string, string>; body?: URLSearchParams | null },
  format: 'form' | 'json' | undefined,
) {
  if (!body) return { method, headers };
  if (format !== 'json') return { method, headers, body: body.toString() };
  const fields = [...body].map(([name, value]) => [name, numberFields.has(name) ? Number(value) : value]);
  return {
    method,
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify(Object.fromEntries(fields)),
  };
}

/** A response as an object; undefined if it is neither JSON nor a form. */
export function decode(text: string, contentType: string, format: 'json' | 'form'): JsonObject | undefined {
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

export function isHtml(text: string, contentType: string): boolean {
  return (
    contentType === 'text/html' ||
    contentType === 'application/xhtml+xml' ||
    /^\s*<(?:!doctype|html)/i.test(text)
  );
}

type Departures = NonNullable<ProviderDefinition['token']>['answer'];

/** Converts the provider's response to RFC 6749 §5.1 and §5.2. */
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
  // A refresh may return at the top what an exchange returns further inside (Slack).
  const found = isObject(inside) && typeof inside.access_token === 'string' ? inside : raw;
  // An error of RFC 6749 §5.2 with status 200, as from GitHub and Slack.
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
  const accessToken = answer.access_token === undefined ? undefined : at(found, answer.access_token);
  const isBearer = type !== undefined && answer.bearer_token_types.includes(type);
  return {
    ...Object.fromEntries(Object.entries(others).filter(([, value]) => value !== null)),
    ...(accessToken !== undefined && { access_token: accessToken }),
    ...(type !== undefined && { token_type: isBearer ? 'bearer' : type }),
    // A lifetime of 0 would cause a refresh for each call, so it counts as absent.
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

/** The refusal to reach an address, if it caused the error. It is for the operator, and not an outage. */
export function refusalBehind(error: unknown): AppError | undefined {
  return causesOf(error).find((cause) => cause instanceof AppError);
}

/** `fetch` wraps what its connector throws. */
function causesOf(error: unknown): NodeJS.ErrnoException[] {
  const causes: Error[] = [];
  for (let cause = error; cause instanceof Error && causes.length < 5; cause = cause.cause)
    causes.push(cause);
  return causes;
}

/** Seconds from a number or its text; undefined if it is absent or not a number. Never negative. */
export function secondsOf(value: JsonValue | undefined): number | undefined {
  if (typeof value !== 'number' && (typeof value !== 'string' || value.trim() === '')) return undefined;
  const seconds = Number(value);
  return Number.isFinite(seconds) ? Math.min(Math.max(seconds, 0), maxExpiresInS) : undefined;
}

/** Seconds until an ISO 8601 date or a time in Unix seconds; undefined for anything else. */
export function secondsUntil(value: JsonValue | undefined, now: Date): number | undefined {
  const unixS =
    secondsOf(value) ?? (typeof value === 'string' ? secondsOf(Date.parse(value) / 1000) : undefined);
  return unixS === undefined ? undefined : Math.max(Math.round(unixS - now.getTime() / 1000), 0);
}

/** The value at `a.b.c`, where a number may be an index of a list; the whole object without a path. */
export function at(raw: JsonObject, path: string | undefined): JsonValue | undefined {
  let value: JsonValue | undefined = raw;
  for (const step of path?.split('.') ?? []) {
    const inside: JsonValue | undefined = value;
    const isThere: boolean = typeof inside === 'object' && inside !== null && Object.hasOwn(inside, step);
    value = isThere ? (inside as JsonObject)[step] : undefined;
  }
  return value;
}

export function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
