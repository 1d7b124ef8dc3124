import { z } from 'zod';
import type { JsonValue } from './token-response.ts';

/** How tokens are written where they are imported and shown: the same in each mode that has them. */

/** RFC 6749 appendix A: tokens are printable ASCII. */
export const tokenText = z
  .string()
  .min(1)
  .max(65_536)
  .regex(/^[\x20-\x7e]+$/, 'must be printable ASCII');

/** RFC 6749 appendix A.1 and A.2: printable ASCII. */
export const clientText = z
  .string()
  .min(1)
  .max(4096)
  .regex(/^[\x20-\x7e]+$/, 'must be printable ASCII');

/** The end of a token, in UTC however it was given. */
export const expiryText = z.iso
  .datetime({ offset: true })
  .transform((given) => new Date(given).toISOString());

/** A provider's answer as it may be shown with an access token: without what renews one, wherever it stands. */
export function withoutRefreshToken(raw: JsonValue): JsonValue {
  return without(raw, /^(refresh_?token|client_?secret)$/i);
}

/** A provider's answer as it may be shown with a refresh token: the client's secret is the integration's. */
export function withoutClientSecret(raw: JsonValue): JsonValue {
  return without(raw, /^client_?secret$/i);
}

/** Some providers wrap their tokens. */
function without(value: JsonValue, names: RegExp): JsonValue {
  if (Array.isArray(value)) return value.map((inner) => without(inner, names));
  if (typeof value !== 'object' || value === null) return value;
  const kept = Object.entries(value).filter(([name]) => !names.test(name));
  return Object.fromEntries(kept.map(([name, inner]) => [name, without(inner, names)]));
}
