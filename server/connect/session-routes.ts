import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import { AppError } from '../errors.ts';
import { actorOf } from '../http/auth/caller.ts';
import { nameSchemas, success } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { deleteSession, type ListedSession, listSessions } from './sessions.ts';
import type { ConnectDeps } from './target.ts';

const connectionName = z.object({ integration_id: z.string(), connection_id: z.string() });
const listedSession = z.object({
  id: z.number(),
  state: z.enum(['open', 'used', 'expired']),
  end_user: z
    .object({ id: z.string(), email: z.string().nullable(), display_name: z.string().nullable() })
    .nullable(),
  /** Null: all integrations of the environment. */
  allowed_integrations: z.array(z.string()).nullable(),
  /** The connection that the session renews. */
  reconnects: connectionName.nullable(),
  /** The connection that the session has made. */
  connection: connectionName.nullable(),
  /** The cause of the last failed authorization. */
  failure: z.string().nullable(),
  /** As the audit log names its callers, such as `key:12`; null in the first moments. */
  created_by: z.string().nullable(),
  created_at: z.string(),
  expires_at: z.string(),
  used_at: z.string().nullable(),
});
nameSchemas({ ListedConnectSession: listedSession });

const maxLimit = 200;
const id = z.coerce.number().int().min(1).max(Number.MAX_SAFE_INTEGER);

/** The sessions of an environment, for people who look after connect links. */
export function sessionListRoutes(app: App, { db, reading: { vault }, now }: ConnectDeps): void {
  app.get(
    '/connect/sessions',
    {
      config: { access: { by: 'key', scope: 'connections:read' } },
      schema: {
        operationId: 'listConnectSessions',
        list: { items: 'data', by: { parameter: 'before', next: 'next_before' } },
        summary: 'List connect sessions, newest first',
        description:
          'Without their tokens, which are only in the response of the call that created them. A session is listed for 30 ' +
          'minutes after its expiry.',
        querystring: z.strictObject({
          /** `next_before` of the page before. */
          before: id.optional(),
          limit: z.coerce.number().int().min(1).max(maxLimit).default(50),
        }),
        response: { 200: z.object({ data: z.array(listedSession), next_before: z.string().nullable() }) },
      },
    },
    async ({ query: { before = Number.MAX_SAFE_INTEGER, limit }, caller: { environmentId } }) => {
      const found = await listSessions(db, { environmentId, vault, before, limit: limit + 1 });
      const shown = found.slice(0, limit);
      return {
        data: shown.map((session) => toWire(session, now())),
        next_before: found.length > limit ? String(shown.at(-1)!.id) : null,
      };
    },
  );

  app.delete(
    '/connect/sessions/:id',
    {
      config: { access: { by: 'key', scope: 'connections:write' } },
      schema: {
        operationId: 'deleteConnectSession',
        summary: 'Revoke a connect session',
        description: 'Its link and its token are rejected from now on. A connection that it has made stays.',
        errors: ['not_found'],
        params: z.object({ id }),
        response: { 200: success },
      },
    },
    async ({ params, caller }) => {
      const session = { id: params.id, environmentId: caller.environmentId };
      await db.transaction(async (tx) => {
        if (!(await deleteSession(tx, session))) throw new AppError('not_found');
        await writeAudit(tx, {
          environmentId: caller.environmentId,
          actor: actorOf(caller),
          target: `session:${params.id}`,
          action: 'connect_session.ended',
        });
      });
      return { success: true as const };
    },
  );
}

function toWire(
  {
    id,
    settings: { end_user: endUser, reconnect },
    allowedIntegrations,
    outcome,
    failure,
    usedAt,
    createdAt,
    createdBy,
    expiresAt,
  }: ListedSession,
  at: Date,
): z.input<typeof listedSession> {
  const nameOf = (connection: { integration: string; connection: string } | undefined) =>
    connection === undefined
      ? null
      : { integration_id: connection.integration, connection_id: connection.connection };
  return {
    id,
    state: usedAt !== undefined ? 'used' : expiresAt <= at ? 'expired' : 'open',
    end_user: endUser
      ? { id: endUser.id, email: endUser.email ?? null, display_name: endUser.display_name ?? null }
      : null,
    allowed_integrations: allowedIntegrations ? [...allowedIntegrations] : null,
    reconnects: nameOf(reconnect),
    connection: nameOf(outcome),
    failure: failure?.cause ?? null,
    created_by: createdBy ?? null,
    created_at: createdAt.toISOString(),
    expires_at: expiresAt.toISOString(),
    used_at: usedAt?.toISOString() ?? null,
  };
}
