/**
 * The fields `errors`, `answers`, `accepts` and `example` of a route's `schema`, from which `openapi.ts` completes the
 * document, and the errors that follow from a route's access, parameters and body.
 */
import type { FastifySchema } from 'fastify';
import { type ErrorCode, errorCatalogue } from '../../errors.ts';
import type { Access } from '../auth/caller.ts';
import type { JsonSchema } from './examples.ts';

declare module 'fastify' {
  interface FastifySchema {
    /** Further errors, in addition to those that follow from access, parameters and body. */
    errors?: readonly RouteError[];
    /** Responses without a serializer: streams, pages, empty ones. */
    answers?: Readonly<Record<number, Answer>>;
    /** Bodies other than JSON, by media type, if no schema validates them. */
    accepts?: Readonly<Record<string, { schema: JsonSchema; example: unknown }>>;
    /** A body, if one with only the required fields is a poor example; and responses, by status. */
    example?: { body?: unknown; answers?: Readonly<Record<number, unknown>> };
  }
}

/** A code with its first status in the catalogue, or with another of its statuses there. */
export type RouteError = ErrorCode | { code: ErrorCode; status: number };

export type Answer = {
  description: string;
  /** Absent: no body. */
  type?: string;
  schema?: JsonSchema;
  example?: unknown;
};

/** The errors of every route that takes a connection from the caller. */
export const connectionErrors = [
  'unknown_connection',
  'unknown_provider_config',
  { code: 'test_credentials_unavailable', status: 424 },
] as const satisfies readonly RouteError[];

/** The errors of all routes. */
const ofAll: readonly RouteError[] = [
  'malformed_request',
  'headers_too_large',
  'invalid_uri_params',
  'too_many_requests',
  'internal',
  'unavailable',
  'overloaded',
];
const ofBodies: readonly RouteError[] = [
  'invalid_json',
  'body_too_large',
  'invalid_content_type',
  'request_timeout',
];
const ofIdempotent: readonly RouteError[] = [
  'invalid_headers',
  'idempotency_key_reused',
  'request_in_progress',
  'outcome_unknown',
];
const ofHeader: readonly RouteError[] = ['missing_auth_header', 'malformed_auth_header'];
const ofPeople: readonly RouteError[] = ['not_signed_in', 'cross_site_request', 'forbidden'];
const ofKeys: readonly RouteError[] = [
  ...ofHeader,
  'invalid_secret_key_format',
  'unknown_account',
  ...ofPeople,
];
const ofSessions: readonly RouteError[] = [
  'invalid_connect_session_token_format',
  'unknown_connect_session_token',
];
const ofAccess: Record<Access['by'], readonly RouteError[]> = {
  anyone: [],
  key: ofKeys,
  'key or session': [...ofKeys, 'unknown_connect_session_token'],
  person: ofPeople,
  session: [...ofHeader, ...ofSessions],
  'session in query': ofSessions,
};

/** The errors that all routes with this access have, with or without a body, by status. */
export function usualErrorsOf({
  method,
  access,
}: {
  method: string;
  access: Access;
}): Map<number, ErrorCode[]> {
  return byStatus([
    ...ofAll,
    ...ofAccess[access.by],
    ...(takesBody(method) ? [...ofBodies, 'invalid_body' as const] : []),
    'invalid_query_params',
    'invalid_headers',
  ]);
}

/** All errors of a route by status, each once, in the order of the catalogue. */
export function errorsOf({
  method,
  access,
  schema,
  isIdempotent,
}: {
  method: string;
  access: Access;
  schema: FastifySchema;
  isIdempotent: boolean;
}): Map<number, ErrorCode[]> {
  const all: RouteError[] = [
    ...ofAll,
    ...ofAccess[access.by],
    ...(takesBody(method) ? ofBodies : []),
    ...(isIdempotent ? ofIdempotent : []),
    ...(schema.body ? (['invalid_body'] as const) : []),
    ...(schema.querystring ? (['invalid_query_params'] as const) : []),
    ...(schema.headers ? (['invalid_headers'] as const) : []),
    ...(schema.errors ?? []),
  ];
  return byStatus(all);
}

/** Errors by status. Throws RangeError if the catalogue does not have this status for a code. */
export function byStatus(errors: readonly RouteError[]): Map<number, ErrorCode[]> {
  const placed = errors.map((error) =>
    typeof error === 'string' ? { code: error, status: statusOf(error) } : error,
  );
  for (const { code, status } of placed)
    if (!statusesOf(code).includes(status))
      throw new RangeError(`${code} does not have the status ${status}`);
  const order = Object.keys(errorCatalogue);
  const sorted = placed.toSorted(
    (a, b) => a.status - b.status || order.indexOf(a.code) - order.indexOf(b.code),
  );
  const found = new Map<number, ErrorCode[]>();
  for (const { code, status } of sorted) {
    const codes = found.get(status) ?? [];
    if (!codes.includes(code)) found.set(status, [...codes, code]);
  }
  return found;
}

function takesBody(method: string): boolean {
  return !['GET', 'HEAD'].includes(method.toUpperCase());
}

function statusOf(code: ErrorCode): number {
  return errorCatalogue[code].status;
}

function statusesOf(code: ErrorCode): number[] {
  const { status, also } = errorCatalogue[code];
  return [status, ...also];
}
