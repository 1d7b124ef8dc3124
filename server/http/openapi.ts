import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyInstance } from 'fastify';
import { jsonSchemaTransform } from 'fastify-type-provider-zod';
import type { Config } from '../config.ts';
import type { Access } from './caller.ts';

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
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Trellis',
        version: '0.1.0',
        description: 'Connections, a proxy and a cache of synced records for the APIs your users bring.',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      servers: [{ url: config.baseUrl }],
      components: {
        securitySchemes: {
          key: { type: 'http', scheme: 'bearer', description: 'Secret key of an environment.' },
          session: { type: 'http', scheme: 'bearer', description: 'Token of a connect session.' },
          cookie: {
            type: 'apiKey',
            in: 'header',
            name: config.brand.header('Environment'),
            description:
              'A signed-in person names the environment here; the cookie of the sign-in goes along.',
          },
          session_in_query: { type: 'apiKey', in: 'query', name: 'connect_session_token' },
        },
      },
    },
    transform: (route) => {
      const described = jsonSchemaTransform(route);
      const access = route.route.config?.access;
      if (access === undefined) return described;
      const scope = 'scope' in access ? { 'x-scope': access.scope } : {};
      return {
        ...described,
        schema: { ...described.schema, tags: [areaOf(route.url)], security: security[access.by], ...scope },
      };
    },
  });
  const access = { by: 'anyone' } as const;
  app.get('/openapi.json', { config: { access }, schema: { hide: true } }, () => app.swagger());
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

/** Routes stand together by what they are about: the first part of their path. */
function areaOf(url: string): string {
  const [, area = ''] = url.split('/');
  return (
    {
      connection: 'connections',
      oauth: 'connect',
      oauth2: 'connect',
      'api-auth': 'connect',
      auth: 'connect',
    }[area] ?? area
  );
}
