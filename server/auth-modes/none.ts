import { z } from 'zod';
import type { AuthMode } from './mode.ts';

type NoCredentials = { readonly type: 'NONE' };

/** An API without credentials: the connection only names the caller. */
export const none: AuthMode<NoCredentials> = {
  name: 'NONE',
  client: 'none',
  ownCredentialsOnly: false,
  form: {
    path: '/auth/unauthenticated',
    operationId: 'connectWithoutCredentials',
    summary: 'Connect without credentials',
    example: {},
    fields: {},
  },
  importSchema: z.strictObject({ type: z.literal('NONE') }),
  placeholders: [],
  templateValues: () => ({}),
  placement: [],
  toWire: () => ({}),
};
