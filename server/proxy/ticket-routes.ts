import { z } from 'zod';
import { actorOf, writeAudit } from '../activity/audit.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import { connectionId } from '../connections/wire.ts';
import type { Db } from '../db/pool.ts';
import { getSigningKey, makeTicket } from '../environments/tickets.ts';
import { AppError, fieldError } from '../errors.ts';
import { proxyScopeOf, requireScope } from '../http/caller.ts';
import { connectionErrors } from '../http/describe.ts';
import { methods } from '../http/methods.ts';
import { proxyRule } from '../http/proxy-rule.ts';
import type { App } from '../http/server.ts';
import { integrationKey } from '../integrations/wire.ts';
import type { Vault } from '../vault.ts';
import { proxyPaths } from './describe.ts';

type Deps = {
  db: Db;
  vault: Vault;
  connections: Pick<ConnectionReader, 'get'>;
  now: () => Date;
};

const longestS = 3_600;
/** Of all headers together Node takes 16 KB. */
const maxCharacters = 4_096;
const action = z.string().regex(/^([A-Za-z0-9_-]{1,255}|\*)$/, 'must be the name of an action, or * for all');
const method = z.enum(methods, 'must be a method in capitals, such as GET');

/** Makes tickets: see `environments/tickets.ts` for what they are. Describes what they are for, too, which is no route. */
export function ticketRoutes(app: App, { db, vault, connections, now }: Deps): void {
  app.describe((brand) => ({ paths: proxyPaths(brand) }));
  app.post(
    '/tickets',
    {
      config: { access: { by: 'key', scope: ['proxy:read', 'proxy:write'] } },
      schema: {
        operationId: 'createTicket',
        summary: 'Make a ticket for some calls of one connection through the proxy',
        description:
          'Send it as `Authorization: Bearer <ticket>` to /proxy. It ends with the key that makes it, and lets nothing ' +
          'pass that the key would not. GET stands for HEAD too; other methods than these need the scope proxy:write. With ' +
          '`actions` it is good at /mcp, too, for the actions that it names (* for all).',
        errors: [...connectionErrors],
        body: z.strictObject({
          provider_config_key: integrationKey,
          connection_id: connectionId,
          methods: z.array(method).min(1).max(20),
          paths: z.array(proxyRule.shape.path).min(1).max(50),
          max_bytes: z.number().int().min(1).max(Number.MAX_SAFE_INTEGER).optional(),
          actions: z.array(action).min(1).max(50).optional(),
          expires_in: z.number().int().min(1).max(longestS).default(600),
        }),
        response: {
          201: z.object({ data: z.object({ id: z.string(), ticket: z.string(), expires_at: z.string() }) }),
        },
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
