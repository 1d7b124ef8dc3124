import { z } from 'zod';
import type { AuthMode } from './mode.ts';

export type ApiKeyCredentials = { readonly type: 'API_KEY'; readonly apiKey: string };

const importSchema = z.strictObject({
  type: z.literal('API_KEY'),
  apiKey: z
    .string()
    .min(1)
    .max(1024)
    .regex(/^[\x20-\x7e\xa0-\xff]+$/, 'must be text that fits into a header'),
});

/** A key that the account's owner made at the provider. Where it goes is for the definition to say. */
export const apiKey: AuthMode<ApiKeyCredentials> = {
  name: 'API_KEY',
  wayIn: 'form',
  importSchema,
  templateValues: (credentials) => ({ apiKey: credentials.apiKey }),
  placement: [],
  toWire: ({ type, apiKey }) => ({ type, apiKey }),
};
