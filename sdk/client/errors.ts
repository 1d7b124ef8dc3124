import type { ErrorCode } from './error-codes.ts';
import type { Routes } from './routes.ts';

/** What went wrong on the way, where no error of the service came. */
export type ClientErrorCode =
  /** The service was not reached, or its answer broke off. Whether the call was done is not known. */
  | 'network_error'
  /** The call took longer than `timeoutMs`. Whether it was done is not known. */
  | 'timeout'
  /** What answered is not Trellis, or not this version: a page of a proxy in between, a redirect. */
  | 'unexpected_answer'
  /** An export ended without its last line; what came of it is good. */
  | 'export_cut_off'
  /** A signature is missing, or is not that of the body under the secret. */
  | 'invalid_signature'
  /** A signature is right, and so old that somebody may be sending the event a second time. */
  | 'stale_signature';

/** Codes that this version knows. A newer service may answer others. */
export type KnownCode = ErrorCode | ClientErrorCode;

/** Why a connection works or not; what `payload` of a refusal on its account holds. */
export type Health = Routes['GET /connections/{id}/health']['answer'];

/** What `payload` holds, for the codes with a shape of their own. */
export type ErrorPayloads = {
  connection_needs_reauth: Health;
  connection_blocked: Health;
  invalid_credentials: { connection: Record<string, unknown>; health: Health };
  cursor_behind_consumer: { cursor: string | null };
  consumer_without_owner: { cursor: string | null };
  mass_delete_held: { would_delete: number; live: number };
  missing_scopes: { missing: string[] };
  quota_exhausted: { retry_after_s: number };
  revocation_ends_others: { others: number };
  script_internal_error: { name: string; message: string; stacktrace: string[] };
};
/** Whether a field is a text, which Google's dialect passes on as it is, or something else, which it writes as JSON. */
type Forms<P> = { [F in keyof P]: [Exclude<P[F], null>] extends [string] ? 'text' : 'json' };
const health: Forms<Health> = {
  ...{ status: 'text', kind: 'text', cause: 'text', evidence: 'json', since: 'text', next_step: 'text' },
  ...{ reconnect: 'json', missing_scopes: 'json', warnings: 'json' },
};
const payloadForms: { [C in keyof ErrorPayloads]: Forms<ErrorPayloads[C]> } = {
  connection_needs_reauth: health,
  connection_blocked: health,
  invalid_credentials: { connection: 'json', health: 'json' },
  cursor_behind_consumer: { cursor: 'text' },
  consumer_without_owner: { cursor: 'text' },
  mass_delete_held: { would_delete: 'json', live: 'json' },
  missing_scopes: { missing: 'json' },
  quota_exhausted: { retry_after_s: 'json' },
  revocation_ends_others: { others: 'json' },
  script_internal_error: { name: 'text', message: 'text', stacktrace: 'json' },
};
type PayloadOf<C> = C extends keyof ErrorPayloads ? ErrorPayloads[C] : unknown;

/** One fault in one field: `path` leads to it, array indexes as text. */
export type FieldError = { code: string; message: string; path: string[] };

type Told = {
  code: string;
  message: string;
  status?: number;
  errors?: FieldError[];
  payload?: unknown;
  upstream?: unknown;
  requestId?: string | undefined;
  retryAfterMs?: number | undefined;
  cause?: unknown;
};

/**
 * Whatever a call rejects with, but for an abort, which rejects with the signal's own reason as `fetch` does.
 *
 * Act on `code`; show `message` to people. Ask `isTrellisError(error, 'unknown_connection')` to have code and payload typed.
 */
export class TrellisError<C extends string = KnownCode | (string & {})> extends Error {
  declare readonly name: 'TrellisError';
  /** A code of the service's catalogue, or one of `ClientErrorCode`. */
  readonly code: C;
  /** The HTTP status; 0 where no answer came. */
  readonly status: number;
  /** What is wrong with single fields, where that is what is wrong. */
  readonly errors: readonly FieldError[];
  /** What more there is to say, by code: see `ErrorPayloads`. */
  readonly payload: PayloadOf<C>;
  /** What a provider answered, where that is the error. */
  readonly upstream: unknown;
  /** By which the log of the service knows the call. */
  readonly requestId: string | undefined;
  /** How long the service asks to wait before the next try. */
  readonly retryAfterMs: number | undefined;

