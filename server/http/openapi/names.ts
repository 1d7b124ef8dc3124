/**
 * Names in the OpenAPI document. A schema with a `title` becomes `components.schemas[title]`; a JSON body or response
 * without a title gets the name of its operation. Responses for errors that several operations share become
 * `components.responses`.
 */
import { isDeepStrictEqual } from 'node:util';
import { usualErrors } from './describe.ts';
import type { JsonSchema } from './examples.ts';
import {
  mapValues,
  type Operation,
  type Parameter,
  type PathItem,
  type Response,
} from './openapi-operation.ts';

type Paths = Record<string, PathItem>;
/** Operations of which only the parameters are not references yet. */
type Operations = Record<string, Record<string, { parameters?: Parameter[] }>>;
type Direction = 'sent' | 'received';

/** The parts of the document with references in place of what has a name, and what they refer to. */
export function withNames({ paths, webhooks }: { paths: Paths; webhooks: Paths }): {
  paths: Record<string, object>;
  webhooks: Record<string, object>;
  schemas: Record<string, JsonSchema>;
  responses: Record<string, Response>;
  parameters: Record<string, Parameter>;
} {
  const schemas = new Map<string, JsonSchema>();
  const refer = (schema: JsonSchema, direction: Direction): JsonSchema => {
    const { title, ...whole } = mapSubschemas(schema, (part) => refer(part, direction));
    if (title === undefined) return whole;
    const names = direction === 'received' ? [title, `${title}Input`] : [title];
    for (const name of names) {
      const known = schemas.get(name);
      if (known !== undefined && !isDeepStrictEqual(known, whole)) continue;
      schemas.set(name, whole);
      return { $ref: `#/components/schemas/${name}` };
    }
    throw new Error(`Two schemas of the OpenAPI document have the name ${title}.`);
  };
  // What the service sends comes first, so that its schemas get the names without `Input`.
  const answered = mapOperations(paths, (operation) => ({
    ...operation,
    ...(operation.responses && {
      responses: Object.fromEntries(
        Object.entries(operation.responses).map(([status, response]) => {
          const name = status.startsWith('2') ? nameFrom(operation, 'Response') : undefined;
          return [status, withContent(response, (schema) => refer(titled(schema, name), 'sent'))];
        }),
      ),
    }),
  }));
  const told = mapOperations(webhooks, (operation) => withBody(operation, (schema) => refer(schema, 'sent')));
  const whole = mapOperations(answered, (operation) =>
    withBody(operation, (schema) => refer(titled(schema, nameFrom(operation, 'Request')), 'received')),
  );
  const { paths: short, responses } = withSharedResponses(whole);
  const parameters = sharedParameters([short, told]);
  return {
    paths: withReferences(short, parameters),
    webhooks: withReferences(told, parameters),
    schemas: sorted(schemas),
    responses,
    parameters: sorted(parameters),
  };
}

/** Moves each response for errors that several operations have to `responses`. */
function withSharedResponses(paths: Paths): {
  paths: Operations;
  responses: Record<string, Response>;
} {
  const nameOf = (status: string, { content, description }: Response): string | undefined => {
    const [media, ...others] = Object.values(content ?? {});
    const isOfErrors = media?.schema?.$ref === '#/components/schemas/Error' && others.length === 0;
    // A description with more than the codes belongs to one operation.
    if (!isOfErrors || !/^(`\w+`(, )?)+\.$/.test(description)) return undefined;
    const codes = [...description.matchAll(/`(\w+)`/g)].map(([, code = '']) => code);
    return responseName(Number(status), codes);
  };
  const users = new Map<string, number>();
  for (const { responses = {} } of Object.values(paths).flatMap((item) => Object.values(item)))
    for (const [status, response] of Object.entries(responses)) {
      const name = nameOf(status, response);
      if (name !== undefined) users.set(name, (users.get(name) ?? 0) + 1);
    }
  const shared = new Map<string, Response>();
  const refer = ([status, response]: [string, Response]): [string, object] => {
    const name = nameOf(status, response);
    if (name === undefined || users.get(name) === 1) return [status, response];
    shared.set(name, response);
    return [status, { $ref: `#/components/responses/${name}` }];
  };
  const short = mapValues(paths, (item) =>
    mapValues(item, ({ responses = {}, ...operation }) => ({
      ...operation,
      responses: Object.fromEntries(Object.entries(responses).map(refer)),
    })),
  );
  return { paths: short, responses: sorted(shared) };
}

