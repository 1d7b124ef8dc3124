/**
 * The discovery document: the methods with their paths, parameters, bodies, responses and scopes.
 *
 * It reads `sheets.v4.json` (revision 20260921) and finds the method of a request.
 */
import { readFileSync } from 'node:fs';

/** A JSON schema in the form of discovery documents. */
export interface Schema {
  readonly id?: string;
  readonly type?: string;
  readonly format?: string;
  readonly $ref?: string;
  readonly enum?: readonly string[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema;
}

/** A path or query parameter. */
export interface Parameter extends Schema {
  readonly location: 'path' | 'query';
  readonly required?: boolean;
  readonly repeated?: boolean;
}

/** One method, e.g. `sheets.spreadsheets.values.get`. */
export interface Method {
  readonly id: string;
  readonly httpMethod: string;
  readonly flatPath: string;
  readonly parameters: Readonly<Record<string, Parameter>>;
  readonly request?: { readonly $ref: string };
  readonly response: { readonly $ref: string };
  readonly scopes: readonly string[];
}

interface Resource {
  readonly methods?: Readonly<Record<string, Method>>;
  readonly resources?: Readonly<Record<string, Resource>>;
}

interface Discovery extends Resource {
  readonly schemas: Readonly<Record<string, Schema>>;
  readonly parameters: Readonly<Record<string, Parameter>>;
}

const discovery = JSON.parse(
  readFileSync(new URL('../sheets.v4.json', import.meta.url), 'utf8'),
) as Discovery;

/** The parameters of every method: `fields`, `alt`, `prettyPrint`, `$.xgafv`, ... */
export const standardParameters = discovery.parameters;

/** The schema `name`. Throws if the document has no such schema, which is a bug of the sandbox. */
export function getSchema(name: string): Schema {
  const schema = discovery.schemas[name];
  if (schema === undefined) throw new Error(`no schema ${name} in the discovery document`);
  return schema;
}

/** The schema with its `$ref` resolved. */
export function resolveSchema(schema: Schema): Schema {
  return schema.$ref === undefined ? schema : resolveSchema(getSchema(schema.$ref));
}

/** Every method of the document. */
export const methods: readonly Method[] = listMethods(discovery);

function listMethods(resource: Resource): Method[] {
  return [
    ...Object.values(resource.methods ?? {}),
    ...Object.values(resource.resources ?? {}).flatMap(listMethods),
  ];
}

interface Segment {
  readonly name?: string;
  readonly text: string;
}

const routes = methods.map((method) => ({
  method,
  segments: method.flatPath.split('/').map((part): Segment => {
    const parameter = /^\{(\w+)\}(.*)$/.exec(part);
    return parameter ? { name: parameter[1] ?? '', text: parameter[2] ?? '' } : { text: part };
  }),
}));

/**
 * The method of a request, with its path parameters percent-decoded, or undefined.
 *
 * `path` is the raw path: it is split at real slashes before decoding, so `%2F` stays inside a segment.
 * Like at Google, a trailing slash is ignored, and `/ID/:verb` equals `/ID:verb`; google-spreadsheet sends both.
 * Throws URIError for an invalid percent-encoding.
 */
export function findMethod(
  httpMethod: string,
  path: string,
): { method: Method; params: Record<string, string> } | undefined {
  const parts = path
    .replace(/\/$/, '')
    .replace(/\/(?=:\w+$)/, '')
    .split('/')
    .slice(1);
  for (const { method, segments } of routes) {
    if (method.httpMethod !== httpMethod || segments.length !== parts.length) continue;
    const params = matchSegments(segments, parts);
    if (params !== undefined) return { method, params };
  }
  return undefined;
}

function matchSegments(
  segments: readonly Segment[],
  parts: readonly string[],
): Record<string, string> | undefined {
  const params: Record<string, string> = {};
  for (const [index, segment] of segments.entries()) {
    const part = parts[index] ?? '';
    if (segment.name === undefined) {
      if (part !== segment.text) return undefined;
      continue;
    }
    const raw = part.slice(0, part.length - segment.text.length);
    // A colon starts the verb, except in a range, which may contain colons.
    if (raw === '' || !part.endsWith(segment.text)) return undefined;
    if (segment.name !== 'range' && raw.includes(':')) return undefined;
    params[segment.name] = decodeURIComponent(raw);
  }
  return params;
}

/** `valueInputOption` → `value_input_option`, the form of field paths in Google's messages. */
export function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** `value_input_option` → `valueInputOption`; the gateway accepts both forms. */
export function camelCase(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}
