/**
 * Names in the OpenAPI document. A schema with a `title` becomes `components.schemas[title]`; a JSON body or response
 * without a title gets the name of its operation. Responses, bodies and parameters that several operations have become
 * components, and parameters of all operations of a path are those of the path.
 */
import { isDeepStrictEqual } from 'node:util';
import type { JsonSchema } from './examples.ts';
import {
  mapValues,
  type Operation,
  type Parameter,
  type PathItem,
  type Response,
  withoutImplied,
} from './openapi-operation.ts';

type Paths = Record<string, PathItem>;
type Body = NonNullable<Operation['requestBody']>;
type Direction = 'sent' | 'received';

type Named = {
  paths: Record<string, object>;
  webhooks: Record<string, object>;
  schemas: Record<string, JsonSchema>;
  responses: Record<string, Response>;
  requestBodies: Record<string, Body>;
  parameters: Record<string, Parameter>;
};

/** The parts of the document with references in place of what has a name, and what they refer to. */
export function withNames({ paths, webhooks }: { paths: Paths; webhooks: Paths }): Named {
  const schemas = new Map<string, JsonSchema>();
  const refer = (schema: JsonSchema, direction: Direction): JsonSchema => {
    const { title, ...mapped } = mapSubschemas(schema, (part) => refer(part, direction));
    // Clients must accept further fields, which later releases may add.
    const whole = direction === 'sent' ? open(mapped) : mapped;
    if (title === undefined) return whole;
    const names = direction === 'received' ? [title, `${title}Input`] : [title];
    for (const name of names) {
      const known = schemas.get(name);
      const isSame = known === undefined || [whole, open(whole)].some((one) => isDeepStrictEqual(known, one));
      if (!isSame) continue;
      if (known !== undefined) return { $ref: `#/components/schemas/${name}` };
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
          const named = (schema: JsonSchema) =>
            status.startsWith('2')
              ? titled(schema, wrapperName(schema) ?? nameFrom(operation, 'Response'))
              : schema;
          return [status, withContent(response, (schema) => refer(named(schema), 'sent'))];
        }),
      ),
    }),
  }));
  const told = mapOperations(webhooks, (operation) => withBody(operation, (schema) => refer(schema, 'sent')));
  const whole = mapOperations(answered, (operation) =>
    withBody(operation, (schema) => refer(titled(schema, nameFrom(operation, 'Request')), 'received')),
  );
  // A parameter refers to a schema that bodies have, and adds none.
  const known = (schema: JsonSchema): JsonSchema => {
    const { title, ...rest } = schema;
    return title !== undefined && isDeepStrictEqual(schemas.get(title), rest)
      ? { $ref: `#/components/schemas/${title}` }
      : rest;
  };
  const referring = mapOperations(whole, (operation) => ({
    ...operation,
    ...(operation.parameters && {
      parameters: operation.parameters.map((one) => ({
        ...one,
        ...(one.schema && { schema: known(one.schema) }),
      })),
    }),
  }));
  const shared = shareParts({ paths: referring, webhooks: told });
  return { ...shared, schemas: sorted(schemas) };
}

/** Makes a component of each part that occurs more than once. */
function shareParts(given: { paths: Paths; webhooks: Paths }): Omit<Named, 'schemas'> {
  const operations = [given.paths, given.webhooks].flatMap((items) =>
    Object.values(items).flatMap((item) => Object.values(item)),
  );
  const parameters = components(
    'parameters',
    operations.flatMap(({ parameters: own = [] }) => own.map((one) => [one.name, one] as const)),
  );
  const requestBodies = components(
    'requestBodies',
    operations.flatMap(({ requestBody: own }) => (own ? [[bodyName(own), own] as const] : [])),
  );
  const responses = components(
    'responses',
    operations.flatMap(({ responses: own = {} }) =>
      Object.entries(own).map(([status, one]) => [responseName(status, one), one] as const),
    ),
  );
  const refer = (items: Paths) =>
    mapValues(items, (item) =>
      withPathParameters(
        mapValues(item, ({ parameters: taken, requestBody, responses: answered, ...operation }) => ({
          ...operation,
          ...(taken && { parameters: taken.map((one) => parameters.refer(one.name, one)) }),
          ...(requestBody && { requestBody: requestBodies.refer(bodyName(requestBody), requestBody) }),
          ...(answered && {
            responses: Object.fromEntries(
              Object.entries(answered).map(([status, one]) => [
                status,
                responses.refer(responseName(status, one), one),
              ]),
            ),
          }),
        })),
      ),
    );
  return {
    paths: refer(given.paths),
    webhooks: refer(given.webhooks),
    parameters: parameters.all,
    requestBodies: requestBodies.all,
    responses: responses.all,
  };
}

