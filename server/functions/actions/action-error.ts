/** The error that the caller of a failed action receives. Pure. */
import { AppError, type ErrorCode, type FieldError } from '../../errors.ts';
import type { RunError } from '../runs/sealed-output.ts';

/** What the code threw, as a run keeps it. */
type Thrown = { name?: unknown; stack?: unknown; payload?: unknown };

/** Refusals of ours that say more than that the call failed. */
const own: ReadonlySet<string> = new Set([
  'connection_needs_reauth',
  'connection_blocked',
  'connection_refresh_failed',
  'missing_scopes',
  'quota_exhausted',
  'unavailable',
] satisfies ErrorCode[]);
const network: ReadonlySet<string> = new Set([
  'ERR_NETWORK',
  'upstream_unreachable',
  'upstream_timeout',
  'upstream_unreadable',
  'upstream_unknown_outcome',
]);

/** The codes and statuses that official clients expect (see `errors.ts`). */
export function actionError(error: RunError): AppError {
  const told = appErrorOf(error);
  told.quotesCode = true;
  return told;
}

function appErrorOf({ code, message, payload }: RunError): AppError {
  const thrown: Thrown = isObject(payload) ? payload : {};
  if (code === 'action_error') return thrownOnPurpose(message, thrown.payload);
  if (code === 'ERR_BAD_REQUEST' || code === 'ERR_BAD_RESPONSE') return refusedThere(message, thrown.payload);
  if (network.has(code)) return new AppError('script_network_error', message);
  if (own.has(code)) {
    // A refusal that went through the code is told as it was before.
    const facts = 'name' in thrown ? thrown.payload : payload;
    return new AppError(code as ErrorCode, message, facts === undefined ? {} : { payload: facts });
  }
  if (code === 'function_timeout') return new AppError('script_timeout', message);
  if (code === 'function_unavailable') return new AppError('unavailable', message, { retryAfterS: 1 });
  if (code === 'cancelled' || code === 'connection_deleted') return new AppError('script_cancelled', message);
  if (code === 'function_removed') return new AppError('not_found', message);
  if (code === 'function_disabled') return new AppError('disabled_resource', message);
  return new AppError('script_internal_error', message, {
    payload: {
      message,
      name: typeof thrown.name === 'string' ? thrown.name : code,
      stacktrace: typeof thrown.stack === 'string' ? thrown.stack.split('\n').map((line) => line.trim()) : [],
    },
  });
}

/** The payload is the author's, and the caller gets it as it is. */
function thrownOnPurpose(message: string, payload: unknown): AppError {
  const given = isObject(payload) ? payload : {};
  const errors = fieldErrors(given.errors);
  const details = { payload: payload ?? {}, ...(errors.length > 0 && { errors }) };
  if (given.type === 'invalid_action_input') return new AppError('invalid_action_input', message, details);
  if (given.type === 'invalid_action_output') return new AppError('invalid_action_output', message, details);
  return new AppError('action_script_runtime_error', message, { payload: payload ?? {} });
}

/** What the provider answered, where the code let it through. */
function refusedThere(message: string, payload: unknown): AppError {
  const { status, headers = {}, data } = isObject(payload) ? payload : {};
  if (typeof status !== 'number') return new AppError('script_network_error', message);
  const details = { payload: data ?? null, upstream: { status, headers, body: data ?? null } };
  return new AppError(
    'script_http_error',
    `The provider answered the action with status ${status}.`,
    details,
  );
}

const maxErrors = 100;

function fieldErrors(given: unknown): FieldError[] {
  if (!Array.isArray(given)) return [];
  return given.slice(0, maxErrors).flatMap((fault) => {
    if (!isObject(fault) || typeof fault.message !== 'string') return [];
    const { message, path } = fault;
    const parts = Array.isArray(path)
      ? path.map(String)
      : typeof path === 'string' && path !== ''
        ? path.split('.')
        : [];
    return [{ code: 'custom', message, path: ['input', ...parts] }];
  });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
