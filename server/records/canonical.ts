/** What JSON can say. */
export type JsonValue = string | number | boolean | null | JsonValue[] | JsonObject;
export type JsonObject = { [name: string]: JsonValue };

/** Levels of arrays and objects a payload may have; far below what would exhaust the stack. */
const maxDepth = 200;

/** Why and where a value cannot be stored as it was sent; `path` leads to it. */
type Unstorable = { path: string[]; message: string };

class UnstorableValue extends Error {}

/**
 * JSON text that is equal for equal values, in whatever order their keys were written: keys sorted by UTF-16 code
 * units at every level, no white space, numbers and strings as RFC 8785 writes them.
 *
 * Returns the fault instead where the value would not survive storage: an integer beyond 2^53, which JSON.parse has
 * already rounded; a number beyond the range of a double, which would turn to null; nesting deeper than `maxDepth`.
 */
export function canonicalJson(value: JsonObject): { text: string } | { fault: Unstorable } {
  try {
    return { text: write(value, 1) };
  } catch (error) {
    if (error instanceof UnstorableValue)
      return { fault: locate(value, []) ?? { path: [], message: error.message } };
    throw error;
  }
}

function write(value: JsonValue, depth: number): string {
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'number') {
    const fault = faultOfNumber(value);
    if (fault !== undefined) throw new UnstorableValue(fault);
    return value === 0 ? '0' : String(value);
  }
  if (typeof value !== 'object' || value === null) return String(value);
  if (depth > maxDepth) throw new UnstorableValue(tooDeep);
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

function faultOfNumber(value: number): string | undefined {
  if (Number.isInteger(value) && !Number.isSafeInteger(value))
    return 'An integer beyond 2^53 cannot be kept exactly: send it as a string';
  return Number.isFinite(value) ? undefined : 'The number is beyond the range of a double';
}

/** Walks once more, with the path: only for values that were refused. */
function locate(value: JsonValue, path: string[]): Unstorable | undefined {
  if (typeof value === 'number') {
    const message = faultOfNumber(value);
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
