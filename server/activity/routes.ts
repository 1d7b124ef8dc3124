import { z } from 'zod';
import type { Db } from '../db/pool.ts';
import { fieldError } from '../errors.ts';
import type { Caller } from '../http/caller.ts';
import type { App } from '../http/server.ts';
import { text } from '../http/text.ts';
import {
  countOperations,
  getOperation,
  listOperations,
  type OperationFilter,
  operationStatuses,
  operationTypes,
} from './operations.ts';

const details = z.record(z.string(), z.unknown());
const operation = z.object({
  id: z.string(),
  created_at: z.string(),
  type: z.string(),
  status: z.string(),
  provider_config_key: z.string().nullable(),
  connection_id: z.string().nullable(),
  /** `key:12`, ... */
  actor: z.string().nullable(),
  /** What the answer carried as X-Request-Id. */
  request_id: z.string().nullable(),
  duration_ms: z.number().nullable(),
  method: z.string().nullable(),
  path: z.string().nullable(),
  http_status: z.number().nullable(),
  error_code: z.string().nullable(),
  /** Made to the provider for this call; `retries` of them because the one before had failed. */
  requests: z.number().nullable(),
  retries: z.number().nullable(),
  request_bytes: z.number().nullable(),
  answer_bytes: z.number().nullable(),
  credentials_ms: z.number().nullable(),
  quota_ms: z.number().nullable(),
  connect_ms: z.number().nullable(),
  first_byte_ms: z.number().nullable(),
  body_ms: z.number().nullable(),
  details,
});
const message = z.object({ level: z.string(), message: z.string(), details });

const time = z.iso.datetime({ offset: true }).transform((given) => new Date(given));
const filters = {
  provider_config_key: text({ max: 255 }).optional(),
  connection_id: text({ max: 255 }).optional(),
  type: z.enum(operationTypes).optional(),
  status: z.enum(operationStatuses).optional(),
  text: text({ max: 255 }).optional(),
  from: time.optional(),
  to: time.optional(),
};
const mostHours = 31 * 24;
const hourMs = 3_600_000;

/** Looking up what was done. */
export function activityRoutes(app: App, { db, now }: { db: Db; now: () => Date }): void {
  const access = { by: 'key', scope: 'activity:read' } as const;

  app.get(
    '/operations',
    {
      config: { access },
      schema: {
        summary: 'Operations, newest first',
        querystring: z.strictObject({
          ...filters,
          cursor: z.uuid().optional(),
          limit: z.coerce.number().int().min(1).max(1000).default(100),
        }),
        response: { 200: z.object({ operations: z.array(operation), next_cursor: z.string().nullable() }) },
      },
    },
    async ({ query: { cursor, limit, ...query }, caller }) => {
      const filter = filterOf(caller, query);
      const found = await listOperations(db, { filter, before: cursor, limit: limit + 1 });
      const operations = found.slice(0, limit).map(toWire);
      return { operations, next_cursor: found.length > limit ? operations.at(-1)!.id : null };
    },
  );

  app.get(
    '/operations/stats',
    {
      config: { access },
      schema: {
        summary: 'How many operations there were in each hour, by status',
        description:
          'Of the last 24 hours, or from `from` to `to`, at most 31 days. Hours without any are left out.',
        querystring: z.strictObject(filters),
        response: {
          200: z.object({
            hours: z.array(z.object({ hour: z.string(), status: z.string(), count: z.number() })),
          }),
        },
      },
    },
    async ({ query, caller }) => {
      const to = query.to ?? now();
      const from = query.from ?? new Date(to.getTime() - 24 * hourMs);
      if (to.getTime() - from.getTime() > mostHours * hourMs) {
        throw fieldError('invalid_query_params', ['from'], 'must be at most 31 days before `to`');
      }
      const counts = await countOperations(db, filterOf(caller, { ...query, from, to: query.to }));
      return { hours: counts.map(({ hour, ...rest }) => ({ hour: hour.toISOString(), ...rest })) };
    },
  );

  app.get(
    '/operations/:id',
    {
      config: { access },
      schema: {
        summary: 'One operation with its messages',
        params: z.object({ id: z.uuid() }),
        response: { 200: operation.extend({ messages: z.array(message) }) },
      },
    },
    async ({ params: { id }, caller }) => {
      const { messages, ...found } = await getOperation(db, { environmentId: caller.environmentId, id });
      return {
        ...toWire(found),
        messages: messages.map((one) => ({ ...one, details: one.details as z.output<typeof details> })),
      };
    },
  );
}

type Query = { [Name in keyof typeof filters]?: z.output<(typeof filters)[Name]> };

function filterOf(caller: Caller, query: Query): OperationFilter {
  const { provider_config_key: integration, connection_id: connection, ...same } = query;
  return { environmentId: caller.environmentId, integration, connection, ...same };
}

type Row = Awaited<ReturnType<typeof listOperations>>[number];

function toWire(row: Row): z.input<typeof operation> {
  const { created_at: createdAt, integration, connection, ...same } = row;
  return {
    ...same,
    created_at: createdAt.toISOString(),
    provider_config_key: integration,
    connection_id: connection,
    details: row.details as z.output<typeof details>,
  };
}
