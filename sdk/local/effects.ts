/**
 * The changes of a run, kept in memory: records, checkpoint, metadata, locks. Handles the calls of the harness as the service
 * does, without network access.
 *
 * Does not own the external reads of a run (`reads.ts`).
 */
import type { Models } from '../functions/definitions.ts';
import { type Mismatch, ModelWrites, readId, type Stored } from './model-writes.ts';
import { asJson, type Json, type JsonObject, type Outcome, serviceError } from './outcome.ts';

type Args = JsonObject & { model: string; records: JsonObject[]; ids: string[]; key: string };
/** `original` has the arguments before their conversion to JSON. */
type Handler = (args: Args, original: { records?: unknown[] }) => unknown;

/** The limits of a checkpoint: its fields, and the characters of a string. */
const maxFields = 16;
const maxCharacters = 4_000;

export class Effects {
  readonly #models = new Map<string, ModelWrites>();
  readonly #locks = new Set<string>();
  #checkpoint: Json;
  #metadata: JsonObject;
  #state: string | undefined;
  readonly #stored: Stored;
  readonly #handlers: Record<string, Handler>;
  /** A line for each change of checkpoint, metadata and locks, in order. */
  readonly notes: string[] = [];

  constructor(initial: { models: Models; stored: Stored; checkpoint: Json; metadata: JsonObject }) {
    const { models, stored } = initial;
    this.#stored = stored;
    for (const [name, schema] of Object.entries(models))
      this.#models.set(name, new ModelWrites(name, { schema, stored }));
    this.#checkpoint = initial.checkpoint;
    this.#metadata = initial.metadata;
    this.#handlers = { ...this.#recordHandlers(), ...this.#connectionHandlers(), ...this.#lockHandlers() };
  }

  /** Handles a call of the harness. Throws the error that the service would return. `args` may contain values without a JSON form. */
  async handle(name: string, args: unknown): Promise<unknown> {
    const handler = Object.hasOwn(this.#handlers, name) ? this.#handlers[name] : undefined;
    if (handler === undefined)
      throw serviceError('not_found', `The context has no call "${name.slice(0, 100)}".`);
    return handler(asJson(args) as Args, (args ?? {}) as { records?: unknown[] });
  }

  get metadata(): JsonObject {
    return this.#metadata;
  }

  /** The records that do not match their model, by model. */
  get mismatches(): [string, Mismatch[]][] {
    return [...this.#models].flatMap(([name, { mismatches }]) =>
      mismatches.length > 0 ? [[name, mismatches] as [string, Mismatch[]]] : [],
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
      throw serviceError('invalid_body', `The function declares no model "${String(name).slice(0, 100)}".`);
    return found;
  }

  #recordHandlers(): Record<string, Handler> {
    return {
      batchSave: ({ model, records }, original) => {
        const writes = this.#model(model);
        writes.check(original.records ?? []);
        writes.save(records);
        return { duplicates: [] };
      },
      batchUpdate: ({ model, records }) => {
        this.#model(model).update(records);
        return { missing: [], deleted: [], pruned: [] };
      },
      batchDelete: ({ model, records }) => {
        const writes = this.#model(model);
        writes.delete(records.map((record) => deletedId(record)));
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
      getStoredRecords: (query) => this.#stored.records(query),
      schemaChanged: ({ model, changes }) => {
        this.#model(model);
        this.notes.push(`Changes of the fields of ${model} would be reported: ${JSON.stringify(changes)}`);
        return null;
      },
      setMergingStrategy: ({ model, strategy }) => {
        this.#model(model);
        if (strategy !== 'override' && strategy !== 'ignore_if_modified_after')
          throw argumentsFault(
            'setMergingStrategy',
            'strategy',
            'Invalid option: expected one of "override"|"ignore_if_modified_after"',
          );
        return null;
      },
    };
  }

  #connectionHandlers(): Record<string, Handler> {
    const set = (metadata: JsonObject) => {
      this.#metadata = metadata;
      this.notes.push(`Metadata would be ${JSON.stringify(metadata)}`);
      return null;
    };
    return {
      getMetadata: () => this.#metadata,
      setMetadata: ({ metadata }) => set(requireObject(metadata, { name: 'setMetadata', path: 'metadata' })),
      updateMetadata: ({ metadata }) =>
        set({ ...this.#metadata, ...requireObject(metadata, { name: 'updateMetadata', path: 'metadata' }) }),
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

  #lockHandlers(): Record<string, Handler> {
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

/** The error for an invalid argument of a call, with the message of the service's schema (zod). */
function argumentsFault(name: string, path: string, message: string): Error {
  return serviceError('invalid_body', `The arguments of ${name} are not valid (${path}: ${message}).`, [
    { message, path: path.split('.') },
  ]);
}

/** Throws if the argument of a call is not an object. */
function requireObject(value: Json | undefined, { name, path }: { name: string; path: string }): JsonObject {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  const type = value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;
  throw argumentsFault(name, path, `Invalid input: expected record, received ${type}`);
}

/** Throws if a checkpoint is not a flat object of at most 16 fields. */
function requireCheckpoint(checkpoint: Json | undefined): void {
  const fields = Object.entries(requireObject(checkpoint, { name: 'saveCheckpoint', path: 'checkpoint' }));
  const refuse = (path: string, message: string) => {
    throw argumentsFault('saveCheckpoint', path, message);
  };
  for (const [name, field] of fields) {
    const path = `checkpoint.${name}`;
    if (name.length < 1 || name.length > 255) refuse(path, 'Invalid key in record');
    if (!['string', 'number', 'boolean'].includes(typeof field)) refuse(path, 'Invalid input');
    if (typeof field === 'string' && field.length > maxCharacters)
      refuse(path, `Too big: expected string to have <=${maxCharacters} characters`);
  }
  if (fields.length > maxFields) refuse('checkpoint', `has more than ${maxFields} fields`);
}

function deletedId(record: JsonObject): string {
  const read = readId(record?.id);
  if ('id' in read) return read.id;
  throw serviceError('invalid_record', `A record to delete is not valid: ${read.fault}.`);
}
