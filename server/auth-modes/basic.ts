import { z } from 'zod';
import type { AuthMode } from './mode.ts';

type BasicCredentials = {
  readonly type: 'BASIC';
  readonly username: string;
  readonly password: string;
};

// RFC 7617 §2: no control characters in either, no colon in the user-id. Both may be empty.
const part = z
  .string()
  .max(1024)
  .regex(/^[^\p{Cc}]*$/u, 'must not contain control characters');
const importSchema = z.strictObject({
  type: z.literal('BASIC'),
  username: part.refine((username) => !username.includes(':'), 'must not contain a colon'),
  password: part,
});

/** User name and password as `Authorization: Basic` (RFC 7617), in UTF-8. */
export const basic: AuthMode<BasicCredentials> = {
  name: 'BASIC',
  client: 'none',
  ownCredentialsOnly: true,
  form: {
    path: '/api-auth/basic',
    operationId: 'connectByPassword',
    summary: 'Connect with a user name and a password',
    fields: { username: { secret: false }, password: { secret: true } },
  },
  importSchema,
  placeholders: ['username', 'password', 'basic'],
  templateValues: ({ username, password }) => ({
    username,
    password,
    basic: Buffer.from(`${username}:${password}`, 'utf8').toString('base64'),
  }),
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a template of the service
  placement: [{ in: 'header', name: 'Authorization', value: 'Basic ${credentials.basic}' }],
  toWire: ({ type, username, password }) => ({ type, username, password }),
};
