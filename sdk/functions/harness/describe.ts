import type { z } from 'zod';
import type { ActionDefinition, Definition, OnEventDefinition, SyncDefinition } from '../definitions.ts';

/**
 * The description of a function as JSON, for its deploy. Schemas are JSON Schema (draft 7); types without a counterpart there
 * accept any value. The service validates the description, which the code of the function can change.
 */
export function describe(definition: Definition): Record<string, unknown> {
  const { type, description, version, scopes, metadata, checkpoint } = definition;
  // A field is absent for kinds without it.
  const of = definition as Partial<
    Omit<SyncDefinition, 'exec'> & Omit<ActionDefinition, 'exec'> & Omit<OnEventDefinition, 'exec'>
  >;
  const models = Object.entries(of.models ?? {}).map(([name, model]) => [name, jsonSchema(model, 'output')]);
  return {
    type,
    description,
    version,
    scopes,
    frequency: of.frequency,
    autoStart: of.autoStart,
    trackDeletes: of.trackDeletes,
    syncType: of.syncType,
    webhookSubscriptions: of.webhookSubscriptions,
    hasWebhook: typeof of.onWebhook === 'function',
    readOnly: of.readOnly,
    once: of.once,
    event: of.event,
    models: Object.fromEntries(models),
    input: jsonSchema(of.input, 'input'),
    output: jsonSchema(of.output, 'output'),
    metadata: jsonSchema(metadata, 'input'),
    checkpoint: jsonSchema(checkpoint, 'input'),
  };
}

function jsonSchema(schema: z.ZodType | undefined, io: 'input' | 'output'): unknown {
  if (schema === undefined || schema === null) return null;
  // Required only here, so that runs do not load it. It is the zod that made the schema.
  const { toJSONSchema } = require('zod') as typeof import('zod');
  const { $schema: _, ...rest } = toJSONSchema(schema, { target: 'draft-7', unrepresentable: 'any', io });
  return rest;
}
