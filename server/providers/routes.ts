import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import type { Catalog } from './catalog.ts';
import type { AuthModeTable, FormField, ProviderDefinition } from './definition.ts';
import {
  catalogOfEnvironment,
  environmentName,
  findEnvironmentDefinition,
} from './environment-definitions.ts';

export const providerWire = z.looseObject({
  name: z.string(),
  display_name: z.string(),
  auth_mode: z.string(),
  /** Whether an integration of this provider has an OAuth client of yours. */
  oauth_client: z.enum(['required', 'optional', 'none']),
  redirect_uri: z.string().optional(),
  /** Of a provider that only this environment has. */
  origin: z.literal('environment').optional(),
  /** The text of its definition. */
  definition: z.string().optional(),
});
nameSchemas({ Provider: providerWire });

/** `logosUrl` is where `providers/logos/` is served, without a trailing slash; `redirectUri` is registered at the provider. */
export type WireOf = { logosUrl: string; redirectUri: string; modes: AuthModeTable };

export function wireOf({
  catalog: { modes },
  baseUrl,
  callbackBaseUrl,
}: {
  catalog: Catalog;
  baseUrl: string;
  callbackBaseUrl: string;
}): WireOf {
  return { logosUrl: `${baseUrl}/providers/logos`, redirectUri: `${callbackBaseUrl}/oauth/callback`, modes };
}

/**
 * The catalogue, for applications and connect pages, with the definitions of the caller's environment. A logo is from the
 * first of the folders that has it.
 */
export function providerRoutes(
  app: App,
  {
    db,
    catalog,
    baseUrl,
    callbackBaseUrl,
    directories,
  }: {
    db: Db;
    catalog: Catalog;
    baseUrl: string;
    callbackBaseUrl: string;
    directories: readonly string[];
  },
): void {
  const wire = wireOf({ catalog, baseUrl, callbackBaseUrl });
  const shown = (definition: ProviderDefinition) => ({
    ...toWire(definition, wire),
    ...(catalog.find(definition.name) !== definition && { origin: 'environment' as const }),
  });

  app.get(
    '/providers',
    {
      config: { access: { by: 'key or session', scope: 'integrations:read' } },
      schema: {
        operationId: 'listProviders',
        list: { items: 'data', by: 'whole' },
        summary: 'List providers',
        description: 'The catalogue of supported providers, with the data that a connect page needs.',
        querystring: z.strictObject({ search: z.string().max(255).optional() }),
        response: { 200: z.object({ data: z.array(providerWire) }) },
      },
    },
    async ({ query, caller: { environmentId } }) => {
      const known = await catalogOfEnvironment(db, { catalog, environmentId });
      return { data: known.list(query.search).map(shown) };
    },
  );

  app.get(
    '/providers/:provider',
    {
      config: { access: { by: 'key or session', scope: 'integrations:read' } },
      schema: {
        operationId: 'getProvider',
        summary: 'Get a provider',
        description:
          'Its endpoints, its scopes, and the fields that its connect form has. Keys get the text of a definition of their environment.',
        errors: ['not_found'],
        params: z.object({ provider: z.string().max(255) }),
        response: { 200: z.object({ data: providerWire }) },
      },
    },
    async ({ params: { provider: name }, caller: { environmentId, kind } }) => {
      const known = await catalogOfEnvironment(db, { catalog, environmentId, names: [name] });
      const found = known.find(name);
      if (found === undefined) throw new AppError('not_found', `No provider is called "${name}".`);
      const own =
        kind === 'session' ? undefined : await findEnvironmentDefinition(db, { environmentId, name });
      return { data: { ...shown(found), ...(own && { definition: own.text }) } };
    },
  );

  app.get(
    '/providers/logos/:file',
    {
      config: { access: { by: 'anyone', isLimited: false } },
      schema: {
        operationId: 'getProviderLogo',
        summary: 'Get the logo of a provider',
        description:
          'The address is in the field `logo_url` of the provider. For a provider without a file, the image shows two letters of its name.',
        errors: ['not_found'],
        params: z.object({ file: z.string().regex(/^[a-z0-9-]+\.svg$/) }),
        answers: {
          200: {
            description: 'The image.',
            type: 'image/svg+xml',
            schema: { type: 'string' },
            example: '<svg xmlns="http://www.w3.org/2000/svg"/>',
          },
        },
      },
    },
    async ({ params }, reply) => {
      const path = await firstFile(directories.map((directory) => join(directory, 'logos', params.file)));
      const namesake = catalog.find(params.file.replace(/\.svg$/, ''));
      const provider =
        namesake?.logo === params.file
          ? namesake
          : (catalog.list().find(({ logo }) => logo === params.file) ?? ofEnvironments(params.file));
      if (path === undefined && provider === undefined)
        throw new AppError('not_found', 'There is no such logo.');
      reply
        .header('cache-control', 'public, max-age=86400')
        .header('content-security-policy', 'sandbox')
        .type('image/svg+xml');
      return path === undefined
        ? monogram({ name: provider!.name, title: provider!.display_name })
        : createReadStream(path);
    },
  );
}