/** Parameters that all operations of a path have in common are written once. */
function withPathParameters(item: Record<string, { parameters?: object[] }>): object {
  const [first = [], ...others] = Object.values(item).map(({ parameters = [] }) => parameters);
  const isIn = (list: object[]) => (one: object) => list.some((other) => isDeepStrictEqual(one, other));
  const common = first.filter((one) => others.every((list) => isIn(list)(one)));
  if (others.length === 0 || common.length === 0) return item;
  const own = mapValues(item, ({ parameters = [], ...operation }) => {
    const further = parameters.filter((one) => !isIn(common)(one));
    return { ...operation, ...(further.length > 0 && { parameters: further }) };
  });
  return { parameters: common, ...own };
}

/** The parts that occur more than once, the most frequent first: of several with the same name, it has no number. */
function components<P extends object>(
  kind: string,
  parts: readonly (readonly [name: string, part: P])[],
): { all: Record<string, P>; refer: (wanted: string, part: P) => object } {
  const keyOf = (wanted: string, part: P) => `${wanted} ${JSON.stringify(part)}`;
  const names = new Map<string, string>();
  const all = new Map<string, P>();
  const groups = Map.groupBy(parts, ([wanted, part]) => keyOf(wanted, part));
  for (const [key, [given, ...others]] of [...groups].toSorted(([, a], [, b]) => b.length - a.length)) {
    if (others.length === 0) continue;
    const [wanted, part] = given!;
    let name = wanted;
    for (let number = 2; all.has(name); number += 1) name = `${wanted}.${number}`;
    names.set(key, name);
    all.set(name, part);
  }
  return {
    all: sorted(all),
    refer: (wanted, part) => {
      const name = names.get(keyOf(wanted, part));
      return name === undefined ? part : { $ref: `#/components/${kind}/${name}` };
    },
  };
}

/** `Integration` for its schema; the status of errors, and `Errors` for those of several. */
function responseName(status: string, response: Response): string {
  if (response.description.startsWith('By status. ')) return 'Errors';
  const name = schemaNameOf(response);
  return name === 'Error' ? status : (name?.replace(/Response$/, '') ?? 'Done');
}

/** `Integration` for the schema of a body. */
function bodyName(body: Body): string {
  return schemaNameOf(body)?.replace(/Request$/, '') ?? 'Body';
}

/** The name of the schema of a body or a response. */
function schemaNameOf({ content }: Pick<Response, 'content'>): string | undefined {
  return Object.values(content ?? {})[0]
    ?.schema?.$ref?.split('/')
    .at(-1);
}

/** The name of a response that only wraps a named object in `data`. */
function wrapperName({ properties = {} }: JsonSchema): string | undefined {
  const [[name, schema] = [], ...others] = Object.entries(properties);
  return name === 'data' && others.length === 0 && schema?.title ? `${schema.title}Response` : undefined;
}

function open({ additionalProperties, ...schema }: JsonSchema): JsonSchema {
  return additionalProperties === undefined || additionalProperties === false
    ? schema
    : { ...schema, additionalProperties };
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

function mapSubschemas(given: JsonSchema, change: (part: JsonSchema) => JsonSchema): JsonSchema {
  const schema = withoutImplied(given);
  const { properties, propertyNames, items, additionalProperties, anyOf, oneOf, allOf } = schema;
  return {
    ...schema,
    ...(propertyNames !== undefined && { propertyNames: change(propertyNames as JsonSchema) }),
    ...(properties && { properties: mapValues(properties, change) }),
    ...(items && { items: change(items) }),
    ...(typeof additionalProperties === 'object' && { additionalProperties: change(additionalProperties) }),
    ...(anyOf && { anyOf: anyOf.map(change) }),
    ...(oneOf && { oneOf: oneOf.map(change) }),
    ...(allOf && { allOf: allOf.map(change) }),
  };
}

function sorted<V>(given: ReadonlyMap<string, V>): Record<string, V> {
  return Object.fromEntries([...given].toSorted(([one], [other]) => (one < other ? -1 : 1)));
}
