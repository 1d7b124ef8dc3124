import { z } from 'zod';
import { type Db, tables } from '../db/pool.ts';
import { fieldError } from '../errors.ts';
import type { App } from '../http/server.ts';
import { sequenceAllEvents } from './sequence.ts';

const event = z.object({
  id: z.string(),
  type: z.string(),
  environment: z.string(),
  created_at: z.string(),
  data: z.record(z.string(), z.unknown()),
});

/** The event feed: what happened, in commit order, to be followed by `after`. */
export function eventRoutes(app: App, { db }: { db: Db }): void {
  app.get(
    '/events',
    {
      config: { access: { by: 'key', scope: 'events:read' } },
      schema: {
        summary: 'Events after a position, oldest first',
        querystring: z.strictObject({
          after: z.string().max(32).optional(),
          limit: z.coerce.number().int().min(1).max(1000).default(100),
        }),
        response: { 200: z.object({ events: z.array(event), next_after: z.string().nullable() }) },
      },
    },
    async ({ query: { after, limit }, caller }) => {
      const position = after === undefined ? 0 : readPosition(after);
      // What was committed before this call is in its answer.
      await sequenceAllEvents(db);
      const rows = await db.run(
        tables
          .selectFrom('event')
          .select(['id', 'position', 'type', 'data', 'created_at'])
          .where('environment_id', '=', caller.environmentId)
          .where('position', '>', position)
          .orderBy('position')
          .limit(limit),
      );
      const last = rows.at(-1);
      return {
        events: rows.map((row) => ({
          id: row.id,
          type: row.type,
          environment: caller.environment,
          created_at: row.created_at.toISOString(),
          data: row.data as Record<string, unknown>,
        })),
        next_after: last ? String(last.position) : (after ?? null),
      };
    },
  );
}

function readPosition(after: string): number {
  const position = /^\d{1,15}$/.test(after) ? Number(after) : undefined;
  if (position === undefined)
    throw fieldError('invalid_query_params', ['after'], 'Use next_after of an earlier answer.');
  return position;
}
