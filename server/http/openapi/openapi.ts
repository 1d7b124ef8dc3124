import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyInstance } from 'fastify';
import { jsonSchemaTransform } from 'fastify-type-provider-zod';
import type { Brand } from '../../brand.ts';
import type { Config } from '../../config/config.ts';
import { errorCatalogue } from '../../errors.ts';
import { version } from '../../version.ts';
import type { Access } from '../auth/caller.ts';
import { type List, listParameters } from '../lists.ts';
import { withRequestNames, withResponseNames } from '../spellings.ts';
import { docsTheme } from './docs-theme.ts';
import type { JsonSchema } from './examples.ts';
import { withNames } from './names.ts';
import { completed, type Document, type PathItem, type RouteFacts } from './openapi-operation.ts';
import { serveDocument } from './serve-document.ts';

type DocumentPart = { paths?: Record<string, PathItem>; webhooks?: Record<string, PathItem> };

declare module 'fastify' {
  interface FastifyInstance {
    /**
     * Adds parts without a route to the document: paths that are handled before the router, and webhooks. `part` is called
     * when the document is made.
     */
    describe(part: (brand: Brand) => DocumentPart): void;
  }
}

/** The security requirements of OpenAPI for each access; a list has alternatives. Those of `key` are the document's. */
const security: Record<Access['by'], Record<string, string[]>[]> = {
  anyone: [],
  key: [{ key: [] }, { cookie: [] }],
  'key or session': [{ key: [] }, { session: [] }, { cookie: [] }],
  person: [{ cookie: [] }],
  session: [{ session: [] }],
  'session in query': [{ session_in_query: [] }],
};

/** The minimum for the pages of @fastify/swagger-ui, which set styles on elements. */
const docsPolicy =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; " +
  "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** Serves the OpenAPI document, made from the schemas of the routes, at /openapi.json, and pages for it at /docs. */
export async function describeRoutes(
  app: FastifyInstance,
  config: Pick<Config, 'baseUrl' | 'brand'>,
): Promise<void> {
  const shared = components(config.brand);
  const routes = new Map<string, RouteFacts>();
  const parts: ((brand: Brand) => DocumentPart)[] = [];
  app.decorate('describe', (part) => void parts.push(part));
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Trellis',
        version,
        description:
          'Connections, a proxy and a cache of synced records for the APIs that your users connect. Errors are `{"error": ' +
          '{code, message, errors?, payload?}}`, and every response has X-Request-Id. Responses and events may get further ' +
          'fields; requests with unknown fields are refused with 400. A list with `next_cursor` returns all its entries as a ' +
          'file if `Accept` begins with `text/csv` or `application/x-ndjson`.',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      servers: [{ url: config.baseUrl }],
      tags: areas.map((area) =>
        area.name === 'events' ? { ...area, description: eventsText(config.brand) } : area,
      ),
      components: { securitySchemes: shared.securitySchemes },
      security: security.key,
    },
    transform: (route) => {
      const { errors: _, answers: __, accepts: ___, example: ____, list, ...schema } = route.schema ?? {};
      const { schema: made, ...described } = jsonSchemaTransform({ ...route, schema });
      const access = route.route.config?.access;
      if (access === undefined || schema.hide) return { ...described, schema: made };
      const scope = 'scope' in access ? { 'x-scope': access.scope } : {};
      const { operationId = `${route.route.method} ${route.url}` } = schema;
      const { url, schema: whole = {} } = route;
      const isIdempotent = route.route.config?.idempotent === true;
      const method = String(route.route.method);
      routes.set(operationId, { url, method, access, schema: whole, isIdempotent });
      return {
        ...described,
        schema: {
          ...withFurtherNames(made as Parts, list),
          operationId,
          tags: [areaOf(route.url)],
          ...(schema.security || access.by !== 'key'
            ? { security: schema.security ?? security[access.by] }
            : {}),
          ...scope,
        },
      };
    },
    transformObject: (made) => {
      const document = ('openapiObject' in made ? made.openapiObject : made.swaggerObject) as Document;
      const more = parts.map((part) => part(config.brand));
      const added = (of: keyof DocumentPart) =>
        Object.fromEntries(more.flatMap((part) => Object.entries(part[of] ?? {})));
      const { schemas, responses, requestBodies, parameters, ...named } = withNames({
        paths: { ...completed(document.paths, routes), ...added('paths') },
        webhooks: added('webhooks'),
      });
      const components = { ...shared, schemas: { ...shared.schemas, ...schemas } };
      return {
        ...document,
        ...named,
        components: { ...components, responses, requestBodies, parameters },
      } as never;
    },
  });
  const access = { by: 'anyone', isLimited: false } as const;
  const serve = serveDocument(() => app.swagger());
  app.get(
    '/openapi.json',
    {
      config: { access },
      schema: {
        operationId: 'getOpenApi',
        summary: 'This document',
        description:
          'The API as an OpenAPI 3.1 document. /docs has pages to read it. The response has an ETag, and is compressed if ' +
          'Accept-Encoding permits it.',
        answers: {
          304: { description: 'The document is the one that If-None-Match names.' },
          200: {
            description: 'The document.',
            type: 'application/json',
            schema: { type: 'object' },
            example: {},
          },
        },
      },
    },
    serve,
  );
  await app.register(async (docs) => {
    docs.addHook('onRoute', (route) => {
      route.config = { ...route.config, access };
      if (route.url === '/docs/json') route.handler = serve;
    });
    await docs.register(swaggerUi, {
      routePrefix: '/docs',
      indexPrefix: '',
      staticCSP: docsPolicy,
      uiConfig: { layout: 'BaseLayout', syntaxHighlight: { theme: 'tomorrow-night' } },
      theme: docsTheme,
    });
  });
}

