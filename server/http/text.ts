import { z } from 'zod';

/** Text that PostgreSQL can hold as it is: no NUL, no lone surrogate. */
export function text({ max, min = 0 }: { max: number; min?: number }): z.ZodString {
  return z
    .string()
    .min(min)
    .max(max)
    .refine((value) => value.isWellFormed() && !value.includes('\0'), 'holds a NUL or a lone surrogate');
}
