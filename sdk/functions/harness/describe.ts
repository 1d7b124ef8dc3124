import type { z } from 'zod';
import type { ActionDefinition, Definition, OnEventDefinition, SyncDefinition } from '../definitions.ts';

/**
 * What a function says of itself, as JSON: read once, when it is deployed. Schemas are JSON Schema (draft 7); what has no
 * counterpart there is any value. The service judges the answer, which the function's own code could have changed.
 */
export function describe(definition: Definition): Record<string, unknown> {
  const { type, description, version, scopes, metadata, checkpoint } = definition;
  // Each field is absent where its kind has none.
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
  // Asked for here alone: no run pays for it. It is the one that made the schema.
  const { toJSONSchema } = require('zod') as typeof import('zod');
  const { $schema: _, ...rest } = toJSONSchema(schema, { target: 'draft-7', unrepresentable: 'any', io });
  return rest;
}
