import type { z } from 'zod';
import { type Json, type JsonObject, type ModelEffects, type StoredRecord, serviceError } from './outcome.ts';

/** The stored records before the run. */
export type Stored = {
  /** Returns a page of the connection and variant of the run, including deleted records. */
  page(
    model: string,
    cursor: string | undefined,
  ): Promise<{ records: JsonObject[]; next_cursor: string | null }>;
  byIds(model: string, ids: string[]): Promise<JsonObject[]>;
  isDeleted(record: JsonObject): boolean;
  /** Returns records of any model and variant of the connection, separate from their metadata. */
  records(query: {
    model: string;
    variant?: string;
    ids: string[];
  }): Promise<{ record: JsonObject; metadata: Json }[]>;
};

/** An empty cache. */
export const nothingStored: Stored = {
  page: async () => ({ records: [], next_cursor: null }),
  byIds: async () => [],
  isDeleted: () => false,
  records: async () => [],
};

/** A record that does not match its model. The service logs one warning for each model and run, and stores the record. */
export type Mismatch = { id: string; path: string; message: string };

/** The cursor of the page after the stored ones, with the records that this run has saved. */
const savedPage = 'of this run';

/** The writes of a run to the records of one model. */
export class ModelWrites {
  readonly #name: string;
  readonly #schema: z.ZodType;
  readonly #stored: Stored;
  readonly #saved = new Map<string, StoredRecord>();
  readonly #updated = new Map<string, StoredRecord>();
  readonly #deleted = new Set<string>();
  /** The IDs saved since delete tracking started; undefined without delete tracking. */
  #tracked: Set<string> | undefined;
  readonly mismatches: Mismatch[] = [];

  constructor(name: string, { schema, stored }: { schema: z.ZodType; stored: Stored }) {
    this.#name = name;
    this.#schema = schema;
    this.#stored = stored;
  }

  /** Checks records before their conversion to JSON, because a schema may require dates. */
  check(records: readonly unknown[]): void {
    for (const record of records) {
      const issue = this.#schema.safeParse(record).error?.issues[0];
      if (issue === undefined) continue;
      const id = String((record as { id?: unknown } | null)?.id);
      this.mismatches.push({ id, path: issue.path.join('.'), message: issue.message });
    }
  }

  save(records: readonly JsonObject[]): void {
    for (const record of withIds(records)) {
      this.#updated.delete(record.id);
      this.#deleted.delete(record.id);
      this.#tracked?.add(record.id);
      this.#saved.delete(record.id);
      this.#saved.set(record.id, record);
    }
  }

  update(records: readonly JsonObject[]): void {
    for (const part of withIds(records)) {
      if (this.#deleted.has(part.id)) continue;
      this.#tracked?.add(part.id);
      const saved = this.#saved.get(part.id);
      if (saved === undefined) this.#updated.set(part.id, merged(this.#updated.get(part.id) ?? {}, part));
      else this.#saved.set(part.id, merged(saved, part));
    }
  }

  delete(ids: readonly string[]): void {
    for (const id of ids) {
      this.#saved.delete(id);
      this.#updated.delete(id);
      this.#deleted.add(id);
    }
  }

  startTracking(): void {
    this.#tracked ??= new Set();
  }

  dropTracking(): void {
    this.#tracked = undefined;
  }

  /** Deletes the stored records that were not saved since the start of delete tracking, and returns their IDs. */
  async endTracking(): Promise<string[]> {
    const tracked = this.#tracked;
    if (tracked === undefined)
      throw serviceError('no_delete_tracking', 'No delete tracking is open. Start one before the sync.');
    this.#tracked = undefined;
    const deleted: string[] = [];
    for (let cursor: string | undefined; ; ) {
      const page = await this.#stored.page(this.#name, cursor);
      for (const record of page.records) {
        const id = String(record.id);
        if (!tracked.has(id) && !this.#deleted.has(id) && !this.#stored.isDeleted(record)) deleted.push(id);
      }
      if (page.next_cursor === null) break;
      cursor = page.next_cursor;
    }
    this.delete(deleted);
    return deleted;
  }

  /** Returns a page as the run reads it: the records that it saved come last. */
  async page(cursor: string | undefined): Promise<{ records: JsonObject[]; next_cursor: string | null }> {
    if (cursor === savedPage) return { records: [...this.#saved.values()], next_cursor: null };
    const { records, next_cursor } = await this.#stored.page(this.#name, cursor);
    const unchanged = records.filter(
      ({ id }) => !this.#saved.has(String(id)) && !this.#deleted.has(String(id)),
    );
    return {
      records: unchanged.map((record) => this.#asUpdated(record)),
      next_cursor: next_cursor ?? (this.#saved.size > 0 ? savedPage : null),
    };
  }

  async byIds(ids: readonly string[]): Promise<JsonObject[]> {
    const own = ids.flatMap((id) => this.#saved.get(id) ?? []);
    const others = ids.filter((id) => !this.#saved.has(id) && !this.#deleted.has(id));
    if (others.length === 0) return own;
    const stored = await this.#stored.byIds(this.#name, others);
    const live = stored.filter((record) => !this.#stored.isDeleted(record));
    return [...own, ...live.map((record) => this.#asUpdated(record))];
  }

  /** Returns undefined if nothing would change. */
  effects(): ModelEffects | undefined {
    if (this.#saved.size + this.#updated.size + this.#deleted.size === 0) return undefined;
    return {
      saved: [...this.#saved.values()],
      updated: [...this.#updated.values()],
      deleted: [...this.#deleted],
    };
  }

  #asUpdated(record: JsonObject): JsonObject {
    const part = this.#updated.get(String(record.id));
    return part === undefined ? record : merged(record, part);
  }
}

/** The string that an ID stands for, or why the ID is not valid, as in the service. */
export function readId(id: unknown): { id: string } | { fault: string } {
  if (typeof id === 'number') {
    return Number.isSafeInteger(id) ? { id: String(id) } : { fault: 'A numeric id must be a safe integer' };
  }
  if (typeof id !== 'string') return { fault: 'An id is a string or an integer' };
  if (id === '') return { fault: 'An id has at least 1 character' };
  if ([...id].length > 255) return { fault: 'An id has at most 255 characters' };
  if (id.includes('\0')) return { fault: 'An id has no NUL character' };
  return id.isWellFormed() ? { id } : { fault: 'An id has no lone surrogate' };
}

/** The records with their IDs as strings. Throws `invalid_record` if any of them is not valid. */
function withIds(records: readonly JsonObject[]): StoredRecord[] {
  const errors: { message: string; path: string[] }[] = [];
  const checked = records.flatMap((record, index) => {
    const path = ['records', String(index)];
    if (!isObject(record)) errors.push({ path, message: 'A record is an object' });
    else {
      const read = readId(record.id);
      if ('id' in read) return [{ ...record, id: read.id }];
      errors.push({ path: [...path, 'id'], message: read.fault });
    }
    return [];
  });
  const [fault] = errors;
  if (fault === undefined) return checked;
  const message = `A record is not valid. Nothing was saved. ${fault.path.join('.')}: ${fault.message}`;
  throw serviceError('invalid_record', message, errors);
}

/** Merges objects recursively; other values replace the previous value. */
function merged(into: JsonObject, part: JsonObject): StoredRecord {
  const all: JsonObject = { ...into };
  for (const [name, value] of Object.entries(part)) {
    const previous = all[name];
    all[name] = isObject(previous) && isObject(value) ? merged(previous, value) : value;
  }
  return all as StoredRecord;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
