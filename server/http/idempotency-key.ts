/** The header Idempotency-Key: which routes accept it, and its form. `idempotency/` does what it promises. */
import type { IncomingHttpHeaders } from 'node:http';
import { AppError } from '../errors.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route accepts the header. Its answers must be complete texts, not streams. */
    idempotent?: true;
  }
  interface FastifyRequest {
    /** Set by the key: the work continues when the caller disconnects, since a repeat reads the answer. */
    outlivesCaller?: true;
  }
}

export const idempotencyKey = {
  name: 'idempotency-key',
  description:
    'A repeat with the same key, query, headers and body does nothing and gets the answer of the first call, for 24 hours, ' +
    'with `Idempotency-Replayed: true`.',
  schema: { type: 'string', minLength: 1, maxLength: 255, pattern: '^[!-~]+$' },
  example: '6f1f9a52-4f0e-4c1b-9a57-0e1f6e2b7c11',
} as const;

const form = /^[!-~]{1,255}$/;

/** Undefined without the header. Throws `invalid_headers` if it is not a key. */
export function readIdempotencyKey(headers: IncomingHttpHeaders): string | undefined {
  const key = headers[idempotencyKey.name];
  if (key === undefined) return undefined;
  if (typeof key === 'string' && form.test(key)) return key;
  const message = 'Idempotency-Key must have 1 to 255 visible ASCII characters.';
  throw new AppError('invalid_headers', message, {
    errors: [{ code: 'invalid_format', message, path: [idempotencyKey.name] }],
  });
}
