import { createHash } from 'node:crypto';
import { canonicalJson, type JsonObject, type JsonValue } from './canonical.ts';

/** Bytes of a digest of names: two sets share one by a chance of 2^-128. */
const digestBytes = 16;

/** Fields that count for nothing when a record is compared, by their names at the top level of its payload. */
export type IgnoredFields = {
  /** Tells sets apart, whatever the order of their names; null for the empty one. Kept on each row beside its hash. */
  digest: Buffer | null;
  has(name: string): boolean;
  /** Whether any of them is in the payload. */
  isIn(fields: JsonObject): boolean;
  /** The canonical text of a payload without them; the payload is one that can be stored. */
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
      if ('fault' in result) throw new Error(`a payload that was checked: ${result.fault.message}`);
      return result.text;
    },
  };
}

/** Whether a hash that was made without the fields of one digest can be compared with one of the other. */
export function isSameDigest(a: Buffer | null, b: Buffer | null): boolean {
  return a === null || b === null ? a === b : a.equals(b);
}

/**
 * The names of the fields that differ between two payloads, ignored ones and those that only one of them has included,
 * sorted.
 */
export function changedFields(from: JsonObject, to: JsonObject): string[] {
  const names = new Set([...Object.keys(from), ...Object.keys(to)]);
  return [...names]
    .filter((name) => !isSame(from, to, name) && textOf(from, name) !== textOf(to, name))
    .sort();
}

/** Whether both have the very same value there: what a part was laid over keeps its other fields as they are. */
function isSame(from: JsonObject, to: JsonObject, name: string): boolean {
  return Object.hasOwn(from, name) && Object.hasOwn(to, name) && from[name] === to[name];
}

function textOf(fields: JsonObject, name: string): string | undefined {
  if (!Object.hasOwn(fields, name)) return undefined;
  const result = canonicalJson({ value: fields[name] as JsonValue });
  return 'text' in result ? result.text : undefined;
}

function digestOf(names: ReadonlySet<string>): Buffer | null {
  if (names.size === 0) return null;
  return createHash('sha256')
    .update(JSON.stringify([...names].sort()))
    .digest()
    .subarray(0, digestBytes);
}