type Parts = Partial<Record<'querystring' | 'headers' | 'body', JsonSchema>> & {
  response?: Record<string, JsonSchema>;
};

/** The schemas of a route with the parameters of lists and the names that `spellings.ts` adds. */
function withFurtherNames(made: Parts, list: List | undefined): Parts {
  const whole = { type: 'object', properties: {} };
  const querystring = list && {
    ...(made.querystring ?? whole),
    properties: { ...made.querystring?.properties, ...listParameters(list) },
  };
  const { response, ...others } = { ...made, ...(querystring && { querystring }) };
  const parts = (['querystring', 'headers', 'body'] as const).flatMap((part) => {
    const own = others[part];
    return own === undefined ? [] : [[part, withRequestNames(own, part)] as const];
  });
  const answers = Object.entries(response ?? {}).map(([code, answer]) => [code, withResponseNames(answer)]);
  return {
    ...others,
    ...Object.fromEntries(parts),
    ...(response && { response: Object.fromEntries(answers) }),
  };
}

/** The tags of the document, which group its routes. */
const areas = [
  { name: 'integrations', description: 'The available providers, and the OAuth client for each.' },
  { name: 'connect', description: 'How an end user connects an account: sessions, pages, forms.' },
  {
    name: 'connections',
    description: 'Connected accounts: health, credentials, metadata, deletion.',
  },
  {
    name: 'proxy',
    description:
      "Calls to a provider's API with the credentials of a connection, and tickets for such calls.",
  },
  { name: 'records', description: 'The cache of synced records: save, list by cursor, prune, retention.' },
  { name: 'functions', description: 'Syncs, actions and event functions: deploys, schedules, runs, MCP.' },
  { name: 'events', description: 'Events for the application: the feed, endpoints and deliveries.' },
  { name: 'webhooks', description: 'Webhooks of providers.' },
  { name: 'activity', description: 'The activity log, and the audit log of changes.' },
  { name: 'environment', description: 'Environments, their settings, variables and keys.' },
  { name: 'users', description: 'Users of the dashboard. These routes need a cookie, not a key.' },
  { name: 'service', description: 'The service itself: its health, and this document.' },
] as const;

/** The headers that all requests to endpoints have are described once. */
function eventsText(brand: Brand): string {
  return (
    'Events for the application: the feed, endpoints and deliveries. Requests to endpoints have the headers of Standard ' +
    'Webhooks: `webhook-id` is the `id` of the event, `webhook-timestamp` the time of sending in seconds since 1970, and ' +
    '`webhook-signature` has a signature for each signing key, separated by spaces. ' +
    `\`${brand.header('Hmac-Sha256')}\` is the HMAC-SHA256 of the body with the newest key, in hexadecimal.`
  );
}

type Area = (typeof areas)[number]['name'];

const areaOfPart: Record<string, Area> = {
  providers: 'integrations',
  connection: 'connections',
  oauth: 'connect',
  oauth2: 'connect',
  'api-auth': 'connect',
  auth: 'connect',
  tickets: 'proxy',
  sync: 'functions',
  action: 'functions',
  scripts: 'functions',
  cli: 'functions',
  mcp: 'functions',
  webhook: 'webhooks',
  operations: 'activity',
  audit: 'activity',
  environments: 'environment',
  'environment-variables': 'environment',
};

/** The tag of a path: by its first part, but by the third for the functions of an integration. */
function areaOf(url: string): Area {
  const [, part = '', , below] = url.split('/');
  if (below === 'functions') return 'functions';
  return areaOfPart[part] ?? areas.find(({ name }) => name === part)?.name ?? 'service';
}

/** The parts to which routes refer: errors, headers and ways to authenticate. */
function components(brand: Brand) {
  return {
    securitySchemes: {
      key: { type: 'http', scheme: 'bearer', description: 'Secret key of an environment.' },
      ticket: {
        type: 'http',
        scheme: 'bearer',
        description: 'Ticket for some proxy calls of one connection.',
      },
      session: { type: 'http', scheme: 'bearer', description: 'Token of a connect session.' },
      cookie: {
        type: 'apiKey',
        in: 'header',
        name: brand.header('Environment'),
        description:
          'The name of the environment, for a signed-in person; sent with the cookie of the sign-in.',
      },
      session_in_query: {
        type: 'apiKey',
        in: 'query',
        name: 'connect_session_token',
        description: 'Token of a connect session, in a link that a browser follows.',
      },
    },
    schemas: { Error: errorSchema },
    headers: {
      'Retry-After': {
        description: 'Seconds to wait before a retry, if they are known.',
        schema: { type: 'string' },
        example: '10',
      },
    },
  } as const;
}

const errorSchema = {
  type: 'object',
  description: 'Any error of the service. docs/reference/errors.md explains each code.',
  properties: {
    error: {
      type: 'object',
      properties: {
        code: { type: 'string', enum: Object.keys(errorCatalogue), description: 'For programs.' },
        message: { type: 'string', description: 'For people: the problem, and its solution.' },
        errors: {
          type: 'array',
          description: 'One entry for each problem.',
          items: {
            type: 'object',
            properties: {
              code: { type: 'string' },
              message: { type: 'string' },
              path: { type: 'array', items: { type: 'string' } },
              reason: {
                type: 'object',
                properties: { code: { type: 'string' }, limit: { type: 'string' } },
                required: ['code'],
              },
            },
            required: ['code', 'message', 'path'],
            additionalProperties: false,
          },
        },
        payload: { description: 'Facts for the calling program.' },
        upstream: { description: 'The response of the provider, if that is the error.' },
      },
      required: ['code', 'message'],
      additionalProperties: false,
    },
  },
  required: ['error'],
  additionalProperties: false,
} as const;
