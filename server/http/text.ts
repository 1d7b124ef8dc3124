import { z } from 'zod';

const storable = (value: string) => value.isWellFormed() && !value.includes('\0');
const unstorable = 'contains a NUL or a lone surrogate';

/** Text that PostgreSQL can store: no NUL, no lone surrogate. */
export function text({ max, min = 0 }: { max: number; min?: number }): z.ZodString {
  return z.string().min(min).max(max).refine(storable, unstorable);
}

/** A URL with http or https, of at most 2048 characters, that PostgreSQL can store. */
export function webAddress(): z.ZodType<string> {
  return z
    .url({ protocol: /^https?$/ })
    .max(2048)
    .refine(storable, unstorable);
}

/** A URL with any scheme, of at most 2048 characters, that PostgreSQL can store. The caller checks the scheme. */
export function anyAddress(): z.ZodType<string> {
  return z.url().max(2048).refine(storable, unstorable);
}
