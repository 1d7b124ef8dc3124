import { z } from 'zod';

/** An address of a user, by the rule of better-auth. RFC 5321 §4.5.3.1.3 allows 254 characters. */
export const emailAddress = z.email().max(254);
