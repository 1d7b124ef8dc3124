/**
 * Names and their older spellings: `integration_id` is accepted by each route that has a field with an older spelling of it,
 * such as `provider_config_key`, in the same place (query, body or header), and is in each response that has one.
 */
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { type FieldError, fieldError } from '../errors.ts';
import type { JsonSchema } from './openapi/examples.ts';

/** Of the choice of a sheet. The document has only the present names. */
const replaced: readonly [name: string, older: readonly string[]][] = [
  ['spreadsheet_id', ['spreadsheetId']],
  ['sheet_id', ['sheetId']],
  ['header_row', ['headerRow']],
  ['key_column', ['keyColumn']],
  ['page_token', ['pageToken']],
  ['next_page_token', ['nextPageToken']],
  ['modified_at', ['modifiedAt']],
  ['total_rows', ['totalRows']],
  ['suggested_header_row', ['suggestedHeaderRow']],
  ['suggested_key_column', ['suggestedKeyColumn']],
];
const presentNames = new Map(replaced.flatMap(([name, older]) => older.map((one) => [one, name] as const)));

/** Each name with its older spellings. A route's schema has one of them. */
const spellings: readonly [name: string, older: readonly string[]][] = [
  ['integration_id', ['provider_config_key', 'unique_key', 'integrationId', 'providerConfigKey']],
  ['connection_id', ['connectionId']],
  // Of the list of connections.
  ['provider_config_key', ['integrationId']],
  ['end_user_id', ['endUserId']],
  ['end_user_organization_id', ['endUserOrganizationId']],
  ...replaced,
];
const ofHeaders: typeof spellings = [['integration-id', ['provider-config-key']]];

type FieldCode = Parameters<typeof fieldError>[0];
const parts = [
  ['querystring', 'query', 'invalid_query_params'],
  ['body', 'body', 'invalid_body'],
  ['headers', 'headers', 'invalid_headers'],
] as const satisfies readonly (readonly [string, string, FieldCode])[];

/** By request: the names that it used, by the parameters that the route reads. */
const sentNames = new WeakMap<FastifyRequest, Map<string, string>>();

/** Errors of the parameter are reported under `sent`, the name that the caller used. */
export function setSentName(request: FastifyRequest, parameter: string, sent: string): void {
  const names = sentNames.get(request) ?? new Map<string, string>();
  sentNames.set(request, names.set(parameter, sent));
}

/** The errors of a request with the names that the caller sent. */
export function namedAsSent(request: FastifyRequest, errors: readonly FieldError[]): FieldError[] {
  const names = sentNames.get(request);
  if (names === undefined) return [...errors];
  return errors.map((error) => {
    const [first, ...rest] = error.path;
    const name = names.get(String(first));
    return name === undefined ? error : { ...error, path: [name, ...rest] };
  });
}

/** To be called before the routes are added. */
export function addSpellings(app: FastifyInstance): void {
  app.addHook('onRoute', (route) => {
    const taken = parts.flatMap(([part, place, code]) => {
      const pairs = namesIn(route.schema?.[part], part);
      return pairs.length === 0 ? [] : [{ pairs, place, code }];
    });
    if (taken.length === 0) return;
    route.preValidation = [
      async (request) => {
        for (const { pairs, place, code } of taken) rename(request[place], { request, pairs, code });
      },
      ...[route.preValidation ?? []].flat(),
    ];
  });
}

type Pair = { name: string; older: string };

/** The names that a part of a request takes in addition to those of its schema. */
function namesIn(schema: unknown, part: string): Pair[] {
  return schema instanceof z.ZodObject
    ? pairsIn(schema.shape, part === 'headers' ? ofHeaders : spellings)
    : [];
}

function pairsIn(known: object, table: typeof spellings): Pair[] {
  return table.flatMap(([name, older]) => {
    const own = older.find((one) => Object.hasOwn(known, one));
    return own === undefined || Object.hasOwn(known, name) ? [] : [{ name, older: own }];
  });
}

function rename(
  given: unknown,
  { request, pairs, code }: { request: FastifyRequest; pairs: Pair[]; code: FieldCode },
): void {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) return;
  const fields = given as Record<string, unknown>;
  for (const { name, older } of pairs) {
    const value = fields[name];
    if (value === undefined) {
      // A field that is missing is named by its present name.
      if (fields[older] === undefined) setSentName(request, older, name);
      continue;
    }
    if (fields[older] !== undefined && fields[older] !== value) {
      const other = sentNames.get(request)?.get(older) ?? older;
      throw fieldError(
        code,
        [name],
        `differs from \`${other}\`, another spelling of the same parameter: send one of them`,
      );
    }
    fields[older] = value;
    setSentName(request, older, name);
    delete fields[name];
  }
}

