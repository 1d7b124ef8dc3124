/**
 * The definition of a function, as its version stores it: parsed from the bundle's description of itself (`describe` of the
 * harness), once, at its deploy.
 *
 * Owns: the shape of a definition, and the validation of a bundle's description. No part of the description is trusted:
 * the customer's code can return anything.
 */
import { z } from 'zod';
import { text } from '../../http/text.ts';
import { readFrequency } from './frequency.ts';

const kinds = ['sync', 'action', 'on_event'] as const;
export type Kind = (typeof kinds)[number];

export const functionName = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,255}$/, 'must be up to 255 of A-Z a-z 0-9 _ -');
const modelName = /^[A-Za-z0-9][A-Za-z0-9_-]{0,254}$/;
/** Empty names, which some functions have, are left out. */
const scope = text({ max: 1024 });
const jsonSchema = z.record(z.string(), z.unknown());
export type JsonSchema = z.infer<typeof jsonSchema>;

/** When an event function runs. */
export const occasions = [
  'post-connection-creation',
  'pre-connection-deletion',
  'validate-connection',
] as const;

/** The form of `function_version.definition`. Fields of other kinds are null, false or empty. */
export const definition = z.object({
  kind: z.enum(kinds),
  description: z.string(),
  /** As its author wrote it, and in seconds. Only for syncs. */
  frequency: z.string().nullable(),
  frequency_s: z.int().nullable(),
  auto_start: z.boolean(),
  track_deletes: z.boolean(),
  sync_type: z.enum(['full', 'incremental']).nullable(),
  /** The names of the models that a sync saves. Their schemas are in `models_json_schema`. */
  models: z.array(z.string()),
  models_json_schema: z.object({ definitions: z.record(z.string(), jsonSchema) }),
  input: jsonSchema.nullable(),
  output: jsonSchema.nullable(),
  metadata: jsonSchema.nullable(),
  checkpoint: jsonSchema.nullable(),
  scopes: z.array(z.string()),
  webhook_subscriptions: z.array(z.string()),
  has_webhook: z.boolean(),
  event: z.enum(occasions).nullable(),
  /** It changes nothing at the provider. Only for actions. */
  read_only: z.boolean(),
  /** It is never run twice for one call. Only for actions. */
  once: z.literal(true).optional(),
  features: z.array(z.string()),
  sdk_version: z.string().nullable(),
});
export type Definition = z.infer<typeof definition>;

const kindOf = { sync: 'sync', action: 'action', onEvent: 'on_event' } as const;

/** An object without additional fields must have a field `id`. */
function mayHaveId(model: { properties?: unknown; additionalProperties?: unknown }): boolean {
  const { properties, additionalProperties } = model;
  if (typeof properties !== 'object' || properties === null) return true;
  return additionalProperties !== false || Object.hasOwn(properties, 'id');
}

const common = {
  description: text({ max: 10_000 }).optional(),
  version: text({ min: 1, max: 100 }).optional(),
  scopes: z.array(scope).max(200).nullish(),
  metadata: jsonSchema.nullish(),
  checkpoint: jsonSchema.nullish(),
};
const bundleDescription = z.discriminatedUnion(
  'type',
  [
    z.object({
      ...common,
      type: z.literal('sync'),
      frequency: text({ max: 100 }),
      autoStart: z.boolean().optional(),
      trackDeletes: z.boolean().optional(),
      syncType: z.enum(['full', 'incremental']).optional(),
      webhookSubscriptions: z
        .array(text({ min: 1, max: 1024 }))
        .max(1000)
        .optional(),
      hasWebhook: z.boolean(),
      models: z
        .record(
          z.string().regex(modelName, 'may contain A-Z a-z 0-9 _ -, and must not begin with _ or -'),
          jsonSchema.refine(mayHaveId, 'has no field `id`, which identifies its records'),
        )
        .refine((models) => Object.keys(models).length > 0, 'names no model')
        .refine((models) => Object.keys(models).length <= 100, 'names more than 100 models'),
      input: jsonSchema.nullish(),
    }),
    z.object({
      ...common,
      type: z.literal('action'),
      input: jsonSchema.nullish(),
      output: jsonSchema.nullish(),
      readOnly: z.boolean().optional(),
      once: z.boolean().optional(),
    }),
    z.object({ ...common, type: z.literal('onEvent'), event: z.enum(occasions) }),
  ],
  'is missing: export the result of createSync, createAction or createOnEvent as default',
);

/** `path` names the field of the authored definition. */
type DescriptionFault = { message: string; path: string[] };

/**
 * Parses the description of a bundle, or returns all of its faults. `label` is the author's version, `0.0.1` if there is none.
 */
export function readDescription(
  described: unknown,
  { features, sdkVersion }: { features: readonly string[]; sdkVersion: string | null },
): { definition: Definition; label: string } | { faults: DescriptionFault[] } {
  const read = bundleDescription.safeParse(described);
  if (!read.success) {
    return {
      faults: read.error.issues.map(({ path, message }) => ({ message, path: path.map(String) })),
    };
  }
  const { data } = read;
  const { description = '', version: label = '0.0.1', scopes, metadata = null, checkpoint = null } = data;
  const base: Definition = {
    kind: kindOf[data.type],
    description,
    frequency: null,
    frequency_s: null,
    auto_start: false,
    track_deletes: false,
    sync_type: null,
    models: [],
    models_json_schema: { definitions: {} },
    input: null,
    output: null,
    metadata,
    checkpoint,
    webhook_subscriptions: [],
    has_webhook: false,
    scopes: scopes?.filter((name) => name !== '') ?? [],
    event: null,
    read_only: false,
    features: [...features],
    sdk_version: sdkVersion,
  };
  if (data.type === 'action') {
    const { input = null, output = null, readOnly = false, once = false } = data;
    const own = { input, output, read_only: readOnly, ...(once && { once }) };
    return { label, definition: { ...base, ...own } };
  }
  if (data.type === 'onEvent') return { label, definition: { ...base, event: data.event } };
  const frequency = readFrequency(data.frequency);
  if ('fault' in frequency) {
    return { faults: [{ message: `"${data.frequency}" ${frequency.fault}`, path: ['frequency'] }] };
  }
  return {
    label,
    definition: {
      ...base,
      frequency: data.frequency,
      frequency_s: frequency.seconds,
      auto_start: data.autoStart ?? true,
      track_deletes: data.trackDeletes ?? false,
      sync_type: data.syncType ?? null,
      models: Object.keys(data.models),
      models_json_schema: { definitions: data.models },
      input: data.input ?? null,
      webhook_subscriptions: data.webhookSubscriptions ?? [],
      has_webhook: data.hasWebhook,
    },
  };
}
