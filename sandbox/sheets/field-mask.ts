/**
 * Field masks: `fields=sheets(properties.title,data/rowData)` and the `fields` of update requests.
 *
 * Owns: parsing, checking against a schema, picking from an answer, merging into a stored message.
 */
import { getSchema, resolveSchema, type Schema } from './discovery.ts';

/** A parsed mask: names to masks below them; `true` is everything below. */
export type Mask = true | { readonly [name: string]: Mask };

/** Why a mask was refused: `path` is as far as the client wrote it. */
export class MaskError extends Error {
  readonly path: string;
  constructor(path: string) {
    super(`no field ${path}`);
    this.path = path;
  }
}

/** Parses `text` against the schema called `schemaName`. Throws MaskError at the first path that fits nothing. */
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

/** Whether the mask asks for anything at or below `path` (names from the root down). */
export function includesPath(mask: Mask, path: readonly string[]): boolean {
  const [first, ...rest] = path;
  if (mask === true || first === undefined) return true;
  const below = mask[first];
  return below !== undefined && includesPath(below, rest);
}

/** The part of `value` that the mask names. Lists are passed through element by element. */
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
 * as updates at Google do. Returns a new object; empty parts are left out.
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
