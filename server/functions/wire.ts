import { z } from 'zod';
import { type JsonSchema, type Kind, occasions } from './deploys/definition.ts';
import { type DeployedFunction, wireKind } from './deploys/store.ts';

const schema = z.record(z.string(), z.unknown());

const sources = ['repo', 'folder', 'shipped'] as const;
/** How official clients call what was deployed. */
const sourceOf = { deploy: 'repo', folder: 'folder', shipped: 'shipped' } as const satisfies Record<
  DeployedFunction['origin'],
  (typeof sources)[number]
>;

/** One function. `input` and `returns` are names in `json_schema.definitions`. */
export const functionWire = z.object({
  id: z.int(),
  name: z.string(),
  type: z.enum(['sync', 'action', 'on-event']),
  description: z.string(),
  scopes: z.array(z.string()),
  enabled: z.boolean(),
  /** Of the version that runs: its number, and what its author calls it. */
  version: z.int(),
  version_label: z.string(),
  last_deployed: z.string(),
  source: z.enum(sources),
  metadata_schema: schema.nullable(),
  checkpoint_schema: schema.nullable(),
  input: z.string().optional(),
  returns: z.array(z.string()).optional(),
  json_schema: z.object({ definitions: z.record(z.string(), schema) }).optional(),
  /** Of syncs: as it was written, and in seconds. */
  runs: z.string().optional(),
  frequency_s: z.int().optional(),
  auto_start: z.boolean().optional(),
  track_deletes: z.boolean().optional(),
  webhook_subscriptions: z.array(z.string()).optional(),
  /** Of actions: changes nothing at the provider. */
  read_only: z.boolean().optional(),
  /** Of event functions. */
  event: z.enum(occasions).optional(),
});
type FunctionWire = z.input<typeof functionWire>;

export function toWire(found: DeployedFunction): FunctionWire {
  const { kind, definition } = found;
  const base = {
    id: found.id,
    name: found.name,
    type: wireKind(kind),
    description: definition.description,
    scopes: definition.scopes,
    enabled: found.isEnabled,
    version: found.number,
    version_label: found.label,
    last_deployed: found.deployedAt.toISOString(),
    source: sourceOf[found.origin],
    metadata_schema: definition.metadata,
    checkpoint_schema: definition.checkpoint,
  };
  if (kind === 'on_event') return { ...base, event: definition.event! };
  const schemas = schemasOf(found);
  if (kind === 'action') return { ...base, ...schemas, read_only: definition.read_only };
  return {
    ...base,
    ...schemas,
    runs: definition.frequency!,
    frequency_s: definition.frequency_s!,
    auto_start: definition.auto_start,
    track_deletes: definition.track_deletes,
    webhook_subscriptions: definition.webhook_subscriptions,
  };
}

/** How a kind that is named on the wire is called here. */
export function kindOf(type: FunctionWire['type'] | undefined): Kind | undefined {
  return type === 'on-event' ? 'on_event' : type;
}

/** An input and an output have no names of their own: they get some, for readers that want names. */
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