type Fields = Record<string, unknown>;

/** Adds `integration_id` beside an older spelling of it in the object itself, for responses without a schema. */
export function withIntegrationId<T extends { provider_config_key: string | null }>(
  named: T,
): T & { integration_id: string | null };
export function withIntegrationId(named: Fields): Fields;
export function withIntegrationId(named: Fields): Fields {
  const { provider_config_key: id } = named;
  return id === undefined ? named : { integration_id: id, ...named };
}

/**
 * Returns a function that adds the present names to a response of this schema, in place. Undefined if the schema has no older
 * spelling.
 */
export function nameAdder(schema: unknown): ((response: unknown) => void) | undefined {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable) return nameAdder(schema.unwrap());
  if (schema instanceof z.ZodUnion) return forAll(schema.options.map(nameAdder));
  if (schema instanceof z.ZodArray) {
    const add = nameAdder(schema.element);
    return add && ((response) => Array.isArray(response) && response.forEach(add));
  }
  if (!(schema instanceof z.ZodObject)) return undefined;
  const pairs = pairsIn(schema.shape, spellings);
  const inside = Object.entries(schema.shape).flatMap(([field, part]) => {
    const add = nameAdder(part);
    return add ? [(fields: Fields) => add(fields[field])] : [];
  });
  if (pairs.length === 0 && inside.length === 0) return undefined;
  return (response) => {
    if (typeof response !== 'object' || response === null) return;
    const fields = response as Fields;
    for (const { name, older } of pairs) if (fields[older] !== undefined) fields[name] = fields[older];
    for (const add of inside) add(fields);
  };
}

function forAll<T>(all: (((value: T) => void) | undefined)[]): ((value: T) => void) | undefined {
  const known = all.filter((add) => add !== undefined);
  if (known.length === 0) return undefined;
  return (value) => {
    for (const add of known) add(value);
  };
}

/** The schema of a response with the names that `nameAdder` adds. */
export function withResponseNames(schema: JsonSchema): JsonSchema {
  const { items, anyOf, oneOf, allOf, properties, required, ...rest } = renamed(schema);
  const pairs = pairsIn(properties ?? {}, spellings);
  const added = pairs.map(({ name, older }): [string, JsonSchema] => [name, properties![older]!]);
  const isOlder = (name: string) => pairs.some(({ older }) => older === name);
  const own = Object.entries(properties ?? {}).map(([name, part]) => {
    const { description, ...plain } = withResponseNames(part);
    // The present name has the description.
    return [name, isOlder(name) || description === undefined ? plain : { description, ...plain }] as const;
  });
  const needed = pairs.filter(({ older }) => required?.includes(older)).map(({ name }) => name);
  return {
    ...rest,
    ...(items && { items: withResponseNames(items) }),
    ...(anyOf && { anyOf: anyOf.map(withResponseNames) }),
    ...(oneOf && { oneOf: oneOf.map(withResponseNames) }),
    ...(allOf && { allOf: allOf.map(withResponseNames) }),
    ...(properties && { properties: Object.fromEntries([...added, ...own]) }),
    ...(required && { required: [...required, ...needed] }),
  };
}

/** The schema of a part of a request with the names that the part takes in addition. A required field may have either name. */
export function withRequestNames(schema: JsonSchema, part: string): JsonSchema {
  const present = renamed(schema);
  const { properties = {}, required = [], ...rest } = present;
  const pairs = pairsIn(properties, part === 'headers' ? ofHeaders : spellings);
  if (pairs.length === 0) return present;
  const needed = pairs.find(({ older }) => required.includes(older));
  const named = pairs.map(({ name, older }): [string, JsonSchema] => [name, properties[older] ?? {}]);
  // An older spelling with two present names gets the description of the first pair, which must come last here.
  const olderOnes = pairs
    .toReversed()
    .map(({ name, older }): [string, JsonSchema] => [
      older,
      { type: 'string', description: `Same as \`${name}\`.` },
    ]);
  const others = required.filter((field) => field !== needed?.older);
  return {
    ...rest,
    properties: { ...Object.fromEntries(named), ...properties, ...Object.fromEntries(olderOnes) },
    ...(others.length > 0 && { required: others }),
    ...(needed && { anyOf: [{ required: [needed.name] }, { required: [needed.older] }] }),
  };
}

/** The schema with the present names of replaced fields. */
function renamed(schema: JsonSchema): JsonSchema {
  const { properties, required } = schema;
  const presentName = (name: string) => presentNames.get(name) ?? name;
  const fields = Object.entries(properties ?? {}).map(([name, part]) => [presentName(name), part] as const);
  return {
    ...schema,
    ...(properties && { properties: Object.fromEntries(fields) }),
    ...(required && { required: required.map(presentName) }),
  };
}
