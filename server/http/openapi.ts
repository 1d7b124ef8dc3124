import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyInstance } from 'fastify';
import { jsonSchemaTransform } from 'fastify-type-provider-zod';
import type { Brand } from '../brand.ts';
import type { Config } from '../config/config.ts';
import type { Access } from './caller.ts';
import { areaOf, areas } from './openapi/tags.ts';
import { components } from './openapi-components.ts';
import { completed, type Document, type PathItem, type RouteFacts } from './openapi-operation.ts';

type DocumentPart = { paths?: Record<string, PathItem>; webhooks?: Record<string, PathItem> };

declare module 'fastify' {
  interface FastifyInstance {
    /** Adds to the document what no route can say: paths that are answered before the router, and what we send. */
    describe(part: (brand: Brand) => DocumentPart): void;
  }
}

/** What a route asks for, in OpenAPI's words; alternatives stand side by side. */
const security: Record<Access['by'], Record<string, string[]>[]> = {
  anyone: [],
  key: [{ key: [] }, { cookie: [] }],
  'key or session': [{ key: [] }, { session: [] }, { cookie: [] }],
  person: [{ cookie: [] }],
  session: [{ session: [] }],
  'session in query': [{ session_in_query: [] }],
};

/** What the pages of @fastify/swagger-ui need and no more: they set styles on elements. */
const docsPolicy =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; " +
  "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** The OpenAPI document out of the routes' schemas at /openapi.json, and pages to read it at /docs. */
export async function describeRoutes(
  app: FastifyInstance,
  config: Pick<Config, 'baseUrl' | 'brand'>,
): Promise<void> {
  const shared = components(config.brand);
  const routes = new Map<string, RouteFacts>();
  const more = { paths: {} as Record<string, PathItem>, webhooks: {} as Record<string, PathItem> };
  app.decorate('describe', (part) => {
    const { paths, webhooks } = part(config.brand);
    Object.assign(more.paths, paths);
    Object.assign(more.webhooks, webhooks);
  });
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Trellis',
        version: '0.1.0',
        description:
          'Connections, a proxy and a cache of synced records for the APIs your users bring. Errors are ' +
          '`{"error": {code, message, errors?, payload?}}`, and every answer carries X-Request-Id.',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      servers: [{ url: config.baseUrl }],
      tags: [...areas],
      components: { securitySchemes: shared.securitySchemes },
    },
    transform: (route) => {
      const { errors: _, answers: __, accepts: ___, example: ____, ...schema } = route.schema ?? {};
      const described = jsonSchemaTransform({ ...route, schema });
      const access = route.route.config?.access;
      if (access === undefined || schema.hide) return described;
      const scope = 'scope' in access ? { 'x-scope': access.scope } : {};
      const { operationId = `${route.route.method} ${route.url}` } = schema;
      const { url, schema: whole = {} } = route;
      routes.set(operationId, { url, method: String(route.route.method), access, schema: whole });
      return {
        ...described,
        schema: {
          ...described.schema,
          operationId,
          tags: [areaOf(route.url)],
          security: schema.security ?? security[access.by],
          ...scope,
        },
      };
    },
    transformObject: (made) => {
      const document = ('openapiObject' in made ? made.openapiObject : made.swaggerObject) as Document;
      const paths = completed(document.paths, routes);
      return {
        ...document,
        paths: { ...paths, ...more.paths },
        webhooks: more.webhooks,
        components: shared,
      } as never;
    },
  });
  const access = { by: 'anyone', isLimited: false } as const;
  let text: string | undefined;
  app.get(
    '/openapi.json',
    {
      config: { access },
      schema: {
        operationId: 'getOpenApi',
        summary: 'This document',
        description: 'The interface as OpenAPI 3.1. Pages to read it are at /docs.',
        answers: {
          200: {
            description: 'The document.',
            type: 'application/json',
            schema: { type: 'object' },
            example: {},
          },
        },
      },
    },
    async (_request, reply) => {
      // It is large, anybody may ask, and it does not change.
      text ??= JSON.stringify(app.swagger());
      return reply.type('application/json; charset=utf-8').send(text);
    },
  );
  await app.register(async (docs) => {
    docs.addHook('onRoute', (route) => {
      route.config = { ...route.config, access };
    });
    await docs.register(swaggerUi, {
      routePrefix: '/docs',
      indexPrefix: '',
      staticCSP: docsPolicy,
      uiConfig: { layout: 'BaseLayout' },
    });
  });
}
