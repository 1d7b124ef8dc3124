// The OpenAPI document as tests use it: its operations, and judges of values by its schemas.

import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import type { JsonSchema } from '../../server/http/openapi/examples.ts';
import type { TestTrellis } from './trellis.ts';

export type Media = {
  schema?: JsonSchema & { $ref?: string };
  example?: unknown;
  examples?: Record<string, { $ref: string }>;
};
export type Parameter = {
  name: string;
  in: 'path' | 'query' | 'header';
  required?: boolean;
  description?: string;
  schema: JsonSchema;
  example?: unknown;
};
type Described = {
  operationId: string;
  summary?: string;
  description?: string;
  tags?: string[];
  deprecated?: boolean;
  security?: Record<string, string[]>[];
  'x-scope'?: string | string[];
  parameters?: Parameter[];
  requestBody?: { required?: boolean; content: Record<string, Media> };
  responses: Record<string, { description: string; content?: Record<string, Media> }>;
};
export type OpenApi = {
  paths: Record<string, Record<string, Described>>;
  webhooks: Record<string, Record<string, Described>>;
  tags: { name: string; description: string }[];
  security: Record<string, string[]>[];
  components: {
    schemas: Record<string, JsonSchema>;
    parameters: Record<string, unknown>;
    responses: Record<string, unknown>;
    requestBodies: Record<string, unknown>;
  };
};
/** An operation and where it is: `name` as `GET /records`. */
export type Placed = { name: string; method: string; path: string; operation: Described };

/** The document with what a reference names in its place, apart from the schema of errors. */
export async function readDocument(trellis: Pick<TestTrellis, 'call'>): Promise<OpenApi> {
  return resolved(await readRawDocument(trellis));
}

/** The document as it is served. */
export async function readRawDocument(trellis: Pick<TestTrellis, 'call'>): Promise<OpenApi> {
  return (await trellis.call('GET', '/openapi.json', { key: undefined })).body as unknown as OpenApi;
}

function resolved(document: OpenApi): OpenApi {
  const named = new Map<string, unknown>();
  const resolve = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(resolve);
    if (typeof value !== 'object' || value === null) return value;
    const { $ref } = value as { $ref?: unknown };
    const [text, kind, name = ''] =
      /^#\/components\/(parameters|responses|requestBodies|schemas)\/(?!Error$)(.+)$/.exec(String($ref)) ??
      [];
    if (text === undefined)
      return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, resolve(part)]));
    // One object for a name, so that its judge is compiled once.
    if (!named.has(text))
      named.set(text, resolve(document.components[kind as keyof OpenApi['components']][name]));
    return named.get(text);
  };
  const { paths, webhooks } = document;
  const whole = { ...document, paths: resolve(paths), webhooks: resolve(webhooks) } as OpenApi;
  // What an operation does not say itself is said by its path or by the document.
  for (const item of Object.values(whole.paths)) {
    const { parameters: ofPath = [] } = item as unknown as { parameters?: Parameter[] };
    delete item.parameters;
    for (const operation of Object.values(item)) {
      operation.security ??= document.security;
      operation.parameters = [...ofPath, ...(operation.parameters ?? [])];
    }
  }
  return whole;
}

/** Of `paths` or of `webhooks`. */
export function operationsOf(items: OpenApi['paths']): Placed[] {
  return Object.entries(items).flatMap(([path, { parameters: _, ...item }]) =>
    Object.entries(item).map(([verb, operation]) => {
      const method = verb.toUpperCase();
      return { name: `${method} ${path}`, method, path, operation };
    }),
  );
}

/** Whether something wants a secret key. */
export function takesKey({ operation: { security = [] } }: Placed): boolean {
  return security.some((way) => 'key' in way);
}

