export type JsonValue = string | number | boolean | null | JsonValue[] | JsonObject;
export type JsonObject = { [name: string]: JsonValue };

/** The maximum nesting of a payload, far below what would exhaust the stack. */
const maxDepth = 200;

/** Why a value cannot be stored as it was sent, and the path to it. */
type StorageFault = { path: string[]; message: string };

class NotStorable extends Error {}

/**
 * Writes JSON text that is equal for equal values, whatever the order of their keys: keys sorted by UTF-16 code units
 * at every level, no white space, numbers and strings by RFC 8785.
 *
 * Returns a fault for a value that cannot be stored without a change: an integer beyond 2^53, which JSON.parse has
 * already rounded; a number beyond the range of a double, which would become null; nesting deeper than `maxDepth`.
 */
export function canonicalJson(value: JsonObject): { text: string } | { fault: StorageFault } {
  try {
    return { text: write(value, 1) };
  } catch (error) {
    if (error instanceof NotStorable)
      return { fault: locate(value, []) ?? { path: [], message: error.message } };
    throw error;
  }
}

function write(value: JsonValue, depth: number): string {
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'number') {
    const fault = numberFault(value);
    if (fault !== undefined) throw new NotStorable(fault);
    return value === 0 ? '0' : String(value);
  }
  if (typeof value !== 'object' || value === null) return String(value);
  if (depth > maxDepth) throw new NotStorable(tooDeep);
  let text = '';
  if (Array.isArray(value)) {
    for (const item of value) text += `,${write(item, depth + 1)}`;
    return `[${text.slice(1)}]`;
  }
  for (const name of sortedNames(value)) {
    text += `,${JSON.stringify(name)}:${write(value[name] as JsonValue, depth + 1)}`;
  }
  return `{${text.slice(1)}}`;
}

function sortedNames(value: JsonObject): string[] {
  const names = Object.keys(value);
  for (let index = 1; index < names.length; index += 1) {
    if ((names[index - 1] as string) > (names[index] as string)) return names.sort();
  }
  return names;
}

const tooDeep = `Nested deeper than ${maxDepth} levels`;

function numberFault(value: number): string | undefined {
  if (Number.isInteger(value) && !Number.isSafeInteger(value))
    return 'An integer beyond 2^53 cannot be kept exactly: send it as a string';
  return Number.isFinite(value) ? undefined : 'The number is beyond the range of a double';
}

/** Finds the path to the fault by a second walk, only for values that are refused. */
function locate(value: JsonValue, path: string[]): StorageFault | undefined {
  if (typeof value === 'number') {
    const message = numberFault(value);
    return message === undefined ? undefined : { path, message };
  }
  if (typeof value !== 'object' || value === null) return undefined;
  if (path.length >= maxDepth) return { path: path.slice(0, 4), message: tooDeep };
  for (const [name, item] of Object.entries(value)) {
    const fault = locate(item, [...path, name]);
    if (fault !== undefined) return fault;
  }
  return undefined;
}
