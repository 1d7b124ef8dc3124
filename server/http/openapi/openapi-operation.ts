/**
 * Completes what @fastify/swagger writes about a route: examples, descriptions of parameters, all errors, and responses
 * without a serializer.
 */
import { isDeepStrictEqual } from 'node:util';
import type { FastifySchema } from 'fastify';
import type { ErrorCode } from '../../errors.ts';
import type { Access } from '../auth/caller.ts';
import { idempotencyKey } from '../idempotency-key.ts';
import { type Answer, errorsOf, usualErrorsOf } from './describe.ts';
import { exampleOf, fieldOf, type JsonSchema, UnknownExample } from './examples.ts';

export type RouteFacts = {
  url: string;
  method: string;
  access: Access;
  schema: FastifySchema;
  isIdempotent: boolean;
};

type MediaType = { schema?: JsonSchema; example?: unknown; examples?: Record<string, unknown> };
export type Response = {
  description: string;
  headers?: Record<string, unknown>;
  content?: Record<string, MediaType>;
};
export type Parameter = {
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  schema?: JsonSchema;
  example?: unknown;
};
export type Operation = {
  operationId?: string;
  summary?: string;
  description?: string;
  tags?: string[];
  deprecated?: boolean;
  security?: Record<string, string[]>[];
  /** The scope that a key must have. */
  'x-scope'?: string;
  parameters?: Parameter[];
  requestBody?: { required?: boolean; description?: string; content: Record<string, MediaType> };
  responses?: Record<string, Response>;
};
export type PathItem = Record<string, Operation>;
export type Document = { paths: Record<string, PathItem> };

const json = 'application/json';
const said: Record<number, string> = {
  200: 'Done.',
  201: 'Done.',
  202: 'Accepted; the work is not done yet.',
  204: 'Done. The response has no body.',
};
const retryAfter = { 'Retry-After': { $ref: '#/components/headers/Retry-After' } };

/** Completes the paths with the facts of their routes. */
export function completed(
  paths: Record<string, PathItem>,
  routes: ReadonlyMap<string, RouteFacts>,
): Record<string, PathItem> {
  return mapValues(paths, (item) =>
    mapValues(item, (operation) => {
      const facts = routes.get(operation.operationId ?? '');
      return facts === undefined ? operation : complete(operation, facts);
    }),
  );
}

function complete(operation: Operation, facts: RouteFacts): Operation {
  const { schema, url } = facts;
  const [, part = ''] = url.split('/');
  const { parameters: own, requestBody: taken, responses, ...rest } = operation;
  const parameters = facts.isIdempotent ? [...(own ?? []), { in: 'header', ...idempotencyKey }] : own;
  const body = schema.accepts
    ? { required: true, content: mapValues(schema.accepts, (one) => ({ ...one })) }
    : taken;
  return {
    ...rest,
    ...(parameters && { parameters: parameters.map((one) => describedParameter(one, part)) }),
    ...(body && { requestBody: shown(body, { part, example: schema.example?.body }) }),
    responses: withErrors(succeeded(responses ?? {}, { facts, part }), facts),
  };
}

/** A parameter with its description and an example. */
function describedParameter(parameter: Parameter, part: string): Parameter {
  const { name, schema = {} } = parameter;
  const description =
    parameter.description ??
    schema.description ??
    fieldOf(`${part}.${name}`)?.description ??
    fieldOf(name)?.description;
  const { required, ...rest } = parameter;
  return {
    ...rest,
    ...(required && { required }),
    ...(description && { description }),
    schema: withoutImplied(schema),
    ...example(schema, [part, name], 'all'),
  };
}

function shown(
  body: NonNullable<Operation['requestBody']>,
  { part, example: given }: { part: string; example: unknown },
): NonNullable<Operation['requestBody']> {
  const content = mapValues(body.content, (media) => {
    if ('example' in media) return media;
    return {
      ...media,
      ...(given === undefined ? example(media.schema, [part], 'required') : { example: given }),
    };
  });
  return { ...body, content };
}

function succeeded(
  responses: Record<string, Response>,
  { facts: { schema }, part }: { facts: RouteFacts; part: string },
): Record<string, Response> {
  const { answers, response, example: given } = schema;
  const written = response === undefined ? {} : responses;
  const all = { ...written, ...mapValues(answers ?? {}, responseOf) };
  return Object.fromEntries(
    Object.entries(all).map(([status, answer]) => {
      const own = given?.answers?.[Number(status)];
      const isUnsaid = answer.description === 'Default Response';
      const content = mapValues(answer.content ?? {}, (media) => {
        if ('example' in media) return media;
        return { ...media, ...(own === undefined ? example(media.schema, [part], 'all') : { example: own }) };
      });
      const described: Response = {
        ...answer,
        description: isUnsaid ? (said[Number(status)] ?? 'Done.') : answer.description,
        ...(answer.content && { content }),
      };
      return [status, described];
    }),
  );
}

