import type { z } from 'zod';
import { type Json, type JsonObject, type ModelEffects, refusal, type StoredRecord } from './outcome.ts';

/** What is stored for the run's connection and variant before it begins. */
export type Stored = {
  /** Deleted records are among them. */
  page(
    model: string,
    cursor: string | undefined,
  ): Promise<{ records: JsonObject[]; next_cursor: string | null }>;
  byIds(model: string, ids: string[]): Promise<JsonObject[]>;
  isDeleted(record: JsonObject): boolean;
  /** Of any model and variant of the connection, each apart from its metadata. */
  records(of: {
    model: string;
    variant?: string;
    ids: string[];
  }): Promise<{ record: JsonObject; metadata: Json }[]>;
};

/** A cache in which nothing is. */
export const nothingStored: Stored = {
  page: async () => ({ records: [], next_cursor: null }),
  byIds: async () => [],
  isDeleted: () => false,
  records: async () => [],
};

/** A record that does not fit its model. The service says so once for each model and run, and stores it all the same. */
export type Misfit = { id: string; path: string; message: string };

/** The page behind the last that is stored: what this run has saved. */
const ownPage = 'of this run';

/** The records of one model, as a run would change them. */
export class ModelWrites {
  readonly #name: string;
  readonly #schema: z.ZodType;
  readonly #stored: Stored;
  readonly #saved = new Map<string, StoredRecord>();
  readonly #updated = new Map<string, StoredRecord>();
  readonly #deleted = new Set<string>();
  /** Ids that were saved since delete tracking began. */
  #seen: Set<string> | undefined;
  readonly misfits: Misfit[] = [];

  constructor(name: string, { schema, stored }: { schema: z.ZodType; stored: Stored }) {
    this.#name = name;
    this.#schema = schema;
    this.#stored = stored;
  }

  /** `given` is what the code gave, before it is JSON: a schema may ask for dates. */
  check(given: readonly unknown[]): void {
    for (const record of given) {
      const issue = this.#schema.safeParse(record).error?.issues[0];
      if (issue === undefined) continue;
      const id = String((record as { id?: unknown } | null)?.id);
      this.misfits.push({ id, path: issue.path.join('.'), message: issue.message });
    }
  }

  save(records: readonly JsonObject[]): void {
    for (const record of records.map((one) => withId(one))) {
      this.#updated.delete(record.id);
      this.#deleted.delete(record.id);
      this.#seen?.add(record.id);
      this.#saved.delete(record.id);
      this.#saved.set(record.id, record);
    }
  }

  update(records: readonly JsonObject[]): void {
    for (const part of records.map((one) => withId(one))) {
      if (this.#deleted.has(part.id)) continue;
      this.#seen?.add(part.id);
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
    this.#seen ??= new Set();
  }

  dropTracking(): void {
    this.#seen = undefined;
  }

  /** Ids of what is stored and was not saved since. */
  async endTracking(): Promise<string[]> {
    const seen = this.#seen;
    if (seen === undefined)
      throw refusal('no_delete_tracking', 'No delete tracking is open. Start one before the sync.');
    this.#seen = undefined;
    const gone: string[] = [];
    for (let cursor: string | undefined; ; ) {
      const page = await this.#stored.page(this.#name, cursor);
      for (const record of page.records) {
        const id = String(record.id);
        if (!seen.has(id) && !this.#deleted.has(id) && !this.#stored.isDeleted(record)) gone.push(id);
      }
      if (page.next_cursor === null) break;
      cursor = page.next_cursor;
    }
    this.delete(gone);
    return gone;
  }

  /** As the run would read them: what it changed stands at the end. */
  async page(cursor: string | undefined): Promise<{ records: JsonObject[]; next_cursor: string | null }> {
    if (cursor === ownPage) return { records: [...this.#saved.values()], next_cursor: null };
    const { records, next_cursor } = await this.#stored.page(this.#name, cursor);
    const left = records.filter(({ id }) => !this.#saved.has(String(id)) && !this.#deleted.has(String(id)));
    return {
      records: left.map((record) => this.#asUpdated(record)),
      next_cursor: next_cursor ?? (this.#saved.size > 0 ? ownPage : null),
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

  /** Undefined where nothing would change. */
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

/** An id is 1 to 255 characters, or a whole number that stands for its digits. */
export function readId(id: unknown): string {
  if (typeof id === 'string' && id.length >= 1 && id.length <= 255 && !id.includes('\0')) return id;
  if (typeof id === 'number' && Number.isSafeInteger(id)) return String(id);
  throw refusal('invalid_record', `A record has no id that can be stored: ${JSON.stringify(id)}.`);
}

function withId(record: JsonObject): StoredRecord {
  return { ...record, id: readId(record?.id) };
}

/** Objects are merged, anything else is put in the place of what was there. */
function merged(into: JsonObject, part: JsonObject): StoredRecord {
  const all: JsonObject = { ...into };
  for (const [name, value] of Object.entries(part)) {
    const there = all[name];
    all[name] = isObject(there) && isObject(value) ? merged(there, value) : value;
  }
  return all as StoredRecord;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
