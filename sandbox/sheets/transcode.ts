/**
 * Transcoding as in Google's gateway between HTTP and the service: converts query and body to a validated message.
 *
 * It validates names, types and enums, with Google's error texts. Nothing here is specific to a method: the
 * discovery document decides.
 */
import {
  camelCase,
  getSchema,
  type Method,
  type Parameter,
  resolveSchema,
  type Schema,
  snakeCase,
  standardParameters,
} from './discovery.ts';
import { badRequest, type FieldViolation, GoogleError } from './errors.ts';

/** A request after transcoding: camelCase names, no nulls outside cell values, enums and numbers checked. */
export interface Message {
  /** Path and query parameters by their camelCase names. */
  readonly params: Readonly<Record<string, unknown>>;
  readonly body: unknown;
}

/** The field of the request message for the HTTP body, if the body is not the message itself. */
const bodyFields: Readonly<Record<string, string>> = {
  'sheets.spreadsheets.create': 'spreadsheet',
  'sheets.spreadsheets.values.update': 'data',
  'sheets.spreadsheets.values.append': 'data',
};

/** Types with fields of which only one may be set (oneof). The discovery document lacks them. */
const unions: Readonly<Record<string, string>> = {
  Request: 'kind',
  ExtendedValue: 'value',
  DataFilter: 'filter',
};

/** The message of a request. Throws 400 with all errors found. */
export function transcode(
  method: Method,
  request: { params: Record<string, string>; query: URLSearchParams; body: Buffer },
): Message {
  const violations: FieldViolation[] = [];
  const body = readBody(method, request.body, violations);
  const params: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(request.params)) {
    params[name] = readScalar(method.parameters[name] ?? {}, value, snakeCase(name), violations);
  }
  for (const name of new Set(request.query.keys())) {
    const parameter = method.parameters[camelCase(name)] ?? standardParameters[name];
    if (parameter?.location !== 'query') {
      violations.push({
        description:
          `Invalid JSON payload received. Unknown name "${name}": Cannot bind query parameter. ` +
          `Field '${name}' could not be found in request message.`,
      });
      continue;
    }
    const values = request.query
      .getAll(name)
      .map((text) => readScalar(parameter, text, snakeCase(camelCase(name)), violations));
    params[camelCase(name)] = parameter.repeated ? values : values.at(-1);
  }
  if (violations.length > 0) throw badRequest(violations);
  return { params, body };
}

function readBody(method: Method, bytes: Buffer, violations: FieldViolation[]): unknown {
  if (method.request === undefined || bytes.length === 0) return {};
  const root = bodyFields[method.id] ?? '';
  return readValue(getSchema(method.request.$ref), parseJson(bytes), root, violations) ?? {};
}

function parseJson(bytes: Buffer): unknown {
  const text = bytes.toString('utf8');
  try {
    return JSON.parse(text);
  } catch (cause) {
    const at = Number(/position (\d+)/.exec(String(cause))?.[1] ?? text.length);
    const line = text.slice(Math.max(0, at - 20), at + 20).split('\n')[0] ?? '';
    const message = `Invalid JSON payload received. Unexpected token.\n${line}\n${' '.repeat(Math.min(at, 20))}^`;
    throw new GoogleError({ code: 400, status: 'INVALID_ARGUMENT', message });
  }
}

function readValue(schema: Schema, value: unknown, path: string, out: FieldViolation[]): unknown {
  const type = resolveSchema(schema);
  if (value === null || value === undefined) return undefined;
  if (type.type === 'any') return value;
  if (type.type === 'array') return readArray(type, value, path, out);
  if (type.type === 'object') return readObject(type, value, path, out);
  return readScalar(type, value, path, out);
}

function readArray(type: Schema, value: unknown, path: string, out: FieldViolation[]): unknown[] {
  const items = type.items ?? { type: 'any' };
  const list = Array.isArray(value) ? value : [value];
  return list.map((item, index) => {
    const at = `${path}[${index}]`;
    // A row of cell values is a google.protobuf.ListValue: nulls inside mean "leave this cell alone".
    if (items.type === 'array' && items.items?.type === 'any') {
      if (Array.isArray(item)) return item;
      wrongValue(at, 'type.googleapis.com/google.protobuf.ListValue', item, out);
      return [];
    }
    return readValue(items, item, at, out) ?? (resolveSchema(items).type === 'object' ? {} : undefined);
  });
}

