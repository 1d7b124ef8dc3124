/**
 * Names in the OpenAPI document. A schema with a `title` becomes `components.schemas[title]`; a JSON body or response
 * without a title gets the name of its operation. Responses, bodies and parameters that several operations have become
 * components.
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
  const shared = shareParts({ paths: whole, webhooks: told });
  return { ...shared, schemas: sorted(schemas) };
}

/** Makes a component of each part that occurs more than once. */
function shareParts(given: { paths: Paths; webhooks: Paths }): Omit<Named, 'schemas'> {
  const operations = [given.paths, given.webhooks].flatMap((items) =>
    Object.values(items).flatMap((item) => Object.values(item)),
  );
  const parameters = components(
    'parameters',
    operations.flatMap(({ parameters: own = [] }) => own),
    ({ name }) => name,
  );
  const requestBodies = components(
    'requestBodies',
    operations.flatMap(({ requestBody }) => requestBody ?? []),
    (body) => schemaNameOf(body)?.replace(/Request$/, '') ?? 'Body',
  );
  const responses = components(
    'responses',
    operations.flatMap(({ responses: own = {} }) => Object.values(own)),
    responseName,
  );
  const refer = (items: Paths) =>
    mapValues(items, (item) =>
      mapValues(item, (operation) => ({
        ...operation,
        ...(operation.parameters && { parameters: operation.parameters.map(parameters.refer) }),
        ...(operation.requestBody && { requestBody: requestBodies.refer(operation.requestBody) }),
        ...(operation.responses && { responses: mapValues(operation.responses, responses.refer) }),
      })),
    );
  return {
    ...{ paths: refer(given.paths), webhooks: refer(given.webhooks) },
    ...{ parameters: parameters.all, requestBodies: requestBodies.all, responses: responses.all },
  };
}

/** The parts that occur more than once, the most frequent first: of several with the same name, it has no number. */
function components<P extends object>(
  kind: string,
  parts: readonly P[],
  nameOf: (part: P) => string,
): { all: Record<string, P>; refer: (part: P) => object } {
  const names = new Map<string, string>();
  const all = new Map<string, P>();
  const groups = Map.groupBy(parts, (part) => JSON.stringify(part));
  for (const [text, [part, ...others]] of [...groups].toSorted(([, a], [, b]) => b.length - a.length)) {
    if (others.length === 0) continue;
    const wanted = nameOf(part!);
    let name = wanted;
    for (let number = 2; all.has(name); number += 1) name = `${wanted}.${number}`;
    names.set(text, name);
    all.set(name, part!);
  }
  return {
    all: sorted(all),
    refer: (part) => {
      const name = names.get(JSON.stringify(part));
      return name === undefined ? part : { $ref: `#/components/${kind}/${name}` };
    },
  };
}

/** `Integration` for its schema; `not_found` for the first code of a status, `Errors` for those of several. */
function responseName(response: Response): string {
  const { description } = response;
  if (description.startsWith('By status. ')) return 'Errors';
  const name = schemaNameOf(response);
  const code = name === 'Error' ? /`(\w+)`/.exec(description)?.[1] : undefined;
  return code ?? name?.replace(/Response$/, '') ?? 'Done';
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

function sorted<V>(given: ReadonlyMap<string, V>): Record<string, V> {
  return Object.fromEntries([...given].toSorted(([one], [other]) => (one < other ? -1 : 1)));
}
