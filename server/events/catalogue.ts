import { z } from 'zod';
import { actionTypes } from './action-types.ts';
import { connectionTypes } from './connection-types.ts';
import type { DescribedType } from './event-type.ts';
import { functionTypes } from './function-types.ts';
import { grantTypes } from './grant-types.ts';
import { installationTypes } from './installation-types.ts';
import { recordTypes } from './record-types.ts';
import { syncTypes } from './sync-types.ts';
import { webhookTypes } from './webhook-types.ts';

/**
 * Every type of event there is: what it means, what it carries, what it looks like. docs/events.md is made from it. A
 * schema lets nothing pass that it does not name, so that nothing is told by accident.
 */
export const eventCatalogue = {
  ...connectionTypes,
  ...grantTypes,
  ...installationTypes,
  ...recordTypes,
  ...syncTypes,
  ...actionTypes,
  ...functionTypes,
  ...webhookTypes,
};

export type EventType = keyof typeof eventCatalogue;
/** What an event of each type carries. */
export type EventData = { [T in EventType]: z.input<(typeof eventCatalogue)[T]['data']> };
export const eventTypes = Object.keys(eventCatalogue) as EventType[];

/** The types of a name: one, or with `connection.*` all of those that begin so; none where nothing is called that. */
export function typesNamed(name: string): EventType[] {
  const beginning = name.endsWith('.*') ? name.slice(0, -1) : undefined;
  return eventTypes.filter((type) => (beginning === undefined ? type === name : type.startsWith(beginning)));
}

/** What an event looks like wherever it is seen: in the feed and at endpoints. */
export const eventWire = z.object({
  id: z.string(),
  type: z.string(),
  environment: z.string(),
  created_at: z.string(),
  data: z.record(z.string(), z.unknown()),
});
export type EventWire = z.infer<typeof eventWire>;

/** A type as callers see it: `data_schema` is JSON Schema (2020-12), `example` a whole event. */
export const typeWire = z.object({
  type: z.string(),
  meaning: z.string(),
  data_schema: z.record(z.string(), z.unknown()),
  example: eventWire,
});

/** The catalogue as callers see it. */
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
 * The schema of an event's data. Further properties are allowed, since later releases may add some; the pattern of a
 * time and the bounds of all integers are left out, since they say no more than `format` and `type` do.
 */
export function toJsonSchema(data: z.ZodObject): Record<string, unknown> {
  return z.toJSONSchema(data, {
    io: 'input',
    override({ jsonSchema }) {
      if (jsonSchema.additionalProperties === false) delete jsonSchema.additionalProperties;
      // The names of an object's properties are strings anyway.
      delete jsonSchema.propertyNames;
      if (jsonSchema.format !== undefined) delete jsonSchema.pattern;
      if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
    },
  });
}
