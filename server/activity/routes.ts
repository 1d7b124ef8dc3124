import { z } from 'zod';
import type { Db } from '../db/pool.ts';
import { fieldError } from '../errors.ts';
import type { App } from '../http/server.ts';
import type { Vault } from '../vault.ts';
import { countOperations } from './count.ts';
import { filterInput, filterOf, timeInput } from './filter-input.ts';
import { getOperation } from './operations.ts';
import { searchOperations } from './search.ts';
import { countSteps, mostSteps, type Point, seriesOf, stepsS } from './series.ts';
import { operationToWire, operationWire } from './wire.ts';
import type { Activity } from './writer.ts';

const message = z.object({
  level: z.string(),
  message: z.string(),
  details: z.record(z.string(), z.unknown()),
  /** The code of a function wrote it, and its connection was deleted: the message says so. */
  deleted: z.boolean(),
});
const filters = { ...filterInput, from: timeInput.optional(), to: timeInput.optional() };
const mostHours = 31 * 24;
const hourMs = 3_600_000;

const point = z.object({
  at: z.string(),
  count: z.number(),
  failed: z.number(),
  p50_ms: z.number().nullable(),
  p95_ms: z.number().nullable(),
  sampled: z.boolean(),
});

/** Looking up what was done. */
export function activityRoutes(
  app: App,
  {
    db,
    vault,
    now,
    activity,
  }: { db: Db; vault: Vault; now: () => Date; activity: Pick<Activity, 'dropped'> },
): void {
  const access = { by: 'key', scope: 'activity:read' } as const;

  app.get(
    '/operations',
    {
      config: { access },
      schema: {
        operationId: 'listOperations',
        summary: 'Operations, newest first',
        description:
          'A call looks at a bounded number of entries: of what is rare a page may be short, or empty. As long as ' +
          '`next_cursor` is there, there may be more; `searched_until` says how far back was looked.',
        querystring: z.strictObject({
          ...filters,
          cursor: z.uuid().optional(),
          limit: z.coerce.number().int().min(1).max(1000).default(100),
        }),
        response: {
          200: z.object({
            operations: z.array(operationWire),
            next_cursor: z.string().nullable(),
            /** Null where everything that is kept was looked at. */
            searched_until: z.string().nullable(),
          }),
        },
      },
    },
    async ({ query: { cursor, limit, from, to, ...query }, caller }) => {
      const { operations, next, searchedUntil } = await searchOperations(db, {
        filter: { ...filterOf(caller, query), from, to },
        before: cursor,
        limit,
      });
      return {
        operations: operations.map(operationToWire),
        next_cursor: next ?? null,
        searched_until: searchedUntil?.toISOString() ?? null,
      };
    },
  );

  app.get(
    '/operations/stats',
    {
      config: { access },
      schema: {
        operationId: 'countOperations',
        summary: 'How many operations there were in each hour, by status; or how they went, step by step',
        description:
          'Of the last 24 hours, or from `from` to `to`, at most 31 days. `hours` leaves hours without any out. With ' +
          '`step_s` there is `series` in place of it: how many there were in each step, how many failed and how long they ' +
          `took (p50, p95), at most ${mostSteps} steps. A step with more entries than a call looks at is \`sampled\`: ` +
          'its newest ones stand for it.',
        querystring: z.strictObject({
          ...filters,
          step_s: z.coerce.number().pipe(z.literal(stepsS)).optional(),
        }),
        response: {
          200: z.object({
            hours: z.array(z.object({ hour: z.string(), status: z.string(), count: z.number() })).optional(),
            series: z.array(point).optional(),
            /** How many this node has let go since it started, of all environments. */
            dropped: z.number(),
          }),
        },
      },
    },
    async ({ query: { from: given, to: end, step_s: stepS, ...query }, caller }) => {
      const to = end ?? now();
      const from = given ?? new Date(to.getTime() - 24 * hourMs);
      if (to.getTime() - from.getTime() > mostHours * hourMs) {
        throw fieldError('invalid_query_params', ['from'], 'must be at most 31 days before `to`');
      }
      const { dropped } = activity;
      const filter = { ...filterOf(caller, query), from, to };
      if (stepS === undefined) {
        const counts = await countOperations(db, filter);
        return { hours: counts.map(({ hour, ...rest }) => ({ hour: hour.toISOString(), ...rest })), dropped };
      }
      if (countSteps(filter, stepS) > mostSteps) {
        throw fieldError(
          'invalid_query_params',
          ['step_s'],
          `makes more than ${mostSteps} steps of this time`,
        );
      }
      return { series: (await seriesOf(db, { filter, stepS })).map(pointToWire), dropped };
    },
  );

  app.get(
    '/operations/:id',
    {
      config: { access },
      schema: {
        operationId: 'getOperation',
        summary: 'One operation with its messages',
        description: 'A call, a run, a delivery or a trip of an end user, with what was noted on its way.',
        errors: ['not_found'],
        params: z.object({ id: z.uuid() }),
        response: { 200: operationWire.extend({ messages: z.array(message) }) },
      },
    },
    async ({ params: { id }, caller }) => {
      const { messages, ...found } = await getOperation(db, {
        ...{ environmentId: caller.environmentId, id, vault },
      });
      return {
        ...operationToWire(found),
        messages: messages.map(({ isDeleted, ...one }) => ({
          ...one,
          details: one.details as Record<string, unknown>,
          deleted: isDeleted,
        })),
      };
    },
  );
}

function pointToWire({ at, p50Ms, p95Ms, isSampled, ...counts }: Point): z.input<typeof point> {
  return { at: at.toISOString(), ...counts, p50_ms: p50Ms, p95_ms: p95Ms, sampled: isSampled };
}
