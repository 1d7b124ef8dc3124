import { z } from 'zod';

/** An address that somebody can sign in with: better-auth judges by the same. RFC 5321 §4.5.3.1.3 allows 254 characters. */
export const emailAddress = z.email().max(254);
