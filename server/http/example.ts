/**
 * Examples out of JSON Schemas, so that each route shows what it takes and answers without saying it twice.
 *
 * Owns how a value is found for a schema. Does not own the values: `examples.ts`.
 */
import { wordOf } from './openapi/examples.ts';

export type JsonSchema = {
  type?: string | string[];
  properties?: Record<string, JsonSchema>;
  required?: string[];
  additionalProperties?: boolean | JsonSchema;
  items?: JsonSchema;
  enum?: unknown[];
  const?: unknown;
  anyOf?: JsonSchema[];
  oneOf?: JsonSchema[];
  allOf?: JsonSchema[];
  default?: unknown;
  examples?: unknown[];
  description?: string;
  format?: string;
  pattern?: string;
  minimum?: number;
  maximum?: number;
};

/** Every field of an answer is shown; of a request only those that it cannot do without. */
type Fields = 'all' | 'required';

/** Where a value is missing: the names on the way to it. `examples.ts` may hold one for it. */
export class UnknownExample extends Error {
  readonly path: string;
  constructor(path: string[]) {
    super(`no example is known for ${path.join('.')}`);
    this.path = path.join('.');
  }
}

/**
 * A value that fits the schema. In this order: an example that the schema names, a constant, the word for the field
 * (`wordOf`), a default, the first of the allowed values, what the parts give. Throws `UnknownExample`.
 */
export function exampleOf(schema: JsonSchema, fields: Fields, path: string[] = []): unknown {
  if (schema.examples !== undefined) return schema.examples[0];
  if (schema.const !== undefined) return schema.const;
  const word = wordFor(schema, path);
  if (word !== undefined) return word.value;
  if (schema.default !== undefined) return schema.default;
  if (schema.enum !== undefined) return schema.enum[0];
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives !== undefined) return firstOf(alternatives, fields, path);
  if (schema.allOf !== undefined)
    return Object.assign({}, ...schema.allOf.map((part) => exampleOf(part, fields, path)));
  const types = [schema.type ?? []].flat();
  if (types.includes('object')) return objectOf(schema, fields, path);
  if (types.includes('array')) return [exampleOf(schema.items ?? {}, fields, [...path, '0'])];
  if (types.includes('boolean')) return true;
  if (types.includes('null')) return null;
  if (schema.format === 'date-time') return '2026-11-21T10:15:17.733Z';
  throw new UnknownExample(path);
}

function objectOf(schema: JsonSchema, fields: Fields, path: string[]): Record<string, unknown> {
  const named = Object.entries(schema.properties ?? {}).filter(
    ([name]) => fields === 'all' || schema.required?.includes(name),
  );
  return Object.fromEntries(named.map(([name, part]) => [name, exampleOf(part, fields, [...path, name])]));
}

/** The first that is more than null; null where there is none. */
function firstOf(alternatives: JsonSchema[], fields: Fields, path: string[]): unknown {
  const telling = alternatives.find(({ type }) => type !== 'null');
  return exampleOf(telling ?? alternatives[0] ?? {}, fields, path);
}

/** The word that fits for the longest end of the path: `account.id` goes before `id`. */
function wordFor(schema: JsonSchema, path: string[]): { value: unknown } | undefined {
  const names = path.filter((name) => !/^\d+$/.test(name));
  for (let from = 0; from < names.length; from += 1) {
    for (const value of wordOf(names.slice(from).join('.'))?.examples ?? [])
      if (fits(value, schema)) return { value };
  }
  return undefined;
}

/** Whether a word may stand where the schema is. */
function fits(value: unknown, schema: JsonSchema): boolean {
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives !== undefined) return alternatives.some((one) => fits(value, one));
  if (schema.const !== undefined) return schema.const === value;
  if (schema.enum !== undefined) return schema.enum.includes(value);
  const types = [schema.type ?? []].flat();
  if (types.length > 0 && !types.some((type) => isOf(value, type))) return false;
  if (typeof value === 'string') {
    if (schema.pattern !== undefined && !new RegExp(schema.pattern, 'u').test(value)) return false;
    return schema.format !== 'uuid' || /^[\da-f]{8}-([\da-f]{4}-){3}[\da-f]{12}$/.test(value);
  }
  if (Array.isArray(value)) return value.every((one) => fits(one, schema.items ?? {}));
  if (typeof value !== 'object' || value === null) return true;
  const parts = Object.entries(value);
  const { properties = {}, additionalProperties = true, required = [] } = schema;
  return (
    required.every((name) => Object.hasOwn(value, name)) &&
    parts.every(([name, part]) => {
      const own = properties[name] ?? additionalProperties;
      return own === true || (own !== false && fits(part, own));
    })
  );
}

function isOf(value: unknown, type: string): boolean {
  if (type === 'null') return value === null;
  if (type === 'array') return Array.isArray(value);
  if (type === 'integer') return Number.isInteger(value);
  if (type === 'object') return typeof value === 'object' && value !== null && !Array.isArray(value);
  return typeof value === type;
}
