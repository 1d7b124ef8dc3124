import type { ErrorCode } from './error-codes.ts';
import type { Routes } from './routes.ts';

/** The codes of errors that the client detects; the service sent no error. */
export type ClientErrorCode =
  /** The service could not be reached, or its response was incomplete. It is unknown whether the call took effect. */
  | 'network_error'
  /** The call took longer than `timeoutMs`. It is unknown whether the call took effect. */
  | 'timeout'
  /** The response is not from Trellis: a page of an intermediary, a redirect. */
  | 'unexpected_answer'
  /** An export ended without its last line. The received records are valid. */
  | 'export_cut_off'
  /** The signature is missing, or does not match the body and the secret. */
  | 'invalid_signature'
  /** The signature is valid but its timestamp is outside the tolerance; the request may be a replay. */
  | 'stale_signature';

/** The codes of this version. A newer service may return further codes. */
export type KnownCode = ErrorCode | ClientErrorCode;

/** The status of a connection, its cause and the next step. Also the `payload` of errors about a connection. */
export type Health = Routes['GET /connections/{id}/health']['answer'];

/** The type of `payload`, by code. Other codes have no typed payload. */
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
/** The encoding of each field in errors of Google's format, whose metadata are strings: text unchanged, all else as JSON. */
type Encodings<P> = { [F in keyof P]: [Exclude<P[F], null>] extends [string] ? 'text' : 'json' };
const health: Encodings<Health> = {
  status: 'text',
  state: 'text',
  kind: 'text',
  cause: 'text',
  evidence: 'json',
  since: 'text',
  next_step: 'text',
  reconnect: 'json',
  missing_scopes: 'json',
  warnings: 'json',
};
const payloadEncodings: { [C in keyof ErrorPayloads]: Encodings<ErrorPayloads[C]> } = {
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

/** An error of one field. `path` has the field names and array indexes that lead to it. */
export type FieldError = { code: string; message: string; path: string[] };

type ErrorFields = {
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
 * The error that a call rejects with. An aborted call rejects with the signal's reason instead, as `fetch` does.
 *
 * Use `code` in programs; `message` is for people. `isTrellisError(error, 'unknown_connection')` narrows the types of `code` and
 * `payload`.
 */
export class TrellisError<C extends string = KnownCode | (string & {})> extends Error {
  declare readonly name: 'TrellisError';
  /** An error code of the service, or one of `ClientErrorCode`. */
  readonly code: C;
  /** The HTTP status, or 0 without a response. */
  readonly status: number;
  /** The errors of single fields, if the request has invalid fields; else empty. */
  readonly errors: readonly FieldError[];
  /** The details of the error, by code: see `ErrorPayloads`. */
  readonly payload: PayloadOf<C>;
  /** The response of the provider, if it caused the error. */
  readonly upstream: unknown;
  /** The ID of the request in the log of the service. */
  readonly requestId: string | undefined;
  /** The time until a retry that the service requests (`Retry-After`). */
  readonly retryAfterMs: number | undefined;

  static {
    // On the prototype, because the constructor of `Error` writes the name into the stack.
    Object.assign(TrellisError.prototype, { name: 'TrellisError' });
  }

  constructor(fields: ErrorFields) {
    super(messageOf(fields), fields.cause === undefined ? undefined : { cause: fields.cause });
    this.code = fields.code as C;
    this.status = fields.status ?? 0;
    this.errors = fields.errors ?? [];
    this.payload = fields.payload as PayloadOf<C>;
    this.upstream = fields.upstream;
    this.requestId = fields.requestId;
    this.retryAfterMs = fields.retryAfterMs;
  }
}

/** Whether `error` is a `TrellisError` and, if codes are given, has one of them. The codes narrow the type of `payload`. */
export function isTrellisError(error: unknown): error is TrellisError;
export function isTrellisError<C extends KnownCode>(
  error: unknown,
  ...codes: readonly [C, ...C[]]
): error is TrellisError<C>;
export function isTrellisError(error: unknown, ...codes: readonly string[]): boolean {
  // Compares the name, because a program may load two copies of this package.
  if (!(error instanceof Error) || error.name !== 'TrellisError') return false;
  return codes.length === 0 || codes.includes((error as TrellisError).code);
}

/** The message of the service, followed by up to three invalid fields. */
function messageOf({ message, errors = [] }: ErrorFields): string {
  if (errors.length === 0) return message;
  const fields = errors.slice(0, 3).map(({ path, message: text }) => `${path.join('.')}: ${text}`);
  return `${message} (${fields.join('; ')}${errors.length > 3 ? '; ...' : ''})`;
}

/** The error in a response of the service. `now` (ms since 1970) is subtracted from a `Retry-After` that is a date. */
export function errorOfResponse(
  { status, headers }: Pick<Response, 'status' | 'headers'>,
  { text, now = Date.now() }: { text: string; now?: number },
): TrellisError {
  const requestId = headers.get('x-request-id') ?? undefined;
  const retryAfterMs = readRetryAfter(headers.get('retry-after'), now);
  const fields = fieldsIn(text);
  if (fields === undefined) {
    const type = headers.get('content-type') ?? 'no type';
    const message = `The response ${status} (${type}) is not from Trellis. Check that \`url\` is the address of the service.`;
    return new TrellisError({ code: 'unexpected_answer', message, status, requestId, retryAfterMs });
  }
  return new TrellisError({ ...fields, status, requestId, retryAfterMs });
}

type Body = {
  error?: Omit<ErrorFields, 'code' | 'errors'> & {
    code?: unknown;
    errors?: FieldError[];
    /** The details in Google's format. */
    details?: { reason?: string; metadata?: Record<string, string> }[];
  };
};

function fieldsIn(text: string): ErrorFields | undefined {
  const { error } = (parsed(text) ?? {}) as Body;
  if (typeof error !== 'object' || error === null) return undefined;
  const { code, message = '', errors, payload, upstream, details } = error;
  if (typeof code === 'string') {
    return { code, message, payload, upstream, ...(Array.isArray(errors) && { errors }) };
  }
  const detail = Array.isArray(details) ? details.find(({ reason }) => reason !== undefined) : undefined;
  if (detail?.reason === undefined) return undefined;
  const { reason, metadata } = detail;
  const ownCode = reason.toLowerCase();
  return { code: ownCode, message, payload: metadata && payloadIn(metadata, ownCode) };
}

/** Decodes a payload from the strings of Google's format. A missing field is null; unknown fields stay strings. */
function payloadIn(metadata: Record<string, string>, code: string): Record<string, unknown> {
  const encodings = Object.hasOwn(payloadEncodings, code)
    ? payloadEncodings[code as keyof ErrorPayloads]
    : {};
  const read = Object.entries(encodings).map(([name, encoding]) => {
    const text = metadata[name] ?? null;
    return [name, text === null || encoding === 'text' ? text : (parsed(text) ?? text)];
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

/** Parses seconds or a date (RFC 9110 §10.2.3) into ms. Returns undefined for any other value. */
export function readRetryAfter(value: string | null, now: number): number | undefined {
  if (value === null || value.trim() === '') return undefined;
  if (/^\d+$/.test(value.trim())) return Number(value) * 1000;
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}
