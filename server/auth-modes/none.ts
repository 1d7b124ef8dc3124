import { z } from 'zod';
import type { AuthMode } from './mode.ts';

export type NoCredentials = { readonly type: 'NONE' };

/** An API that asks for nothing: the connection only names who calls. */
export const none: AuthMode<NoCredentials> = {
  name: 'NONE',
  wayIn: 'click',
  importSchema: z.strictObject({ type: z.literal('NONE') }),
  templateValues: () => ({}),
  placement: [],
  toWire: () => ({}),
};
