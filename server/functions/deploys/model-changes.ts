/** The differences between the models of two versions of a sync, and the event that reports them. */
import { isDeepStrictEqual } from 'node:util';
import type { Tx } from '../../db/pool.ts';
import type { EventData } from '../../events/event-types.ts';
import { queueEvent } from '../../events/outbox.ts';
import type { Definition, JsonSchema } from './definition.ts';

type ModelChange = EventData['function.models_changed']['models'][number];
type Models = Pick<Definition, 'models_json_schema'>;

/** The models that differ, by name. */
function modelChanges(before: Models, after: Models): ModelChange[] {
  const [former, later] = [before, after].map(
    ({ models_json_schema: of }) => new Map(Object.entries(of.definitions)),
  );
  const names = [...new Set([...former!.keys(), ...later!.keys()])].sort();
  return names.flatMap((model): ModelChange[] => {
    const [from, to] = [former!.get(model), later!.get(model)];
    if (isDeepStrictEqual(from, to)) return [];
    const none = { model, added: [], removed: [], changed: [] };
    if (from === undefined) return [{ ...none, change: 'added' }];
    if (to === undefined) return [{ ...none, change: 'removed' }];
    return [{ model, change: 'changed', ...fieldChanges(from, to) }];
  });
}

function fieldChanges(from: JsonSchema, to: JsonSchema) {
  const [former, later] = [fieldsOf(from), fieldsOf(to)];
  return {
    added: [...later.keys()].filter((name) => !former.has(name)),
    removed: [...former.keys()].filter((name) => !later.has(name)),
    changed: [...later].flatMap(([name, of]) =>
      former.has(name) && !isDeepStrictEqual(former.get(name), of) ? [name] : [],
    ),
  };
}

/** The fields of a model, each with its schema and whether it is required. */
function fieldsOf({ properties, required }: JsonSchema): Map<string, unknown> {
  const isRequired = new Set(Array.isArray(required) ? required : []);
  const named = typeof properties === 'object' && properties !== null ? Object.entries(properties) : [];
  return new Map(named.map(([name, of]) => [name, { of, isRequired: isRequired.has(name) }]));
}

type Running = { number: number; definition: Definition };

/** Queues `function.models_changed` if the models of the new version differ from those of the previous one. */
export async function queueModelChangesEvent(
  tx: Tx,
  {
    environmentId,
    integrationKey,
    name,
    before,
    after,
  }: { environmentId: number; integrationKey: string; name: string; before: Running; after: Running },
): Promise<void> {
  const models = modelChanges(before.definition, after.definition);
  if (models.length === 0) return;
  await queueEvent(tx, {
    environmentId,
    type: 'function.models_changed',
    data: {
      provider_config_key: integrationKey,
      function: name,
      version: after.number,
      previous_version: before.number,
      models,
    },
  });
}