/** The parameters that several operations have: of each place and name the most frequent form, as `header.connection-id`. */
function sharedParameters(parts: readonly Operations[]): Map<string, Parameter> {
  const all = parts.flatMap((paths) => Object.values(paths).flatMap((item) => Object.values(item)));
  const forms = Map.groupBy(
    all.flatMap(({ parameters = [] }) => parameters),
    (parameter) => JSON.stringify(parameter),
  );
  const shared = new Map<string, Parameter>();
  for (const [form, ...others] of [...forms.values()].toSorted((a, b) => b.length - a.length)) {
    const name = `${form!.in}.${form!.name}`;
    if (others.length > 0 && !shared.has(name)) shared.set(name, form!);
  }
  return shared;
}

function withReferences(paths: Operations, shared: ReadonlyMap<string, Parameter>): Record<string, object> {
  const refer = (parameter: Parameter): object => {
    const name = `${parameter.in}.${parameter.name}`;
    const isShared = isDeepStrictEqual(shared.get(name), parameter);
    return isShared ? { $ref: `#/components/parameters/${name}` } : parameter;
  };
  return mapValues(paths, (item) =>
    mapValues(item, (operation) =>
      operation.parameters ? { ...operation, parameters: operation.parameters.map(refer) } : operation,
    ),
  );
}

/**
 * `403` for the codes that this status has on most routes; `403.functions_off` with a further code;
 * `401.only.not_signed_in` for other codes. The same codes always have the same name.
 */
function responseName(status: number, codes: readonly string[]): string {
  const usual: readonly string[] = usualErrors.get(status) ?? [];
  const further = codes.filter((code) => !usual.includes(code));
  const hasUsual = usual.every((code) => codes.includes(code));
  return [status, ...(hasUsual ? further : ['only', ...codes])].join('.');
}

function nameFrom({ operationId = '' }: Operation, kind: 'Request' | 'Response'): string {
  // A deprecated route has the schemas of its successor.
  const name = operationId.replace(/Deprecated$/, '');
  return `${name.charAt(0).toUpperCase()}${name.slice(1)}${kind}`;
}

/** Keeps a title that it has. A schema without structure needs no name. */
function titled(schema: JsonSchema, title: string | undefined): JsonSchema {
  const { properties, items, anyOf, oneOf, allOf } = schema;
  const hasParts = [properties, items, anyOf, oneOf, allOf].some((part) => part !== undefined);
  return hasParts && title !== undefined ? { title, ...schema } : schema;
}

function mapOperations(paths: Paths, change: (operation: Operation) => Operation): Paths {
  return mapValues(paths, (item) => mapValues(item, change));
}

function withBody(operation: Operation, change: (schema: JsonSchema) => JsonSchema): Operation {
  const { requestBody } = operation;
  return requestBody === undefined
    ? operation
    : { ...operation, requestBody: withContent(requestBody, change) };
}

function withContent<T extends Pick<Response, 'content'>>(
  part: T,
  change: (schema: JsonSchema) => JsonSchema,
): T {
  if (part.content === undefined) return part;
  const content = mapValues(part.content, (media) =>
    media.schema === undefined ? media : { ...media, schema: change(media.schema) },
  );
  return { ...part, content };
}

function mapSubschemas(schema: JsonSchema, change: (part: JsonSchema) => JsonSchema): JsonSchema {
  const { properties, items, additionalProperties, anyOf, oneOf, allOf } = schema;
  return {
    ...withoutImplied(schema),
    ...(properties && { properties: mapValues(properties, change) }),
    ...(items && { items: change(items) }),
    ...(typeof additionalProperties === 'object' && { additionalProperties: change(additionalProperties) }),
    ...(anyOf && { anyOf: anyOf.map(change) }),
    ...(oneOf && { oneOf: oneOf.map(change) }),
    ...(allOf && { allOf: allOf.map(change) }),
  };
}

/** Names of properties are always strings, and integers of JSON are safe anyway. */
function withoutImplied(schema: JsonSchema & { propertyNames?: unknown }): JsonSchema {
  const { propertyNames, minimum, maximum, ...rest } = schema;
  return {
    ...rest,
    ...(propertyNames !== undefined &&
      !isDeepStrictEqual(propertyNames, { type: 'string' }) && { propertyNames }),
    ...(minimum !== undefined && minimum !== Number.MIN_SAFE_INTEGER && { minimum }),
    ...(maximum !== undefined && maximum !== Number.MAX_SAFE_INTEGER && { maximum }),
  };
}

function sorted<V>(given: ReadonlyMap<string, V>): Record<string, V> {
  return Object.fromEntries([...given].toSorted(([one], [other]) => (one < other ? -1 : 1)));
}
