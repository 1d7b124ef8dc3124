/**
 * Deprecated routes: earlier names of routes, which the same handlers serve. Their responses announce the successor and the
 * date of the end (`docs/reference/versions.md`), and the OpenAPI document marks them as `deprecated`.
 */
import type { FastifyInstance, onRequestHookHandler, RouteOptions } from 'fastify';

export type Deprecation = {
  /** `METHOD /path`, with parameters as Fastify writes them. The successor has the same parameters. */
  route: string;
  successor: string;
  /** UTC. */
  since: Date;
  /** UTC: the service answers at least until then. A later release may only move it to a later time. */
  sunset: Date;
};

const successors: Record<string, string> = {
  'GET /connection/:id': 'GET /connections/:id',
  'POST /sync/deploy': 'POST /functions/deploys',
  'POST /sync/deploy/confirmation': 'POST /functions/deploys/plan',
  'POST /sync/trigger': 'POST /functions/syncs/trigger',
  'POST /sync/pause': 'POST /functions/syncs/pause',
  'POST /sync/start': 'POST /functions/syncs/start',
  'GET /sync/status': 'GET /functions/syncs/status',
  'PUT /sync/update-connection-frequency': 'PUT /functions/syncs/frequency',
  'POST /sync/:name/variant/:variant': 'POST /functions/syncs/:name/variants/:variant',
  'DELETE /sync/:name/variant/:variant': 'DELETE /functions/syncs/:name/variants/:variant',
  'POST /action/trigger': 'POST /functions/actions/trigger',
  'GET /action/:id': 'GET /functions/actions/:id',
};
const since = new Date('2026-12-01T00:00:00Z');
const sunset = new Date('2028-12-31T00:00:00Z');

export const deprecations: readonly Deprecation[] = Object.entries(successors).map(([route, successor]) => ({
  route,
  successor,
  since,
  sunset,
}));

/** Adds the deprecated routes, each beside its successor. To be called before other hooks are added. */
export function addDeprecatedRoutes(app: FastifyInstance, baseUrl: string): void {
  app.addHook('onRoute', function (this: FastifyInstance, route) {
    // Fastify derives the HEAD route from the GET route.
    if (route.method === 'HEAD') return;
    for (const deprecation of deprecations)
      if (deprecation.successor === `${route.method} ${route.url}`)
        this.route(deprecatedRoute(route, deprecation, baseUrl));
  });
}

function deprecatedRoute(route: RouteOptions, deprecation: Deprecation, baseUrl: string): RouteOptions {
  const { schema } = route;
  const url = deprecation.route.split(' ')[1]!;
  return {
    ...route,
    url,
    onRequest: [announcement(deprecation, baseUrl), ...[route.onRequest ?? []].flat()],
    ...(schema && {
      schema: {
        ...schema,
        deprecated: true,
        ...(schema.operationId && { operationId: `${schema.operationId}Deprecated` }),
        description: `Earlier name of \`${documentedName(deprecation.successor)}\`.`,
      },
    }),
  };
}

/** Deprecation of RFC 9745, Sunset of RFC 8594, and the relation `successor-version` of RFC 5829. */
function announcement({ successor, since, sunset }: Deprecation, baseUrl: string): onRequestHookHandler {
  const fields = {
    deprecation: `@${since.getTime() / 1000}`,
    sunset: sunset.toUTCString(),
  };
  const base = new URL(baseUrl).pathname.replace(/\/$/, '');
  const path = base + successor.split(' ')[1]!;
  return (request, reply, done) => {
    const params = request.params as Record<string, string>;
    const target = path.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(params[name] ?? ''));
    reply.headers({ ...fields, link: `<${target}>; rel="successor-version"` });
    done();
  };
}

/** The name of a route as the OpenAPI document writes it. */
export function documentedName(route: string): string {
  return route.replace(/:(\w+)/g, '{$1}');
}
