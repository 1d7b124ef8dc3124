/**
 * Authentication, body parsing and errors of the control routes.
 *
 * An error is `{error: {code, message}}`; a message about a body begins with the field.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { z } from 'zod';
import { type Incoming, json, type Reply } from '../http.ts';

/** An error response of a control route. */
export class ControlError extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/**
 * The error response to a request without the sandbox's key (if one is set), or with a body that is not JSON by its content
 * type. The content type prevents CSRF: another site would need a CORS preflight, which the sandbox never allows.
 */
export function refuseControl(
  head: { method: string; headers: IncomingHttpHeaders },
  key: string | undefined,
): Reply | undefined {
  if (key !== undefined && !isKey(head.headers.authorization ?? '', key)) {
    return controlError(401, {
      code: 'key_required',
      message: 'Send Authorization: Bearer <the key of the sandbox>.',
    });
  }
  const type = (head.headers['content-type'] ?? '').split(';', 1)[0]!.trim().toLowerCase();
  const hasBody = head.method === 'POST' || type !== '';
  if (hasBody && type !== 'application/json') {
    return controlError(415, {
      code: 'json_required',
      message: 'Send the body with content-type: application/json.',
    });
  }
  return undefined;
}

function isKey(authorization: string, key: string): boolean {
  const hash = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(hash(authorization), hash(`Bearer ${key}`));
}

/** The response of a control route as JSON that is not cached; a `ControlError` becomes an error response. */
export async function answerControl(work: () => Promise<unknown> | unknown): Promise<Reply> {
  try {
    return json(200, await work(), { 'cache-control': 'no-store' });
  } catch (error) {
    if (!(error instanceof ControlError)) throw error;
    return controlError(error.status, { code: error.code, message: error.message });
  }
}

/** The body of a control request, validated by `schema`. Throws a `ControlError` that names each invalid field. */
export function readBody<T extends z.ZodType>(request: Incoming, schema: T): z.infer<T> {
  let value: unknown;
  try {
    value = JSON.parse(request.body.toString());
  } catch {
    throw new ControlError(400, 'invalid_json', 'The body is not JSON.');
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const faults = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'body'}: ${message}`);
  throw new ControlError(400, 'invalid_body', faults.slice(0, 10).join('; '));
}

/** An error that names one field. */
export function invalid(field: string, message: string): ControlError {
  return new ControlError(400, 'invalid_body', `${field}: ${message}`);
}

function controlError(status: number, error: { code: string; message: string }): Reply {
  return json(status, { error }, { 'cache-control': 'no-store' });
}
