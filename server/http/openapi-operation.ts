/**
 * What the document says of one route beyond what @fastify/swagger writes: examples, descriptions of parameters, every
 * error, answers that no serializer writes.
 */
import type { FastifySchema } from 'fastify';
import type { ErrorCode } from '../errors.ts';
import type { Access } from './caller.ts';
import { type Answer, errorsOf } from './describe.ts';
import { exampleOf, type JsonSchema, UnknownExample } from './example.ts';
import { wordOf } from './openapi/examples.ts';

export type RouteFacts = { url: string; method: string; access: Access; schema: FastifySchema };

type MediaType = { schema?: JsonSchema; example?: unknown; examples?: Record<string, unknown> };
type Response = {
  description: string;
  headers?: Record<string, unknown>;
  content?: Record<string, MediaType>;
};
type Parameter = {
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
  parameters?: Parameter[];
  requestBody?: { required?: boolean; description?: string; content: Record<string, MediaType> };
  responses?: Record<string, Response>;
};
export type PathItem = Record<string, Operation>;
export type Document = { paths: Record<string, PathItem> };

const json = 'application/json';
const said: Record<number, string> = {
  200: 'Done.',
  201: 'Made.',
  202: 'Taken, and not done yet.',
  204: 'Done; there is no body.',
};
const requestId = { 'X-Request-Id': { $ref: '#/components/headers/X-Request-Id' } };
const retryAfter = { 'Retry-After': { $ref: '#/components/headers/Retry-After' } };

/** The paths with all that is known of their routes. */
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
  const { parameters, requestBody: taken, responses, ...rest } = operation;
  const body = schema.accepts
    ? { required: true, content: mapValues(schema.accepts, (one) => ({ ...one })) }
    : taken;
  return {
    ...rest,
    ...(parameters && { parameters: parameters.map((one) => describedParameter(one, part)) }),
    ...(body && { requestBody: shown(body, { part, example: schema.example?.body }) }),
    responses: merged(succeeded(responses ?? {}, { facts, part }), failed(errorsOf(facts))),
  };
}

/** What a field is called, and for example is. */
function describedParameter(parameter: Parameter, part: string): Parameter {
  const { name, schema = {} } = parameter;
  const description =
    parameter.description ?? schema.description ?? wordOf(`${part}.${name}`)?.is ?? wordOf(name)?.is;
  return { ...parameter, ...(description && { description }), ...example(schema, [part, name], 'all') };
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
        headers: { ...requestId, ...answer.headers },
        ...(answer.content && { content }),
      };
      return [status, described];
    }),
  );
}

/** Of one status there may be an answer of its own kind beside the errors of ours: a page, or another protocol's form. */
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

/** All errors of one status in one answer, an example each. */
export function failed(errors: ReadonlyMap<number, readonly ErrorCode[]>): Record<string, Response> {
  return Object.fromEntries(
    [...errors].map(([status, codes]) => [
      status,
      {
        description: `${codes.map((code) => `\`${code}\``).join(', ')}.`,
        headers: { ...requestId, ...([429, 503].includes(status) && retryAfter) },
        content: {
          [json]: {
            schema: { $ref: '#/components/schemas/Error' } as JsonSchema,
            examples: Object.fromEntries(
              codes.map((code) => [code, { $ref: `#/components/examples/${code}` }]),
            ),
          },
        },
      },
    ]),
  );
}

/** Nothing where some field is known to nobody: a test names the fields that lack a word. */
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

function mapValues<V, W>(given: Readonly<Record<string, V>>, change: (value: V) => W): Record<string, W> {
  return Object.fromEntries(Object.entries(given).map(([name, value]) => [name, change(value)]));
}
