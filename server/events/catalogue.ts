import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { JsonSchema } from '../http/openapi/examples.ts';
import type { PathItem } from '../http/openapi/openapi-operation.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import { withIntegrationId, withResponseNames } from '../http/spellings.ts';
import {
  type DescribedType,
  type EventType,
  eventCatalogue,
  eventTypes,
  ofConnection,
  ofDataset,
  ofIntegration,
} from './event-types.ts';

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
      data: withIntegrationId({ ...example }),
    },
  }));
}

/**
 * Converts the schema of an event's data to that of the data which receivers get, with `integration_id`. Further properties are
 * allowed, since later releases may add some. The pattern of a time and the bounds of all integers are left out, since `format`
 * and `type` already imply them.
 */
export function toJsonSchema(data: z.ZodObject): Record<string, unknown> {
  return z.toJSONSchema(data, {
    io: 'input',
    override({ jsonSchema }) {
      if (jsonSchema.additionalProperties === false) delete jsonSchema.additionalProperties;
      // The names of properties are always strings.
      delete jsonSchema.propertyNames;
      if (jsonSchema.properties?.provider_config_key !== undefined)
        Object.assign(jsonSchema, withResponseNames(jsonSchema as JsonSchema));
      if (jsonSchema.format !== undefined) delete jsonSchema.pattern;
      if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
    },
  });
}

/** The `webhooks` of the OpenAPI document, one for each type of event. */
export function eventWebhooks(): Record<string, PathItem> {
  const examples = new Map(typesToWire().map(({ type, example }) => [type, example]));
  return Object.fromEntries(
    Object.entries<DescribedType>(eventCatalogue).map(([type, { meaning, data }]) => [
      type,
      {
        post: {
          operationId: `on${type.split(/[._]/).map(capital).join('')}`,
          description: meaning,
          tags: ['events'],
          requestBody: {
            required: true,
            content: { 'application/json': { schema: envelopeOf(type, data), example: examples.get(type) } },
          },
          responses: {
            '2XX': {
              description: 'Received. Otherwise, the event is sent again for three days.',
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
    allOf: [
      envelope,
      {
        properties: {
          type: { const: type },
          data: { title: `${name}EventData`, ...withSubject(withoutDialect(toJsonSchema(data))) },
        },
        required: ['type', 'data'],
      },
    ],
  };
}

/** What all events have. */
const envelope: JsonSchema = {
  title: 'EventEnvelope',
  type: 'object',
  properties: {
    id: { type: 'string', description: 'The same in each attempt.' },
    environment: { type: 'string' },
    created_at: { type: 'string', format: 'date-time' },
  },
  required: ['id', 'environment', 'created_at'],
};

/** What all events about a connection, a dataset or an integration have: the first that fits is the largest. */
const subjects = Object.entries({
  ConnectionSubject: ofConnection,
  DatasetSubject: ofDataset,
  IntegrationSubject: ofIntegration,
}).map(([title, fields]): JsonSchema => ({ title, ...withoutDialect(toJsonSchema(z.strictObject(fields))) }));

/** Refers to the schema of the subject instead of repeating its fields. */
function withSubject(schema: JsonSchema): JsonSchema {
  const { type: _, properties = {}, required = [], ...rest } = schema;
  const subject = subjects.find(({ properties: own = {} }) =>
    Object.entries(own).every(([name, part]) => isDeepStrictEqual(properties[name], part)),
  );
  if (subject === undefined) return schema;
  const isFurther = (name: string) => !Object.hasOwn(subject.properties ?? {}, name);
  const further = Object.entries(properties).filter(([name]) => isFurther(name));
  const part = {
    properties: Object.fromEntries(further),
    required: required.filter(isFurther),
  };
  return { ...rest, allOf: [subject, ...(further.length > 0 ? [part] : [])] };
}

/** The document names the dialect of its schemas once. */
function withoutDialect({ $schema: _, ...schema }: Record<string, unknown>): JsonSchema {
  return schema;
}

function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}