/**
 * Adds the errors of a route. `default` lists the errors that all routes with the same access have, by status; further
 * errors are listed at their statuses.
 */
function withErrors(own: Record<string, Response>, facts: RouteFacts): Record<string, Response> {
  const usual = usualErrorsOf(facts);
  const further = [...errorsOf(facts)].map(([status, codes]): [number, ErrorCode[]] => {
    const isOwn = own[status] !== undefined;
    return [status, codes.filter((code) => isOwn || !usual.get(status)?.includes(code))];
  });
  const errors = failed(new Map(further.filter(([, codes]) => codes.length > 0)));
  return { ...merged(own, errors), default: usualResponse(usual) };
}

/** One response for errors with several statuses. */
function usualResponse(errors: Iterable<[number, readonly ErrorCode[]]>): Response {
  const lists = [...errors].map(([status, codes]) => `${status}: ${listed(codes)}`);
  return { ...errorResponse(`By status. ${lists.join(' ')}`), headers: retryAfter };
}

/** A response for the errors 4XX, and another for 5XX. */
export function failedByClass(errors: ReadonlyMap<number, readonly ErrorCode[]>): Record<string, Response> {
  const classes = Map.groupBy(errors, ([status]) => `${Math.floor(status / 100)}XX`);
  return Object.fromEntries([...classes].map(([name, own]) => [name, usualResponse(own)]));
}

/** A status may have a response of the route besides our errors: a page, or the format of another protocol. */
function merged(own: Record<string, Response>, errors: Record<string, Response>): Record<string, Response> {
  const both = Object.keys(errors).filter((status) => own[status] !== undefined);
  return {
    ...own,
    ...errors,
    ...Object.fromEntries(both.map((status) => [status, joined(own[status]!, errors[status]!)])),
  };
}

function joined(own: Response, error: Response): Response {
  const ofError = error.content?.[json];
  const ofOwn = own.content?.[json];
  const either = ofOwn?.schema && ofError?.schema && { anyOf: [ofOwn.schema, ofError.schema] };
  return {
    ...error,
    description: `${own.description} Or: ${error.description}`,
    content: { ...own.content, ...error.content, ...(either && { [json]: { ...ofError, schema: either } }) },
  };
}

function responseOf({ description, type, schema, example: given }: Answer): Response {
  if (type === undefined) return { description };
  return { description, content: { [type]: { ...(schema && { schema }), example: given } } };
}

/** One response for the errors of a status, whose description lists the codes. */
function failed(errors: ReadonlyMap<number, readonly ErrorCode[]>): Record<string, Response> {
  return Object.fromEntries(
    [...errors].map(([status, codes]) => [
      status,
      {
        ...errorResponse(listed(codes)),
        ...(([429, 503].includes(status) || codes.includes('request_in_progress')) && {
          headers: retryAfter,
        }),
      },
    ]),
  );
}

function errorResponse(description: string): Response {
  return { description, content: { [json]: { schema: { $ref: '#/components/schemas/Error' } } } };
}

function listed(codes: readonly ErrorCode[]): string {
  return `${codes.map((code) => `\`${code}\``).join(', ')}.`;
}

/** Empty if a field has no value: a test reports such fields. */
function example(
  schema: JsonSchema | undefined,
  path: string[],
  fields: 'all' | 'required',
): { example?: unknown } {
  if (schema === undefined) return {};
  try {
    return { example: exampleOf(schema, fields, path) };
  } catch (error) {
    if (error instanceof UnknownExample) return {};
    throw error;
  }
}

/**
 * Without rules that follow from other rules: names of properties are strings, and integers of JSON are safe. A value of one
 * type or null has both types.
 */
export function withoutImplied(given: JsonSchema): JsonSchema {
  const { propertyNames, minimum, maximum, minLength, pattern, ...rest } = withTypes(given);
  return {
    ...rest,
    ...(propertyNames !== undefined &&
      !isDeepStrictEqual(propertyNames, { type: 'string' }) && { propertyNames }),
    ...(minimum !== undefined && minimum !== Number.MIN_SAFE_INTEGER && { minimum }),
    ...(maximum !== undefined && maximum !== Number.MAX_SAFE_INTEGER && { maximum }),
    ...(minLength !== undefined && minLength > 0 && { minLength }),
    ...(pattern !== undefined && rest.format === undefined && { pattern }),
  };
}

function withTypes(schema: JsonSchema): JsonSchema {
  const { anyOf: [one, other, ...others] = [], ...rest } = schema;
  const isNullable = others.length === 0 && other !== undefined && isDeepStrictEqual(other, { type: 'null' });
  const isPlain =
    typeof one?.type === 'string' && [one.title, one.enum, one.const].every((part) => part === undefined);
  return isNullable && isPlain ? { ...one, ...rest, type: [one.type as string, 'null'] } : schema;
}

export function mapValues<V, W>(
  given: Readonly<Record<string, V>>,
  change: (value: V) => W,
): Record<string, W> {
  return Object.fromEntries(Object.entries(given).map(([name, value]) => [name, change(value)]));
}