/** What the logo of an environment's definition shows. Anyone may request it, so it does not depend on the definition. */
function ofEnvironments(file: string): { name: string; display_name: string } | undefined {
  const name = file.replace(/\.svg$/, '');
  return environmentName.test(name) ? { name, display_name: name.replace(/^own-/, '') } : undefined;
}

async function firstFile(paths: readonly string[]): Promise<string | undefined> {
  for (const path of paths) {
    const found = await stat(path).catch(() => undefined);
    if (found?.isFile()) return path;
  }
  return undefined;
}

/**
 * A provider as `GET /providers` shows it, under the keys that official clients read.
 */
export function toWire(definition: ProviderDefinition, { logosUrl, redirectUri, modes }: WireOf) {
  const client = modes.get(definition.auth_mode)?.client ?? 'none';
  const { authorization, token, oauth1, refresh, scopes, api, verification, setup } = definition;
  return {
    name: definition.name,
    display_name: definition.display_name,
    logo_url: `${logosUrl}/${definition.logo}`,
    categories: definition.categories,
    docs: definition.docs,
    level: definition.level,
    ...(definition.source && { source: definition.source }),
    // The day and the page of the facts, as answers had it before there was a level.
    verified: definition.level === 'community' ? null : definition.source,
    ...(definition.sunset.length > 0 && { sunset: definition.sunset }),
    auth_mode: definition.auth_mode,
    oauth_client: client,
    ...(authorization && {
      authorization_url: authorization.url,
      redirect_uri: redirectUri,
      authorization_params: {
        ...(oauth1 === undefined && { response_type: 'code' }),
        ...authorization.params,
      },
      ...(authorization.pkce === 'none' && { disable_pkce: true }),
    }),
    ...(setup && {
      setup: { ...setup, steps: setup.steps.map((step) => step.replace('{redirect_uri}', redirectUri)) },
    }),
    ...(token && {
      token_url: token.url,
      ...(Object.keys(token.params).length > 0 && { token_params: token.params }),
      ...(token.auth_method === 'client_secret_basic' && { token_request_auth_method: 'basic' as const }),
    }),
    ...(refresh.url !== undefined && { refresh_url: refresh.url }),
    ...(client !== 'none' && {
      scope_separator: scopes.separator,
      default_scopes: scopes.default,
      available_scopes: Object.keys(scopes.catalogue),
      scopes: Object.entries(scopes.catalogue).map(([scope, { sensitivity, description }]) => ({
        scope,
        sensitivity,
        description,
      })),
    }),
    ...(api.base_url !== null && {
      proxy: {
        base_url: api.base_url,
        ...(Object.keys(api.headers).length > 0 && { headers: api.headers }),
        ...(api.paginate && { paginate: api.paginate }),
        ...(verification && {
          verification: { method: verification.method, endpoints: [verification.path] },
        }),
      },
    }),
    ...formOf('connection_config', definition.connection_config),
    ...formOf('integration_config', definition.integration_config),
    ...formOf('credentials', definition.credentials),
    has_sandbox: definition.sandbox !== undefined,
  };
}

function formOf(key: string, form: Readonly<Record<string, FormField>>) {
  const entries = Object.entries(form);
  if (entries.length === 0) return {};
  const wire = entries.map(([name, field], index) => [
    name,
    {
      type: 'string',
      title: field.title,
      description: field.description,
      ...(field.pattern !== undefined && { pattern: field.pattern }),
      ...(field.format !== undefined && { format: field.format }),
      ...(field.example !== undefined && { example: field.example }),
      optional: !field.required,
      secret: field.secret,
      order: index,
      automated: false,
    },
  ]);
  return { [key]: Object.fromEntries(wire) };
}

/**
 * A logo for a provider without one: two letters of its name on a colored ground. The same name always has the same
 * color. It imitates no trade mark.
 */
export function monogram({ name, title }: { name: string; title: string }): string {
  const words = title.split(/[^\p{L}\p{N}]+/u).filter((word) => word !== '');
  const [first = '', second] = words;
  const letters =
    second === undefined ? [...first].slice(0, 2).join('') : `${first.at(0)}${second.at(0)}`.toUpperCase();
  let sum = 0;
  for (const sign of name) sum = (sum * 31 + (sign.codePointAt(0) ?? 0)) % 360;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><title>${escaped(title)}</title>` +
    // Dark enough for white letters in every hue: a contrast of at least 4.5.
    `<rect width="32" height="32" rx="7" fill="hsl(${sum} 60% 30%)"/>` +
    '<text x="16" y="21" font-family="sans-serif" font-size="14" font-weight="600" text-anchor="middle" fill="#fff">' +
    `${escaped(letters)}</text></svg>\n`
  );
}

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
}