  static {
    // There before the stack is written, which begins with it.
    Object.assign(TrellisError.prototype, { name: 'TrellisError' });
  }

  constructor(told: Told) {
    super(sentence(told), told.cause === undefined ? undefined : { cause: told.cause });
    this.code = told.code as C;
    this.status = told.status ?? 0;
    this.errors = told.errors ?? [];
    this.payload = told.payload as PayloadOf<C>;
    this.upstream = told.upstream;
    this.requestId = told.requestId;
    this.retryAfterMs = told.retryAfterMs;
  }
}

/** Whether it is an error of this client, and where codes are named, one of these; they type what it holds. */
export function isTrellisError(error: unknown): error is TrellisError;
export function isTrellisError<C extends KnownCode>(
  error: unknown,
  ...codes: readonly [C, ...C[]]
): error is TrellisError<C>;
export function isTrellisError(error: unknown, ...codes: readonly string[]): boolean {
  // By its name: a program may hold two copies of this package.
  if (!(error instanceof Error) || error.name !== 'TrellisError') return false;
  return codes.length === 0 || codes.includes((error as TrellisError).code);
}

/** The message of the service with the fields that it is about. */
function sentence({ message, errors = [] }: Told): string {
  if (errors.length === 0) return message;
  const fields = errors.slice(0, 3).map(({ path, message: said }) => `${path.join('.')}: ${said}`);
  return `${message} (${fields.join('; ')}${errors.length > 3 ? '; ...' : ''})`;
}

/** The error that an answer of the service tells. `now` is for a Retry-After that is a date. */
export function errorOfAnswer(
  { status, headers }: Pick<Response, 'status' | 'headers'>,
  { text, now = Date.now() }: { text: string; now?: number },
): TrellisError {
  const requestId = headers.get('x-request-id') ?? undefined;
  const retryAfterMs = readRetryAfter(headers.get('retry-after'), now);
  const told = toldIn(text);
  if (told === undefined) {
    const type = headers.get('content-type') ?? 'no type';
    const message = `The answer is ${status} (${type}), and none of Trellis. Is \`url\` the address of the service?`;
    return new TrellisError({ code: 'unexpected_answer', message, status, requestId, retryAfterMs });
  }
  return new TrellisError({ ...told, status, requestId, retryAfterMs });
}

type Body = {
  error?: Omit<Told, 'code' | 'errors'> & {
    code?: unknown;
    errors?: FieldError[];
    /** As Google's dialect has it. */
    details?: { reason?: string; metadata?: Record<string, string> }[];
  };
};

function toldIn(text: string): Told | undefined {
  const { error } = (parsed(text) ?? {}) as Body;
  if (typeof error !== 'object' || error === null) return undefined;
  const { code, message = '', errors, payload, upstream, details } = error;
  if (typeof code === 'string') {
    return { code, message, payload, upstream, ...(Array.isArray(errors) && { errors }) };
  }
  const detail = Array.isArray(details) ? details.find(({ reason }) => reason !== undefined) : undefined;
  if (detail?.reason === undefined) return undefined;
  const { reason, metadata } = detail;
  const own = reason.toLowerCase();
  return { code: own, message, payload: metadata && payloadIn(metadata, own) };
}

/** What a payload was before it was put into texts; a field that is null is left out there. Others stay as they are. */
function payloadIn(metadata: Record<string, string>, code: string): Record<string, unknown> {
  const forms = Object.hasOwn(payloadForms, code) ? payloadForms[code as keyof ErrorPayloads] : {};
  const read = Object.entries(forms).map(([name, form]) => {
    const text = metadata[name] ?? null;
    return [name, text === null || form === 'text' ? text : (parsed(text) ?? text)];
  });
  return { ...metadata, ...Object.fromEntries(read) };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Seconds or a date (RFC 9110 §10.2.3); undefined for neither. */
export function readRetryAfter(value: string | null, now: number): number | undefined {
  if (value === null || value.trim() === '') return undefined;
  if (/^\d+$/.test(value.trim())) return Number(value) * 1000;
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}
