/** The route that makes tickets, and the description of `/proxy/...` in the OpenAPI document. */
import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import type { Brand } from '../brand.ts';
import { connectionId } from '../connections/routes/wire.ts';
import type { ConnectionReader } from '../connections/store/reader.ts';
import type { Db } from '../db/pool.ts';
import { getSigningKey, makeTicket } from '../environments/tickets.ts';
import { AppError, fieldError } from '../errors.ts';
import { actorOf, proxyScopeOf, requireScope } from '../http/auth/caller.ts';
import { proxyRule } from '../http/auth/proxy-rule.ts';
import { methods } from '../http/cors.ts';
import { byStatus, connectionErrors, type RouteError } from '../http/openapi/describe.ts';
import { failedByClass, type Operation, type PathItem } from '../http/openapi/openapi-operation.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { integrationKey } from '../integrations/wire.ts';
import type { Vault } from '../vault.ts';

type TicketDeps = {
  db: Db;
  vault: Vault;
  connections: Pick<ConnectionReader, 'get'>;
  now: () => Date;
};

const maxLifetimeS = 3_600;
/** Node accepts 16 KB of headers. */
const maxCharacters = 4_096;
const action = z.string().regex(/^([A-Za-z0-9_-]{1,255}|\*)$/, 'must be the name of an action, or * for all');
const method = z.enum(methods, 'must be a method in capitals, such as GET');
const ticketWire = z.object({ id: z.string(), ticket: z.string(), expires_at: z.string() });
nameSchemas({ Ticket: ticketWire });

/** The format of tickets is in `environments/tickets.ts`. */
export function proxyRoutes(app: App, { db, vault, connections, now }: TicketDeps): void {
  app.describe((brand) => ({ paths: proxyPaths(brand) }));
  app.post(
    '/tickets',
    {
      config: { access: { by: 'key', scope: ['proxy:read', 'proxy:write'] } },
      schema: {
        operationId: 'createTicket',
        summary: 'Create a ticket for some proxy calls of one connection',
        description:
          'Send it as `Authorization: Bearer <ticket>` to /proxy. The ticket ends with the key that creates it, and ' +
          'permits nothing that the key does not permit. GET includes HEAD; other methods need the scope proxy:write. With ' +
          '`actions`, the ticket is also valid at /mcp, for the named actions (* for all).',
        errors: [...connectionErrors],
        body: z.strictObject({
          provider_config_key: integrationKey,
          connection_id: connectionId,
          methods: z.array(method).min(1).max(20),
          paths: z.array(proxyRule.shape.path).min(1).max(50),
          max_bytes: z.number().int().min(1).max(Number.MAX_SAFE_INTEGER).optional(),
          actions: z.array(action).min(1).max(50).optional(),
          expires_in: z.number().int().min(1).max(maxLifetimeS).default(600),
        }),
        response: { 201: z.object({ data: ticketWire }) },
      },
    },
    async ({ body, caller }, reply) => {
      if (caller.kind !== 'key') throw new AppError('forbidden');
      for (const wanted of new Set(body.methods)) requireScope(caller, proxyScopeOf(wanted));
      if (body.actions) requireScope(caller, 'functions:read');
      const { environmentId, keyId } = caller;
      const at = {
        environmentId,
        integrationKey: body.provider_config_key,
        connectionId: body.connection_id,
      };
      const connection = await connections.get(at);
      const signing = await getSigningKey(db, { keyId, environmentId, vault });
      const endsAt = Math.min(
        now().getTime() + body.expires_in * 1000,
        caller.expiresAt?.getTime() ?? Number.POSITIVE_INFINITY,
      );
      const expiresAt = new Date(endsAt);
      const { id, token } = makeTicket(signing, {
        keyId,
        grant: {
          ...at,
          connectionRow: connection.id,
          connectionMadeAt: connection.createdAt.getTime(),
          methods: [...new Set(body.methods)],
          paths: [...new Set(body.paths)],
          maxBytes: body.max_bytes,
          actions: body.actions && [...new Set(body.actions)],
        },
        expiresAt,
      });
      if (token.length > maxCharacters)
        throw fieldError('invalid_body', ['paths'], 'make a ticket that is too long for a header');
      await writeAudit(db, {
        environmentId,
        actor: actorOf(caller),
        action: 'ticket.created',
        target: `${at.integrationKey}/${at.connectionId}`,
        details: {
          id,
          methods: body.methods.join(','),
          paths: body.paths.join(' '),
          ...(body.max_bytes !== undefined && { max_bytes: body.max_bytes }),
          ...(body.actions && { actions: body.actions.join(',') }),
          expires_at: expiresAt.toISOString(),
        },
      });
      reply.code(201);
      return { data: { id, ticket: token, expires_at: expiresAt.toISOString() } };
    },
  );
}

