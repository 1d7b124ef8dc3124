import { z } from 'zod';
import { type Db, tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { text } from '../http/text.ts';
import { chainAll } from './audit-chain.ts';
import { timeInput } from './wire.ts';

const entry = z.object({
  /** Its place in the log of the whole installation: others stand between those of one environment. */
  position: z.number(),
  created_at: z.string(),
  /** `key:12`, `key:12 ticket:...`, `user:...`, `session:7`, `command line`, `service`, `retention`, `nobody`. */
  actor: z.string(),
  action: z.string(),
  target: z.string(),
  details: z.record(z.string(), z.unknown()),
});
nameSchemas({ AuditEntry: entry });

/** Reading the audit log. */
export function auditRoutes(app: App, { db }: { db: Db }): void {
  app.get(
    '/audit',
    {
      config: { access: { by: 'key', scope: 'activity:read' } },
      schema: {
        operationId: 'listAudit',
        summary: 'List audit log entries, newest first',
        description:
          '`scope=installation`: the entries that belong to no environment, or to a deleted environment: users, sign-ins, ' +
          'invitations and environments. Only signed-in owners can use it; a key belongs to one environment.',
        querystring: z.strictObject({
          scope: z.enum(['environment', 'installation']).default('environment'),
          actor: text({ max: 255 }).optional(),
          action: text({ max: 255 }).optional(),
          target: text({ max: 1024 }).optional(),
          from: timeInput.optional(),
          to: timeInput.optional(),
          cursor: z.coerce.number().int().min(1).optional(),
          limit: z.coerce.number().int().min(1).max(1000).default(100),
        }),
        response: { 200: z.object({ entries: z.array(entry), next_cursor: z.string().nullable() }) },
      },
    },
    async ({ query: { scope, cursor, limit, ...filter }, caller }) => {
      const isOfAll = scope === 'installation';
      if (isOfAll && !(caller.kind === 'user' && caller.role === 'owner'))
        throw new AppError(
          'forbidden',
          'Only signed-in owners can read the entries of the whole installation.',
        );
      const environmentId = isOfAll ? undefined : caller.environmentId;
      const found = await listAudit(db, {
        filter: { ...filter, environmentId },
        before: cursor,
        limit: limit + 1,
      });
      const entries = found.slice(0, limit).map(({ created_at: createdAt, details, ...same }) => ({
        ...same,
        created_at: createdAt.toISOString(),
        details: details as Record<string, unknown>,
      }));
      return { entries, next_cursor: found.length > limit ? String(entries.at(-1)!.position) : null };
    },
  );
}

type AuditFilter = {
  /** Undefined: the entries that belong to none. */
  readonly environmentId: number | undefined;
  readonly actor?: string | undefined;
  readonly action?: string | undefined;
  readonly target?: string | undefined;
  /** Inclusive. */
  readonly from?: Date | undefined;
  /** Exclusive. */
  readonly to?: Date | undefined;
};

/**
 * Newest first, by position; those before the position `before`, where it is given. What was committed before the call is
 * there, unless a node that froze holds it up for seconds.
 */
async function listAudit(
  db: Db,
  { filter, before, limit }: { filter: AuditFilter; before?: number | undefined; limit: number },
) {
  await chainAll(db);
  const { environmentId, actor, action, target, from, to } = filter;
  let rows = tables
    .selectFrom('audit')
    .select(['position', 'created_at', 'actor', 'action', 'target', 'details'])
    .where((either) =>
      environmentId === undefined
        ? // What was done in an environment that was deleted since belongs to none.
          either.or([
            either('environment_id', 'is', null),
            either('environment_id', 'not in', tables.selectFrom('environment').select('id')),
          ])
        : either('environment_id', '=', environmentId),
    )
    .where('position', 'is not', null)
    .orderBy('position', 'desc')
    .limit(limit);
  if (before !== undefined) rows = rows.where('position', '<', before);
  if (actor !== undefined) rows = rows.where('actor', '=', actor);
  if (action !== undefined) rows = rows.where('action', '=', action);
  if (target !== undefined) rows = rows.where('target', '=', target);
  if (from !== undefined) rows = rows.where('created_at', '>=', from);
  if (to !== undefined) rows = rows.where('created_at', '<', to);
  return db.run(rows.$narrowType<{ position: number }>());
}
