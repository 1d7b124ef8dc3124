import { createHash } from 'node:crypto';
import { canonicalJson, type JsonObject, type JsonValue } from './canonical.ts';

/** The fields of a payload: which of them a comparison ignores, which of them differ, and how parts are merged. */

/** Bytes of a digest of names: two sets share one by a chance of 2^-128. */
const digestBytes = 16;

/** The names of fields at the top level of a payload that a comparison ignores. */
export type IgnoredFields = {
  /**
   * Identifies the set, whatever the order of its names; null for the empty set. Each row stores it beside its hash.
   */
  digest: Buffer | null;
  has(name: string): boolean;
  /** Whether the payload has any of them. */
  isIn(fields: JsonObject): boolean;
  /** Returns the canonical text of a payload without them. The payload must be one that can be stored. */
  canonical(fields: JsonObject): string;
};

export function ignoredFields(names: readonly string[]): IgnoredFields {
  const set = new Set(names);
  const isIn = (fields: JsonObject) => names.some((name) => Object.hasOwn(fields, name));
  return {
    digest: digestOf(set),
    has: (name) => set.has(name),
    isIn,
    canonical(fields) {
      const compared = isIn(fields)
        ? Object.fromEntries(Object.entries(fields).filter(([name]) => !set.has(name)))
        : fields;
      const result = canonicalJson(compared);
      if ('fault' in result) throw new Error(`a checked payload is not valid: ${result.fault.message}`);
      return result.text;
    },
  };
}

function digestOf(names: ReadonlySet<string>): Buffer | null {
  if (names.size === 0) return null;
  return createHash('sha256')
    .update(JSON.stringify([...names].sort()))
    .digest()
    .subarray(0, digestBytes);
}

/** Whether two hashes can be compared, given the digests of the fields that each of them ignores. */
export function isSameDigest(a: Buffer | null, b: Buffer | null): boolean {
  return a === null || b === null ? a === b : a.equals(b);
}

/** The sorted names of the fields that differ between two payloads, including ignored fields and missing fields. */
export function changedFields(from: JsonObject, to: JsonObject): string[] {
  const names = new Set([...Object.keys(from), ...Object.keys(to)]);
  return [...names]
    .filter((name) => !isSame(from, to, name) && textOf(from, name) !== textOf(to, name))
    .sort();
}

/** Whether both have the identical value: a merge keeps the values of all other fields. */
function isSame(from: JsonObject, to: JsonObject, name: string): boolean {
  return Object.hasOwn(from, name) && Object.hasOwn(to, name) && from[name] === to[name];
}

function textOf(fields: JsonObject, name: string): string | undefined {
  if (!Object.hasOwn(fields, name)) return undefined;
  const result = canonicalJson({ value: fields[name] as JsonValue });
  return 'text' in result ? result.text : undefined;
}

/** Stored payloads, each with the parts to merge into it, in their order. All of them are JSON text. */
export type Merges = { stored: string; parts: string[] }[];

/** The merged payload as text and in canonical form, and the names of the changed fields; undefined if it is equal. */
export type MergedPayload = { text: string; canonical: string; names: string[] } | undefined;

export function mergeAll(merges: Merges, ignoreFields: readonly string[]): MergedPayload[] {
  const ignored = ignoredFields(ignoreFields);
  return merges.map(({ stored, parts }) => {
    const fields = JSON.parse(stored) as JsonObject;
    const merged = parts.reduce((under, part) => merge(under, JSON.parse(part) as JsonObject), fields);
    const canonical = ignored.canonical(merged);
    if (canonical === ignored.canonical(fields)) return undefined;
    return { text: JSON.stringify(merged), canonical, names: changedFields(fields, merged) };
  });
}

/**
 * Merges a part into an object. Objects are merged at every depth; any other value, also an array or null, replaces the
 * stored value. Fields keep their place, and new fields come last. Neither argument is changed.
 */
export function merge(stored: JsonObject, part: JsonObject): JsonObject {
  const merged = Object.entries(part).map(([name, value]): [string, JsonValue] => {
    const before = Object.hasOwn(stored, name) ? stored[name] : undefined;
    return [name, isObject(before) && isObject(value) ? merge(before, value) : value];
  });
  // Makes own properties of all names, also of `__proto__`.
  return Object.fromEntries([...Object.entries(stored), ...merged]);
}

function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