const verbs = {
  get: 'Get',
  put: 'Put',
  post: 'Post',
  patch: 'Patch',
  delete: 'Delete',
  head: 'Head',
  options: 'Options',
};
const text = { type: 'string' };

/** The paths that the proxy serves before the router. docs/guides/proxy.md has the details. */
function proxyPaths(brand: Brand): Record<string, PathItem> {
  const item = Object.entries(verbs).map(([method, verb]): [string, Operation] => [
    method,
    {
      operationId: `proxy${verb}`,
      summary: `Call the provider's API with ${method.toUpperCase()}`,
      description: method === 'get' ? descriptionOf(brand) : 'As with GET.',
      tags: ['proxy'],
      security: [{ key: [] }, { ticket: [] }, { cookie: [] }],
      'x-scope': ['get', 'head'].includes(method) ? 'proxy:read' : 'proxy:write',
      parameters: [
        {
          name: 'path',
          in: 'path',
          required: true,
          description: 'Path and query at the provider. Slashes stay unchanged.',
          schema: text,
          example: 'v4/spreadsheets/none',
        },
        ...headers(brand),
      ],
      ...(['put', 'post', 'patch', 'delete'].includes(method) && {
        requestBody: { description: 'Any body that the provider accepts, of any length.', content: anything },
      }),
      responses: {
        ...failedByClass(byStatus(errors)),
        default: {
          description:
            "The provider's response, with any status. Errors of the service have the provider's format if its definition " +
            'names one.',
          content: anything,
        },
      },
    },
  ]);
  return { '/proxy/{path}': Object.fromEntries(item) };
}

function descriptionOf(brand: Brand): string {
  return (
    "Path, query, headers and body reach the provider unchanged, with the connection's credentials; the response is " +
    `streamed back unchanged. A header \`${brand.proxyHeaderPrefix}<name>\` is sent as \`<name>\`. Some paths of a ` +
    'provider are also served without `/proxy`, if both connection headers are sent. Errors of the service have the header ' +
    `${brand.header('Error')}.`
  );
}

const anything = { '*/*': { schema: {}, example: { properties: { title: 'Customers' } } } };

function headers(brand: Brand) {
  const required = [
    ['Integration-Id', 'ID of the integration. `Provider-Config-Key` is an older spelling.', 'google-sheet'],
    ['Connection-Id', 'ID of the connection.', 'ada-sheets'],
  ] as const;
  const optional = [
    [
      'Base-Url-Override',
      'Another address, whose origin the integration allows.',
      'https://sheets.googleapis.com',
    ],
    ['Retries', 'Further attempts, 0 to 10.', '0'],
    ['Retry-On', 'Statuses from 400 on, separated by commas, that are retried.', '409'],
    ['Timeouts', 'Seconds for each phase.', 'connect=5, headers=30'],
    ['Decompress', '`true`: a compressed response is decoded.', 'true'],
    ['Quota-Wait', "Seconds, 0 to 60, that the call may wait for the provider's quota.", '10'],
    [brand.bareHeader('Is-Sync'), '`true`: interactive calls have priority for the quota.', 'true'],
  ] as const;
  const written = (of: readonly (readonly [string, string, string])[], isRequired: boolean) =>
    of.map(([name, description, example]) => ({
      name,
      in: 'header',
      required: isRequired,
      description,
      schema: text,
      example,
    }));
  return [...written(required, true), ...written(optional, false)];
}

const errors: readonly RouteError[] = [
  ...connectionErrors,
  'malformed_request',
  'invalid_headers',
  'invalid_proxy_path',
  'base_url_override_not_allowed',
  'unsupported_provider',
  'address_not_allowed',
  { code: 'address_not_allowed', status: 424 },
  'missing_auth_header',
  'malformed_auth_header',
  'invalid_secret_key_format',
  'unknown_account',
  'invalid_ticket',
  'not_signed_in',
  'cross_site_request',
  'forbidden',
  'proxy_rule_denied',
  'method_not_allowed',
  'request_timeout',
  'ticket_bytes_exceeded',
  { code: 'ticket_bytes_exceeded', status: 502 },
  'connection_needs_reauth',
  'connection_blocked',
  'invalid_credentials',
  'integration_misconfigured',
  'too_many_requests',
  'quota_exhausted',
  'headers_too_large',
  'internal',
  'unsupported_transfer_coding',
  'upstream_unreachable',
  'upstream_unreadable',
  'upstream_unknown_outcome',
  'upstream_timeout',
  'connection_refresh_failed',
  'unavailable',
  'overloaded',
];
