/** Functions as JSON, and the fields that several routes share. */
import { z } from 'zod';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import { text } from '../http/text.ts';
import { type JsonSchema, type Kind, occasions } from './deploys/definition.ts';
import { type DeployedFunction, wireKind } from './deploys/store.ts';

const schema = z.record(z.string(), z.unknown());

const sources = ['repo', 'folder', 'shipped'] as const;
/** The names of official clients for the origins of functions. */
const sourceOf = { deploy: 'repo', folder: 'folder', shipped: 'shipped' } as const satisfies Record<
  DeployedFunction['origin'],
  (typeof sources)[number]
>;

export const functionType = z.enum(['sync', 'action', 'on-event']);

/** Query fields of a list of functions. */
export const functionPage = {
  search: text({ max: 255 }).optional(),
  page: z.coerce.number().int().min(0).max(1_000_000).default(0),
  limit: z.coerce.number().int().min(1).max(100).default(20),
};
export const pagination = z.object({ total: z.int(), page: z.int(), limit: z.int() });

/** One function. `input` and `returns` are names in `json_schema.definitions`. */
export const functionWire = z.object({
  id: z.int(),
  name: z.string(),
  type: functionType,
  description: z.string(),
  scopes: z.array(z.string()),
  enabled: z.boolean(),
  /** The number of the current version, and its author's name for it. */
  version: z.int(),
  version_label: z.string(),
  last_deployed: z.string(),
  source: z.enum(sources),
  metadata_schema: schema.nullable(),
  checkpoint_schema: schema.nullable(),
  input: z.string().optional(),
  returns: z.array(z.string()).optional(),
  json_schema: z.object({ definitions: z.record(z.string(), schema) }).optional(),
  /** For syncs: the frequency as its author wrote it, and in seconds. */
  runs: z.string().optional(),
  frequency_s: z.int().optional(),
  auto_start: z.boolean().optional(),
  track_deletes: z.boolean().optional(),
  webhook_subscriptions: z.array(z.string()).optional(),
  /** For actions: it changes nothing at the provider. */
  read_only: z.boolean().optional(),
  /** For event functions. */
  event: z.enum(occasions).optional(),
});
nameSchemas({ DeployedFunction: functionWire, Pagination: pagination });
type FunctionWire = z.input<typeof functionWire>;

export function toWire(found: DeployedFunction): FunctionWire {
  const { definition } = found;
  return {
    ...definedWire(found),
    id: found.id,
    enabled: found.isEnabled,
    version: found.number,
    last_deployed: found.deployedAt.toISOString(),
    source: sourceOf[found.origin],
    checkpoint_schema: definition.checkpoint,
    ...(found.kind === 'on_event' && { event: definition.event! }),
    ...(found.kind === 'sync' && { webhook_subscriptions: definition.webhook_subscriptions }),
  };
}

/** The fields that depend only on the definition, also for functions that are not deployed. */
export function definedWire(found: Pick<DeployedFunction, 'name' | 'kind' | 'definition' | 'label'>) {
  const { name, kind, definition, label } = found;
  const { description, scopes, metadata: metadata_schema } = definition;
  const base = { name, type: wireKind(kind), description, scopes, version_label: label, metadata_schema };
  if (kind === 'on_event') return base;
  const schemas = schemasOf(found);
  if (kind === 'action') return { ...base, ...schemas, read_only: definition.read_only };
  return {
    ...base,
    ...schemas,
    runs: definition.frequency!,
    frequency_s: definition.frequency_s!,
    auto_start: definition.auto_start,
    track_deletes: definition.track_deletes,
  };
}

/** The kind for a name on the wire. */
export function kindOf(type: FunctionWire['type']): Kind {
  return type === 'on-event' ? 'on_event' : type;
}

/** The schemas of a function by name. Input and output have no names of their own, so names are derived. */
export function schemasOf({
  name,
  kind,
  definition,
}: Pick<DeployedFunction, 'name' | 'kind' | 'definition'>): {
  input?: string;
  returns: string[];
  json_schema: { definitions: Record<string, JsonSchema> };
} {
  const { input, output, models, models_json_schema } = definition;
  const inputName = `${pascal(name)}Input`;
  const outputName = `${pascal(name)}Output`;
  return {
    ...(input !== null && { input: inputName }),
    returns: kind === 'action' ? (output === null ? [] : [outputName]) : models,
    json_schema: {
      definitions: {
        ...models_json_schema.definitions,
        ...(input !== null && { [inputName]: input }),
        ...(kind === 'action' && output !== null && { [outputName]: output }),
      },
    },
  };
}

function pascal(name: string): string {
  return name
    .split(/[-_]+/)
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join('');
}
