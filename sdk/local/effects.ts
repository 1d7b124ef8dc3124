/**
 * Everything a run may change, held in memory: records, checkpoint, metadata, locks. Answers as the service does, and
 * nothing leaves this process.
 *
 * Does not own what a run reads from outside (`reads.ts`).
 */
import type { Models } from '../functions/definitions.ts';
import { type Misfit, ModelWrites, readId, type Stored } from './model-writes.ts';
import { asJson, type Json, type JsonObject, type Outcome, refusal } from './outcome.ts';

type Args = JsonObject & { model: string; records: JsonObject[]; ids: string[]; key: string };
type Act = (args: Args, given: { records?: unknown[] }) => unknown;

const maxFields = 16;

export class Effects {
  readonly #models = new Map<string, ModelWrites>();
  readonly #locks = new Set<string>();
  #checkpoint: Json;
  #metadata: JsonObject;
  #state: string | undefined;
  readonly #stored: Stored;
  readonly #acts: Record<string, Act>;
  /** The changes of checkpoint, metadata and locks, in order, for the developer who runs the function. */
  readonly notes: string[] = [];

  constructor(given: { models: Models; stored: Stored; checkpoint: Json; metadata: JsonObject }) {
    const { models, stored } = given;
    this.#stored = stored;
    for (const [name, schema] of Object.entries(models))
      this.#models.set(name, new ModelWrites(name, { schema, stored }));
    this.#checkpoint = given.checkpoint;
    this.#metadata = given.metadata;
    this.#acts = { ...this.#ofRecords(), ...this.#ofConnection(), ...this.#ofLocks() };
  }

  /** Throws what the service would refuse. `args` may hold what JSON cannot. */
  async ask(name: string, args: unknown): Promise<unknown> {
    const act = Object.hasOwn(this.#acts, name) ? this.#acts[name] : undefined;
    if (act === undefined) throw refusal('not_found', `There is nothing called "${name}" to ask for.`);
    return act(asJson(args) as Args, (args ?? {}) as { records?: unknown[] });
  }

  get metadata(): JsonObject {
    return this.#metadata;
  }

  /** By model. */
  get misfits(): [string, Misfit[]][] {
    return [...this.#models].flatMap(([name, { misfits }]) =>
      misfits.length > 0 ? [[name, misfits] as [string, Misfit[]]] : [],
    );
  }

  get state(): string | undefined {
    return this.#state;
  }

  saveState(state: string): void {
    this.#state = state;
    this.notes.push(`State would be ${state.length} characters`);
  }

  outcome(): Pick<Outcome, 'records' | 'checkpoint' | 'metadata' | 'state'> {
    const records: Outcome['records'] = {};
    for (const [name, writes] of this.#models) {
      const effects = writes.effects();
      if (effects !== undefined) records[name] = effects;
    }
    const state = this.#state === undefined ? {} : { state: this.#state };
    return { records, checkpoint: this.#checkpoint, metadata: this.#metadata, ...state };
  }

  #model(name: unknown): ModelWrites {
    const found = this.#models.get(String(name));
    if (found === undefined)
      throw refusal('invalid_body', `The function declares no model "${String(name)}".`);
    return found;
  }

  #ofRecords(): Record<string, Act> {
    return {
      batchSave: ({ model, records }, given) => {
        const writes = this.#model(model);
        writes.check(given.records ?? []);
        writes.save(records);
        return { duplicates: [] };
      },
      batchUpdate: ({ model, records }) => {
        this.#model(model).update(records);
        return { missing: [], deleted: [], pruned: [] };
      },
      batchDelete: ({ model, records }) => {
        this.#model(model).delete(records.map((record) => readId(record?.id)));
        return null;
      },
      trackDeletesStart: ({ model }) => {
        this.#model(model).startTracking();
        return null;
      },
      trackDeletesEnd: async ({ model }) => ({ deletedKeys: await this.#model(model).endTracking() }),
      trackDeletesDrop: ({ model }) => {
        this.#model(model).dropTracking();
        return null;
      },
      listRecords: ({ model, cursor }) =>
        this.#model(model).page(typeof cursor === 'string' ? cursor : undefined),
      getRecordsByIds: ({ model, ids }) => this.#model(model).byIds(ids),
      getStoredRecords: (of) => this.#stored.records(of),
      schemaChanged: ({ model, changes }) => {
        this.#model(model);
        this.notes.push(`Changes of the fields of ${model} would be told: ${JSON.stringify(changes)}`);
        return null;
      },
      setMergingStrategy: ({ model, strategy }) => {
        this.#model(model);
        if (strategy !== 'override' && strategy !== 'ignore_if_modified_after')
          throw refusal('invalid_body', 'The strategy is to be `override` or `ignore_if_modified_after`.');
        return null;
      },
    };
  }

  #ofConnection(): Record<string, Act> {
    const set = (metadata: JsonObject) => {
      this.#metadata = metadata;
      this.notes.push(`Metadata would be ${JSON.stringify(metadata)}`);
      return null;
    };
    return {
      getMetadata: () => this.#metadata,
      setMetadata: ({ metadata }) => set(requireObject('setMetadata', metadata)),
      updateMetadata: ({ metadata }) =>
        set({ ...this.#metadata, ...requireObject('updateMetadata', metadata) }),
      getCheckpoint: () => this.#checkpoint,
      saveCheckpoint: ({ checkpoint }) => {
        requireCheckpoint(checkpoint);
        this.#checkpoint = checkpoint ?? null;
        this.notes.push(`Checkpoint would be ${JSON.stringify(checkpoint)}`);
        return null;
      },
      clearCheckpoint: () => {
        this.#checkpoint = null;
        this.notes.push('Checkpoint would be cleared');
        return null;
      },
    };
  }

  #ofLocks(): Record<string, Act> {
    return {
      tryAcquireLock: ({ key }) => {
        this.#locks.add(key);
        this.notes.push(`Lock "${key}" would be taken`);
        return true;
      },
      releaseLock: ({ key }) => this.#locks.delete(key),
      releaseAllLocks: () => {
        this.#locks.clear();
        return null;
      },
    };
  }
}

function requireObject(name: string, value: Json | undefined): JsonObject {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw refusal('invalid_body', `What was given to ${name} does not fit: it is to be an object.`);
}

/** Flat, with at most 16 fields. */
export function requireCheckpoint(value: Json | undefined): void {
  const fields = Object.entries(requireObject('saveCheckpoint', value));
  if (fields.length > maxFields)
    throw refusal(
      'invalid_body',
      `A checkpoint has at most ${maxFields} fields; this one has ${fields.length}.`,
    );
  for (const [name, field] of fields) {
    const fits = ['string', 'number', 'boolean'].includes(typeof field);
    if (!fits || (typeof field === 'string' && field.length > 4_000))
      throw refusal(
        'invalid_body',
        `The field "${name}" of a checkpoint is to be a text of up to 4,000 characters, a number or a boolean.`,
      );
  }
}