function readObject(type: Schema, value: unknown, path: string, out: FieldViolation[]): unknown {
  if (typeof value !== 'object' || value === null) {
    wrongValue(path, `type.googleapis.com/google.apps.sheets.v4.${type.id ?? 'Struct'}`, value, out);
    return undefined;
  }
  if (Array.isArray(value)) {
    const name = path.replace(/^.*\./, '');
    out.push(
      unknownName(camelCase(name), parentOf(path), 'Proto field is not repeating, cannot start list.'),
    );
    return undefined;
  }
  const result: Record<string, unknown> = {};
  const union = unions[type.id ?? ''];
  for (const [given, item] of Object.entries(value)) {
    const name = camelCase(given);
    const property = Object.hasOwn(type.properties ?? {}, name)
      ? type.properties?.[name]
      : type.additionalProperties;
    if (property === undefined) {
      out.push(unknownName(given, path, 'Cannot find field.'));
      continue;
    }
    const read = readValue(property, item, path === '' ? snakeCase(name) : `${path}.${snakeCase(name)}`, out);
    if (read === undefined) continue;
    if (union !== undefined && Object.keys(result).length > 0) {
      const description = `Invalid value at '${path}' (oneof), oneof field '${union}' is already set. Cannot set '${given}'`;
      out.push({ field: path, description });
      continue;
    }
    result[name] = read;
  }
  return result;
}

function readScalar(type: Schema | Parameter, value: unknown, path: string, out: FieldViolation[]): unknown {
  if (typeof value === 'object' && value !== null) {
    const problem = Array.isArray(value)
      ? unknownName(
          camelCase(path.replace(/^.*\./, '')),
          parentOf(path),
          'Proto field is not repeating, cannot start list.',
        )
      : {
          field: path,
          description: `Invalid value at '${path}' (${typeName(type, path)}), Starting an object on a scalar field`,
        };
    out.push(problem);
    return undefined;
  }
  const read = convert(type, value);
  if (read === undefined) wrongValue(path, typeName(type, path), value, out);
  return read;
}

function convert(type: Schema, value: unknown): unknown {
  if (type.enum !== undefined) {
    if (typeof value === 'number') return type.enum[value];
    return type.enum.includes(String(value)) ? value : undefined;
  }
  if (type.type === 'boolean') {
    if (typeof value === 'boolean') return value;
    // Python clients send `True` and `False`.
    const word = String(value).toLowerCase();
    return word === 'true' || word === '1' ? true : word === 'false' || word === '0' ? false : undefined;
  }
  if (type.type === 'integer' || type.type === 'number') {
    if (typeof value === 'boolean' || value === '') return undefined;
    const number = Number(value);
    if (Number.isNaN(number)) return undefined;
    if (type.type === 'number') return number;
    return Number.isInteger(number) && Math.abs(number) <= 2 ** 31 ? number : undefined;
  }
  return typeof value === 'string' ? value : undefined;
}

function typeName(type: Schema, path: string): string {
  if (type.enum !== undefined) {
    const last = camelCase(path.replace(/^.*\./, '').replace(/\[\d+\]$/, ''));
    const known = { majorDimension: 'Dimension', shiftDimension: 'Dimension' }[last];
    const name =
      known ?? last.replace(/^response(?=Value|Date)/, '').replace(/^./, (first) => first.toUpperCase());
    return `type.googleapis.com/google.apps.sheets.v4.${name}`;
  }
  if (type.type === 'boolean') return 'TYPE_BOOL';
  if (type.type === 'integer') return 'TYPE_INT32';
  if (type.type === 'number') return type.format === 'float' ? 'TYPE_FLOAT' : 'TYPE_DOUBLE';
  return 'TYPE_STRING';
}

function wrongValue(path: string, type: string, value: unknown, out: FieldViolation[]): void {
  const description = `Invalid value at '${path}' (${type}), ${JSON.stringify(value)}`;
  out.push({ ...(path !== '' && { field: path }), description });
}

function unknownName(name: string, path: string, why: string): FieldViolation {
  const at = path === '' ? '' : ` at '${path}'`;
  const description = `Invalid JSON payload received. Unknown name "${name}"${at}: ${why}`;
  return { ...(path !== '' && { field: path }), description };
}

function parentOf(path: string): string {
  return path.includes('.') ? path.slice(0, path.lastIndexOf('.')) : '';
}
