import { z } from 'zod';
import type { AuthMode } from './mode.ts';

type ApiKeyCredentials = { readonly type: 'API_KEY'; readonly apiKey: string };

const importSchema = z.strictObject({
  type: z.literal('API_KEY'),
  apiKey: z
    .string()
    .min(1)
    .max(1024)
    .regex(/^[\x20-\x7e\xa0-\xff]+$/, 'must be text that fits into a header'),
});

/** A key that the owner of the account created at the provider. The definition says where a request carries it. */
export const apiKey: AuthMode<ApiKeyCredentials> = {
  name: 'API_KEY',
  client: 'none',
  ownCredentialsOnly: true,
  form: {
    path: '/api-auth/api-key',
    operationId: 'connectByApiKey',
    summary: 'Connect with an API key',
    fields: { apiKey: { secret: true, required: true } },
  },
  importSchema,
  placeholders: ['apiKey'],
  templateValues: (credentials) => ({ apiKey: credentials.apiKey }),
  placement: [],
  definitionFaults: ({ placement, api }) =>
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a template of definitions
    placement.length === 0 && api.base_url?.includes('${credentials.apiKey}') === false
      ? [[['placement'], 'an API_KEY provider says where the key goes']]
      : [],
  toWire: ({ type, apiKey }) => ({ type, apiKey }),
};
