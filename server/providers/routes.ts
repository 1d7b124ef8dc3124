import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { AppError } from '../errors.ts';
import type { App } from '../http/server.ts';
import { type Catalog, toWire } from './catalog.ts';

const provider = z.looseObject({ name: z.string(), display_name: z.string(), auth_mode: z.string() });

/** The catalogue, for applications and for connect pages. */
export function providerRoutes(
  app: App,
  { catalog, baseUrl, directory }: { catalog: Catalog; baseUrl: string; directory: string },
): void {
  const logosUrl = `${baseUrl}/providers/logos`;

  app.get(
    '/providers',
    {
      config: { access: { by: 'key or session', scope: 'integrations:read' } },
      schema: {
        operationId: 'listProviders',
        summary: 'List providers',
        description:
          'The catalogue of what can be connected, with what a connect page needs to know of each.',
        querystring: z.strictObject({ search: z.string().max(255).optional() }),
        response: { 200: z.object({ data: z.array(provider) }) },
      },
    },
    ({ query }) => ({
      data: catalog.list(query.search).map((definition) => toWire(definition, { logosUrl })),
    }),
  );

  app.get(
    '/providers/:provider',
    {
      config: { access: { by: 'key or session', scope: 'integrations:read' } },
      schema: {
        operationId: 'getProvider',
        summary: 'One provider',
        description: 'Its endpoints, scopes and the fields that it asks for.',
        errors: ['not_found'],
        params: z.object({ provider: z.string().max(255) }),
        response: { 200: z.object({ data: provider }) },
      },
    },
    ({ params }) => {
      const definition = catalog.find(params.provider);
      if (definition === undefined)
        throw new AppError('not_found', `No provider is called "${params.provider}".`);
      return { data: toWire(definition, { logosUrl }) };
    },
  );

  app.get(
    '/providers/logos/:file',
    {
      config: { access: { by: 'anyone', isLimited: false } },
      schema: {
        operationId: 'getProviderLogo',
        summary: 'Logo of a provider',
        description:
          'The address stands in `logo` of a provider. One that has no file gets its first letters.',
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
      const path = join(directory, 'logos', params.file);
      const found = await stat(path).catch(() => undefined);
      const provider = catalog.list().find(({ logo }) => logo === params.file);
      if (found === undefined && provider === undefined)
        throw new AppError('not_found', 'There is no such logo.');
      reply
        .header('cache-control', 'public, max-age=86400')
        .header('content-security-policy', 'sandbox')
        .type('image/svg+xml');
      return found === undefined && provider !== undefined
        ? monogram({ name: provider.name, title: provider.display_name })
        : createReadStream(path);
    },
  );
}

/**
 * A sign for a provider that brings no drawing of its own: the first letters of its name on a coloured ground. The same
 * name gives the same sign. It imitates nobody's trade mark.
 */
export function monogram({ name, title }: { name: string; title: string }): string {
  const words = title.split(/[^\p{L}\p{N}]+/u).filter((word) => word !== '');
  const letters = words
    .slice(0, 2)
    .map((word) => word.slice(0, 1).toUpperCase())
    .join('');
  let sum = 0;
  for (const sign of name) sum = (sum * 31 + (sign.codePointAt(0) ?? 0)) % 360;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><title>${escaped(title)}</title>` +
    // Dark enough for white letters in every hue: a contrast of 4.5 or more.
    `<rect width="32" height="32" rx="7" fill="hsl(${sum} 50% 30%)"/>` +
    '<text x="16" y="21" font-family="sans-serif" font-size="14" font-weight="600" text-anchor="middle" fill="#fff">' +
    `${escaped(letters)}</text></svg>\n`
  );
}

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
}
