/**
 * Field masks: `fields=sheets(properties.title,data/rowData)` and the `fields` of update requests.
 *
 * It parses masks, checks them with a schema, selects their fields from a response, and merges them into a stored message.
 */
import { getSchema, resolveSchema, type Schema } from './discovery.ts';
import { invalidArgument } from './errors.ts';

/** A parsed mask: names with the masks of their fields; `true` is all fields. */
export type Mask = true | { readonly [name: string]: Mask };

/** An invalid mask; `path` is the path in the client's spelling. */
export class MaskError extends Error {
  readonly path: string;
  constructor(path: string) {
    super(`no field ${path}`);
    this.path = path;
  }
}

/** Parses `text` with the schema `schemaName`. Throws MaskError at the first unknown path. */
export function parseMask(text: string, schemaName: string): Mask {
  const tokens = text.match(/[(),./]|[^(),./\s]+/g) ?? [];
  let at = 0;

  function list(schema: Schema | undefined, prefix: string): Mask {
    let mask: Mask = {};
    for (;;) {
      mask = union(mask, path(schema, prefix));
      if (tokens[at] !== ',') return mask;
      at += 1;
    }
  }

  function path(schema: Schema | undefined, prefix: string): Mask {
    const name = tokens[at] ?? '';
    at += 1;
    if (/^[(),./]?$/.test(name)) throw new MaskError(prefix + name);
    const below = name === '*' ? schema : childSchema(schema, name, prefix);
    let rest: Mask = true;
    if (tokens[at] === '.' || tokens[at] === '/') {
      at += 1;
      rest = path(below, `${prefix}${name}.`);
    } else if (tokens[at] === '(') {
      at += 1;
      rest = list(below, `${prefix}${name}.`);
      if (tokens[at] !== ')') throw new MaskError(prefix + name);
      at += 1;
    }
    return name === '*' ? rest : { [name]: rest };
  }

  const mask = list(getSchema(schemaName), '');
  if (at < tokens.length) throw new MaskError(tokens.slice(at).join(''));
  return mask;
}

function childSchema(schema: Schema | undefined, name: string, prefix: string): Schema | undefined {
  if (schema === undefined) return undefined;
  let type = resolveSchema(schema);
  while (type.type === 'array' && type.items !== undefined) type = resolveSchema(type.items);
  if (type.type === 'any') return undefined;
  if (type.additionalProperties !== undefined) return type.additionalProperties;
  if (type.properties === undefined || !Object.hasOwn(type.properties, name))
    throw new MaskError(prefix + name);
  return type.properties[name];
}

function union(a: Mask, b: Mask): Mask {
  if (a === true || b === true) return true;
  const result: Record<string, Mask> = { ...a };
  for (const [name, mask] of Object.entries(b)) {
    const before = result[name];
    result[name] = before === undefined ? mask : union(before, mask);
  }
  return result;
}

/** Whether the mask includes a field at or below `path` (names from the root). */
export function includesPath(mask: Mask, path: readonly string[]): boolean {
  const [first, ...rest] = path;
  if (mask === true || first === undefined) return true;
  const below = mask[first];
  return below !== undefined && includesPath(below, rest);
}

/** The part of `value` in the mask; for lists, of each element. */
export function pick(value: unknown, mask: Mask): unknown {
  if (mask === true || typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((item) => pick(item, mask));
  const result: Record<string, unknown> = {};
  for (const [name, item] of Object.entries(value)) {
    const below = Object.hasOwn(mask, name) ? mask[name] : undefined;
    if (below !== undefined) result[name] = pick(item, below);
  }
  return result;
}

/**
 * `target` with the masked fields taken from `source`. A field that the mask names and `source` lacks is removed,
 * like in Google's updates. Returns a new object; empty parts are omitted.
 */
export function mergeMasked<T extends object>(
  target: T | undefined,
  source: T | undefined,
  mask: Mask,
): T | undefined {
  if (mask === true) return source;
  const result: Record<string, unknown> = { ...target };
  const from = (source ?? {}) as Record<string, unknown>;
  for (const [name, below] of Object.entries(mask)) {
    const before = result[name];
    const merged =
      below === true || !isMessage(before ?? from[name])
        ? from[name]
        : mergeMasked(before as object | undefined, from[name] as object | undefined, below);
    if (merged === undefined) delete result[name];
    else result[name] = merged;
  }
  return Object.keys(result).length === 0 ? undefined : (result as T);
}

function isMessage(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The required mask in `fields` of an update request, checked with the schema `schemaName`; `*` is all fields. */
export function requireMask(fields: string | null | undefined, schemaName: string): Mask {
  if (!fields) {
    throw invalidArgument("At least one field must be listed in 'fields'. (Use '*' to indicate all fields.)");
  }
  try {
    return parseMask(fields, schemaName);
  } catch (error) {
    if (error instanceof MaskError) throw invalidArgument(`Invalid field: ${error.path}`);
    throw error;
  }
}
