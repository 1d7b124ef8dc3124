/**
 * `integration_id` and `connection_id` are accepted by each route that names an integration or a connection by an older
 * spelling, such as `provider_config_key`, in the same place: the query, the body or a header.
 */
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { type FieldError, fieldError } from '../errors.ts';

/** Each name with its older spellings. A route's schema has one of them. */
const spellings: readonly [name: string, older: readonly string[]][] = [
  ['integration_id', ['provider_config_key', 'unique_key', 'integrationId']],
  ['connection_id', ['connectionId']],
  // Of the list of connections.
  ['provider_config_key', ['integrationId']],
];
const ofHeaders: typeof spellings = [['integration-id', ['provider-config-key']]];

type FieldCode = Parameters<typeof fieldError>[0];
const parts = [
  ['querystring', 'query', 'invalid_query_params'],
  ['body', 'body', 'invalid_body'],
  ['headers', 'headers', 'invalid_headers'],
] as const satisfies readonly (readonly [string, string, FieldCode])[];

/** By request: the names that it used, by the older spellings that the route reads. */
const sentNames = new WeakMap<FastifyRequest, Map<string, string>>();

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
export function namesIn(schema: unknown, part: string): Pair[] {
  if (!(schema instanceof z.ZodObject)) return [];
  const known = schema.shape as Record<string, unknown>;
  return (part === 'headers' ? ofHeaders : spellings).flatMap(([name, older]) => {
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
  const names = sentNames.get(request) ?? new Map<string, string>();
  sentNames.set(request, names);
  for (const { name, older } of pairs) {
    const value = fields[name];
    if (value === undefined) continue;
    if (fields[older] !== undefined && fields[older] !== value)
      throw fieldError(code, [name], `differs from \`${older}\`, which is an older spelling of it: send one`);
    fields[older] = value;
    names.set(older, name);
    delete fields[name];
  }
}
