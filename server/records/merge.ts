import type { JsonObject, JsonValue } from './canonical.ts';

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
