import { z } from 'zod';
import type { AuthMode } from './mode.ts';

export type BasicCredentials = {
  readonly type: 'BASIC';
  readonly username: string;
  readonly password: string;
};

// RFC 7617 §2: no control characters in either, no colon in the user-id. Both may be empty.
const part = z
  .string()
  .max(1024)
  .regex(/^[^\p{Cc}]*$/u, 'must hold no control characters');
const importSchema = z.strictObject({
  type: z.literal('BASIC'),
  username: part.refine((username) => !username.includes(':'), 'must hold no colon'),
  password: part,
});

/** User name and password as `Authorization: Basic` (RFC 7617), in UTF-8. */
export const basic: AuthMode<BasicCredentials> = {
  name: 'BASIC',
  wayIn: 'form',
  importSchema,
  templateValues: ({ username, password }) => ({
    username,
    password,
    basic: Buffer.from(`${username}:${password}`, 'utf8').toString('base64'),
  }),
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a template of ours
  placement: [{ in: 'header', name: 'Authorization', value: 'Basic ${credentials.basic}' }],
  toWire: ({ type, username, password }) => ({ type, username, password }),
};
