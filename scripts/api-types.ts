import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { errorCatalogue } from '../server/errors.ts';
import { startRunningService } from '../test/support/service.ts';

/**
 * Writes the types of the API for the client and the dashboard: `sdk/client/routes.ts` and `event-types.ts` from the
 * OpenAPI document of the service, `error-codes.ts` from the catalogue of errors.
 *
 * Use: `node scripts/api-types.ts [ADDRESS]`, which starts a service, or uses the service at ADDRESS. The files are
 * compared with the service by `sdk/client/generated.test.ts`.
 */
type Schema = {
  $ref?: string;
  type?: string | string[];
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
};
type Parameter = { $ref?: string; name: string; in: string; required?: boolean; schema?: Schema };
type Content = { $ref?: string; content?: Record<string, { schema?: Schema }> };
type Operation = {
  deprecated?: boolean;
  parameters?: Parameter[];
  requestBody?: Content;
  responses?: Record<string, Content>;
};
export type OpenApi = {
  components: {
    schemas: Record<string, Schema>;
    parameters: Record<string, Parameter>;
    requestBodies: Record<string, Content>;
    responses: Record<string, Content>;
  };
  /** `parameters` of a path are those of all its operations. */
  paths: Record<string, Record<string, Operation> & { parameters?: Parameter[] }>;
  webhooks: Record<string, Record<string, Operation & { description?: string }>>;
};

/** The text of each file for a document, by its name in `sdk/client/`; the same document gives the same text. */
export function generatedFiles(document: OpenApi): Record<string, string> {
  return {
    'routes.ts': apiTypes(document),
    'event-types.ts': eventTypes(document),
    'error-codes.ts': errorCodes(),
  };
}

function apiTypes({ paths, components }: OpenApi): string {
  const routes = Object.entries(paths).flatMap(([path, { parameters = [], ...operations }]) =>
    Object.entries(operations)
      .filter(([, { deprecated }]) => deprecated !== true)
      .map(([method, operation]) => ({
        name: `${method.toUpperCase()} ${path}`,
        operation: { ...operation, parameters: [...parameters, ...(operation.parameters ?? [])] },
      })),
  );
  const lines = routes
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ name, operation }) => `  ${JSON.stringify(name)}: ${routeType(operation, components)};`);
  // Errors are instances of TrellisError.
  const { Error: _, ...schemas } = components.schemas;
  return [
    '// Written by scripts/api-types.ts out of /openapi.json.',
    '',
    '/** The objects of the API by their names in the OpenAPI document. */',
    'export type Schemas = {',
    ...Object.entries(schemas).map(([name, schema]) => `  ${name}: ${typeOf(schema)};`),
    '};',
    '',
    '/** The routes of the service by name: parameters and response body. */',
    'export type Routes = {',
    ...lines,
    '};',
    '',
  ].join('\n');
}

function eventTypes({ webhooks, components }: OpenApi): string {
  const resolve = (schema: Schema) => (schema.$ref ? components.schemas[nameIn(schema.$ref)]! : schema);
  /** The schema of `data`, in whichever part of the event. */
  const dataOf = (schema: Schema): Schema | undefined => {
    const { properties, allOf = [] } = resolve(schema);
    return properties?.data ?? allOf.map(dataOf).find((found) => found !== undefined);
  };
  const lines = Object.entries(webhooks)
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .flatMap(([name, { post }]) => {
      const schema = post?.requestBody?.content?.['application/json']?.schema;
      const data = schema && dataOf(schema);
      return [
        `  /** ${post?.description ?? ''} */`,
        `  ${JSON.stringify(name)}: ${data ? typeOf(data) : 'unknown'};`,
      ];
    });
  return [
    '// Written by scripts/api-types.ts out of /openapi.json.',
    "import type { Schemas } from './routes.ts';",
    '',
    '/** What the event of each type carries as its `data`. */',
    'export type EventData = {',
    ...lines,
    '};',
    '',
  ].join('\n');
}

function errorCodes(): string {
  return [
    '// Written by scripts/api-types.ts out of the catalogue of errors.',
    '',
    '/** The codes of the errors that the service answers. */',
    'export type ErrorCode =',
    ...Object.keys(errorCatalogue)
      .sort()
      .map((code, at, all) => `  | '${code}'${at === all.length - 1 ? ';' : ''}`),
    '',
  ].join('\n');
}

