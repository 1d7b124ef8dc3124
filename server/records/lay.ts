import type { JsonObject, JsonValue } from './canonical.ts';
import { changedFields, ignoredFields } from './ignore.ts';

/** Stored payloads, each with the parts that are laid over it, in their order; all of them JSON text. */
export type Layers = { stored: string; parts: string[] }[];

/** What came of a payload: its text, the form that is hashed, and the names of the fields that changed; undefined: equal. */
export type Laid = { text: string; canonical: string; names: string[] } | undefined;

/** Objects are merged at every depth; everything else is replaced. It needs nothing of the process, so any thread may do it. */
export function layParts(layers: Layers, ignoreFields: readonly string[]): Laid[] {
  const ignored = ignoredFields(ignoreFields);
  return layers.map(({ stored, parts }) => {
    const fields = JSON.parse(stored) as JsonObject;
    const merged = parts.reduce((under, part) => merge(under, JSON.parse(part) as JsonObject), fields);
    const canonical = ignored.canonical(merged);
    if (canonical === ignored.canonical(fields)) return undefined;
    return { text: JSON.stringify(merged), canonical, names: changedFields(fields, merged) };
  });
}

/**
 * Lays a part over an object: objects are merged at every depth; everything else, arrays and null too, replaces what was
 * there. Fields keep their place, new ones come last. Neither is changed.
 */
export function merge(stored: JsonObject, part: JsonObject): JsonObject {
  const laid = Object.entries(part).map(([name, value]): [string, JsonValue] => {
    const before = Object.hasOwn(stored, name) ? stored[name] : undefined;
    return [name, isObject(before) && isObject(value) ? merge(before, value) : value];
  });
  // Makes own properties whatever their names, `__proto__` too.
  return Object.fromEntries([...Object.entries(stored), ...laid]);
}

function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
