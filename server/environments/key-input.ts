import { z } from 'zod';
import { scopes } from '../http/caller.ts';
import { proxyRules } from '../http/proxy-rule.ts';
import { text } from '../http/text.ts';

/** The fields of a new key, for every entry point that creates one. */

/** What the key of the setting is called, and no other. */
export const settingName = 'TRELLIS_SECRET_KEY';

export const keyName = text({ min: 1, max: 255 }).refine(
  (given) => given !== settingName,
  'stands for the key of the setting',
);
export const scopeList = z
  .array(z.enum(['*', ...scopes]))
  .min(1)
  .refine((list) => new Set(list).size === list.length, 'names a scope twice');
/** With a zone; `readExpiry` judges it. Of a year that ISO 8601 writes with four digits in every zone. */
export const expiry = z.iso
  .datetime({ offset: true })
  .refine((given) => new Date(given).getUTCFullYear() <= 9999, 'must be before the year 10000');
/** Calls a minute. */
export const rateLimit = z.number().int().min(1).max(1_000_000);
export const newKey = z.strictObject({
  name: keyName,
  scopes: scopeList,
  proxy_rules: proxyRules.optional(),
  expires_at: expiry.optional(),
  rate_limit: rateLimit.optional(),
  replaces: z.number().int().min(1).max(Number.MAX_SAFE_INTEGER).optional(),
});

/** Undefined where it is no time to come. */
export function readExpiry(given: string, now: Date): Date | undefined {
  const at = new Date(given);
  return at > now ? at : undefined;
}