function routeType(
  { parameters: given = [], requestBody, responses = {} }: Operation,
  components: OpenApi['components'],
): string {
  const parameters = given.map((one) => (one.$ref ? components.parameters[nameIn(one.$ref)]! : one));
  const placed = (place: string) => {
    const own = parameters.filter((parameter) => parameter.in === place);
    return typeOf({
      type: 'object',
      properties: Object.fromEntries(own.map(({ name, schema }) => [name, schema ?? {}])),
      required: own.filter(({ required }) => required === true).map(({ name }) => name),
      additionalProperties: false,
    });
  };
  const success = Object.entries(responses).find(([status]) => status.startsWith('2'))?.[1];
  const schemaOf = (part: Content | undefined, shared: Record<string, Content>) =>
    (part?.$ref ? shared[nameIn(part.$ref)] : part)?.content?.['application/json']?.schema;
  const answer = schemaOf(success, components.responses);
  const body = schemaOf(requestBody, components.requestBodies);
  return `{ path: ${placed('path')}; query: ${placed('query')}; headers: ${placed('header')}; body: ${
    body ? typeOf(body) : 'undefined'
  }; answer: ${answer ? typeOf(answer) : 'undefined'} }`;
}

function typeOf(schema: Schema): string {
  const { $ref, anyOf, oneOf, allOf, enum: values, type, properties } = schema;
  if ($ref !== undefined) return `Schemas['${nameIn($ref)}']`;
  if ('const' in schema) return JSON.stringify(schema.const);
  if (values) return values.map((value) => JSON.stringify(value)).join(' | ');
  // An object that needs one of several fields.
  if (anyOf && properties) {
    const needed = anyOf.map(({ required = [] }) =>
      objectType({
        required,
        properties: Object.fromEntries(required.map((name) => [name, properties[name]!])),
      }),
    );
    return `${objectType(schema)} & (${needed.join(' | ')})`;
  }
  const alternatives = anyOf ?? oneOf;
  if (alternatives) return alternatives.map(typeOf).join(' | ');
  if (allOf) return allOf.map((part) => `(${typeOf(part)})`).join(' & ');
  if (Array.isArray(type)) return type.map((one) => typeOf({ ...schema, type: one })).join(' | ');
  switch (type) {
    case 'string':
    case 'boolean':
    case 'null':
      return type;
    case 'number':
    case 'integer':
      return 'number';
    case 'array':
      return `(${schema.items ? typeOf(schema.items) : 'unknown'})[]`;
    case 'object':
      return objectType(schema);
    default:
      return properties ? objectType(schema) : 'unknown';
  }
}

/** The name of a schema that `#/components/schemas/<name>` refers to. */
function nameIn(reference: string): string {
  return reference.slice(reference.lastIndexOf('/') + 1);
}

function objectType({ properties = {}, required = [], additionalProperties }: Schema): string {
  const fields = Object.entries(properties).map(
    ([name, schema]) =>
      `${/^[A-Za-z_]\w*$/.test(name) ? name : JSON.stringify(name)}${required.includes(name) ? '' : '?'}: ${typeOf(schema)}`,
  );
  const isOpen = typeof additionalProperties === 'object' || additionalProperties === true;
  if (!isOpen) return fields.length > 0 ? `{ ${fields.join('; ')} }` : 'Record<string, never>';
  const rest = typeof additionalProperties === 'object' ? typeOf(additionalProperties) : 'unknown';
  const open = `Record<string, ${rest}>`;
  return fields.length > 0 ? `{ ${fields.join('; ')} } & ${open}` : open;
}

if (import.meta.main) {
  const [address] = process.argv.slice(2);
  const service = address === undefined ? await startRunningService() : undefined;
  const answer = await fetch(new URL('/openapi.json', address ?? service?.baseUrl));
  const document = (await answer.json()) as OpenApi;
  for (const [name, text] of Object.entries(generatedFiles(document)))
    writeFileSync(join(import.meta.dirname, '../sdk/client', name), text);
  await service?.stop();
}
