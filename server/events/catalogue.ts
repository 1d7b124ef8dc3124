import { z } from 'zod';
import type { Brand } from '../brand.ts';
import type { PathItem } from '../http/openapi/openapi-operation.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import { type DescribedType, type EventType, eventCatalogue, eventTypes } from './event-types.ts';

/** The types of events in the API and in the OpenAPI document. */

/** Returns the types of a name: one type, all types of a group such as `connection.*`, or none. */
export function typesNamed(name: string): EventType[] {
  const beginning = name.endsWith('.*') ? name.slice(0, -1) : undefined;
  return eventTypes.filter((type) => (beginning === undefined ? type === name : type.startsWith(beginning)));
}

/** An event in the feed and at endpoints. */
export const eventWire = z.object({
  id: z.string(),
  type: z.string(),
  environment: z.string(),
  created_at: z.string(),
  data: z.record(z.string(), z.unknown()),
});
export type EventWire = z.infer<typeof eventWire>;

/** A type in the API: `data_schema` is JSON Schema (2020-12), `example` is a whole event. */
export const typeWire = z.object({
  type: z.string(),
  meaning: z.string(),
  data_schema: z.record(z.string(), z.unknown()),
  example: eventWire,
});
nameSchemas({ Event: eventWire, EventType: typeWire });

export function typesToWire(): z.infer<typeof typeWire>[] {
  return Object.entries<DescribedType>(eventCatalogue).map(([type, { meaning, data, example }]) => ({
    type,
    meaning,
    data_schema: toJsonSchema(data),
    example: {
      id: 'f8cd4a51-e8fb-4f1a-8fbd-2872b2aa1b09',
      type,
      environment: 'dev',
      created_at: '2026-11-21T10:15:17.733Z',
      data: { ...example },
    },
  }));
}

/**
 * Converts the schema of an event's data. Further properties are allowed, since later releases may add some. The
 * pattern of a time and the bounds of all integers are left out, since `format` and `type` already imply them.
 */
export function toJsonSchema(data: z.ZodObject): Record<string, unknown> {
  return z.toJSONSchema(data, {
    io: 'input',
    override({ jsonSchema }) {
      if (jsonSchema.additionalProperties === false) delete jsonSchema.additionalProperties;
      // The names of properties are always strings.
      delete jsonSchema.propertyNames;
      if (jsonSchema.format !== undefined) delete jsonSchema.pattern;
      if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
    },
  });
}

/** The `webhooks` of the OpenAPI document, one for each type of event. */
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
          parameters: signatureHeaders(brand),
          requestBody: {
            required: true,
            content: { 'application/json': { schema: envelopeOf(type, data), example: examples.get(type) } },
          },
          responses: {
            '2XX': {
              description: 'Received. After any other response, the event is sent again for three days.',
            },
          },
        },
      },
    ]),
  );
}

function envelopeOf(type: string, data: z.ZodObject) {
  const name = type.split(/[._]/).map(capital).join('');
  return {
    title: `${name}Event`,
    type: 'object',
    properties: {
      id: { type: 'string', description: 'The same in each attempt.' },
      type: { const: type },
      environment: { type: 'string' },
      created_at: { type: 'string', format: 'date-time' },
      data: { title: `${name}EventData`, ...withoutDialect(toJsonSchema(data)) },
    },
    required: ['id', 'type', 'environment', 'created_at', 'data'],
  };
}

/** The document names the dialect of its schemas once. */
function withoutDialect({ $schema: _, ...schema }: Record<string, unknown>) {
  return schema;
}

function signatureHeaders(brand: Brand) {
  const headers: [string, string, string][] = [
    ['webhook-id', 'The `id` of the event.', 'f8cd4a51-e8fb-4f1a-8fbd-2872b2aa1b09'],
    ['webhook-timestamp', 'The time at which it was sent, in seconds since 1970.', '1795256117'],
    ['webhook-signature', 'By Standard Webhooks, one for each signing key, separated by spaces.', 'v1,...'],
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
