import type { z } from 'zod';
import type { Brand } from '../brand.ts';
import type { PathItem } from '../http/openapi-operation.ts';
import { eventCatalogue, toJsonSchema, typesToWire } from './catalogue.ts';
import type { DescribedType } from './event-type.ts';

/** What the application is told, as the `webhooks` of the document: one for each type of event. docs/events.md says more. */
export function eventWebhooks(brand: Brand): Record<string, PathItem> {
  const examples = new Map(typesToWire().map(({ type, example }) => [type, example]));
  return Object.fromEntries(
    Object.entries<DescribedType>(eventCatalogue).map(([type, { meaning, data }]) => [
      type,
      {
        post: {
          operationId: `on${type.split(/[._]/).map(capital).join('')}`,
          summary: type,
          description: meaning,
          tags: ['events'],
          parameters: signedWith(brand),
          requestBody: {
            required: true,
            content: { 'application/json': { schema: envelopeOf(type, data), example: examples.get(type) } },
          },
          responses: {
            '2XX': { description: 'Taken. Whatever else is answered, it is sent again, for three days.' },
          },
        },
      },
    ]),
  );
}

function envelopeOf(type: string, data: z.ZodObject) {
  return {
    type: 'object',
    properties: {
      id: { type: 'string', description: 'The same whenever it is sent again.' },
      type: { const: type },
      environment: { type: 'string' },
      created_at: { type: 'string', format: 'date-time' },
      data: withoutDialect(toJsonSchema(data)),
    },
    required: ['id', 'type', 'environment', 'created_at', 'data'],
  };
}

/** The document says once which dialect its schemas are in. */
function withoutDialect({ $schema: _, ...schema }: Record<string, unknown>) {
  return schema;
}

function signedWith(brand: Brand) {
  const headers: [string, string, string][] = [
    ['webhook-id', 'The `id` of the event.', 'f8cd4a51-e8fb-4f1a-8fbd-2872b2aa1b09'],
    ['webhook-timestamp', 'When it was sent, in seconds since 1970.', '1795256117'],
    [
      'webhook-signature',
      'Of Standard Webhooks, one for each key that signs, separated by spaces.',
      'v1,...',
    ],
    [
      brand.header('Hmac-Sha256'),
      'HMAC-SHA256 of the body with the newest key, in hexadecimal.',
      '9f86d0...',
    ],
  ];
  return headers.map(([name, description, example]) => ({
    ...{ name, in: 'header', required: true, description },
    ...{ schema: { type: 'string' }, example },
  }));
}

function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}