/** A schema that takes no fields besides its own: clients accept more, the tests do not. */
function closed(schema: JsonSchema): JsonSchema {
  const { properties, items, anyOf, oneOf, additionalProperties } = schema;
  // The parts of `allOf` have fields that the others lack.
  const rest =
    properties && schema.allOf === undefined ? (additionalProperties ?? false) : additionalProperties;
  const mapped = (parts: JsonSchema[]) => parts.map(closed);
  return {
    ...schema,
    ...(properties && {
      properties: Object.fromEntries(Object.entries(properties).map(([name, part]) => [name, closed(part)])),
    }),
    ...(items && { items: closed(items) }),
    ...(anyOf && { anyOf: mapped(anyOf) }),
    ...(oneOf && { oneOf: mapped(oneOf) }),
    ...(rest !== undefined && {
      additionalProperties: typeof rest === 'object' ? closed(rest) : rest,
    }),
  };
}

/** Judges values by schemas of the document: what does not fit, in words; undefined where all does. */
export function createJudge({
  components,
}: OpenApi): (schema: JsonSchema, value: unknown) => string | undefined {
  const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: true });
  formats.default(ajv);
  const known = new Map<JsonSchema, ReturnType<Ajv2020['compile']>>();
  const whole = {
    schemas: Object.fromEntries(
      Object.entries(components.schemas).map(([name, schema]) => [name, closed(schema)]),
    ),
  };
  return (given, value) => {
    // Compiling costs milliseconds: what is referred to is compiled once.
    const { $ref } = given as { $ref?: string };
    const schema = $ref === undefined ? given : components.schemas[$ref.split('/').at(-1)!]!;
    const judge = known.get(schema) ?? ajv.compile({ ...closed(schema), components: whole } as object);
    known.set(schema, judge);
    return judge(value) ? undefined : ajv.errorsText(judge.errors, { dataVar: 'value' });
  };
}

type Responses = Described['responses'];
/** The answer of this status: its own, that of its class, or the one for all errors that name it. */
export function answerOf(responses: Responses, status: number): Responses[string] | undefined {
  const shared = [responses[`${Math.floor(status / 100)}XX`], responses.default];
  return responses[status] ?? shared.find((response) => codesIn(response, status).length > 0);
}

/** The codes that an answer of this status may have. */
export function codesOf({ responses }: Described, status: number): string[] {
  return [answerOf(responses, status), responses.default].flatMap((response) => codesIn(response, status));
}

function codesIn(response: Responses[string] | undefined, status: number): string[] {
  const { description = '', content } = response ?? {};
  if (!JSON.stringify(content ?? {}).includes('#/components/schemas/Error"')) return [];
  const codes = description.startsWith('By status. ')
    ? (new RegExp(` ${status}: ([^.]+)\\.`).exec(description)?.[1] ?? '')
    : description;
  return [...codes.matchAll(/`(\w+)`/g)].map(([, code = '']) => code);
}

/** All statuses of errors that an operation documents. */
export function errorStatusesOf({ responses }: Described): number[] {
  const own = Object.keys(responses).filter((status) => /^[45]\d\d$/.test(status));
  const listed = Object.values(responses).flatMap(({ description }) =>
    description.startsWith('By status. ')
      ? [...description.matchAll(/ (\d{3}): /g)].map(([, status]) => status!)
      : [],
  );
  return [...new Set([...own, ...listed].map(Number))];
}

/** A call of an operation, all of it text. */
export type Call = { method: string; path: string; headers: Record<string, string>; body?: unknown };

/** The call that the document shows: all its parameters that are required, with their examples, and the body's. */
export function shownCall({ method, path, operation: { parameters = [], requestBody } }: Placed): Call {
  const shown = parameters.filter(({ required }) => required === true);
  const placed = (place: Parameter['in']) => shown.filter((parameter) => parameter.in === place);
  const query = new URLSearchParams(placed('query').map(({ name, example }) => [name, String(example)]));
  const filled = placed('path').reduce(
    (text, { name, example }) => text.replace(`{${name}}`, () => encodeURI(String(example))),
    path,
  );
  const [type, media] = Object.entries(requestBody?.content ?? {})[0] ?? [];
  return {
    method,
    path: query.size === 0 ? filled : `${filled}?${query}`,
    headers: {
      ...Object.fromEntries(placed('header').map(({ name, example }) => [name, String(example)])),
      ...(type !== undefined && { 'content-type': type === '*/*' ? 'application/json' : type }),
    },
    ...(media && { body: media.example }),
  };
}
