import { z } from 'zod';
import type { Db } from '../db/pool.ts';
import { fieldError } from '../errors.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { text } from '../http/text.ts';
import type { Vault } from '../vault.ts';
import { type Group, groupings, groupsOf, isCounted, maxGroups } from './counts.ts';
import { getOperation } from './operations.ts';
import { searchOperations } from './search.ts';
import {
  countOperations,
  countSteps,
  type Kept,
  maxDays,
  maxSteps,
  maxStepsOf,
  type Point,
  seriesOf,
  stepsS,
} from './series.ts';
import { filterInput, filterOf, operationsToWire, operationWire, timeInput } from './wire.ts';
import type { Activity } from './writer.ts';

const message = z.object({
  level: z.string(),
  message: z.string(),
  details: z.record(z.string(), z.unknown()),
  /** The code of a function wrote it, and its connection was deleted: the message says so. */
  deleted: z.boolean(),
});
const filters = { ...filterInput, from: timeInput.optional(), to: timeInput.optional() };
const maxHours = 31 * 24;
const hourMs = 3_600_000;
const dayS = 86_400;

const point = z.object({
  at: z.string(),
  count: z.number(),
  failed: z.number(),
  p50_ms: z.number().nullable(),
  p95_ms: z.number().nullable(),
  sampled: z.boolean(),
  /** Whether there may be more of them, and more that failed. */
  at_least: z.boolean(),
});
const grouped = z.object({
  provider_config_key: z.string().nullable(),
  type: z.string().nullable(),
  endpoint: z.number().nullable(),
  kind: z.string().nullable(),
  function: z.string().nullable(),
  variant: z.string().nullable(),
  count: z.number(),
  failed: z.number(),
  p50_ms: z.number().nullable(),
  p95_ms: z.number().nullable(),
});
const wholeOperationWire = operationWire.extend({ messages: z.array(message) });
nameSchemas({
  OperationDetails: wholeOperationWire,
  OperationGroup: grouped,
  OperationMessage: message,
  OperationStep: point,
});

/** Reading the activity log. */
export function activityRoutes(
  app: App,
  {
    db,
    vault,
    now,
    activity,
    kept,
  }: { db: Db; vault: Vault; now: () => Date; activity: Pick<Activity, 'dropped'>; kept: Kept },
): void {
  const access = { by: 'key', scope: 'activity:read' } as const;

  app.get(
    '/operations',
    {
      config: { access },
      schema: {
        operationId: 'listOperations',
        summary: 'List operations, newest first',
        description:
          'A call examines a limited number of entries, so a page of rare operations can be short or empty. While the ' +
          'response has `next_cursor`, there can be more operations; `searched_until` is the time up to which the call ' +
          'searched.',
        querystring: z.strictObject({
          ...filters,
          cursor: z.uuid().optional(),
          limit: z.coerce.number().int().min(1).max(1000).default(100),
        }),
        response: {
          200: z.object({
            operations: z.array(operationWire),
            next_cursor: z.string().nullable(),
            /** Null if all entries were searched. */
            searched_until: z.string().nullable(),
          }),
        },
      },
    },
    async ({ query: { cursor, limit, from, to, ...query }, caller }) => {
      const { operations, next, searchedUntil } = await searchOperations(db, {
        filter: { ...(await filterOf(db, caller, query)), from, to },
        before: cursor,
        limit,
      });
      return {
        operations: await operationsToWire(db, { operations, caller }),
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
        summary: 'Count operations by hour and status, or measure them by step',
        description:
          'Of the last 24 hours, or from `from` to `to`, at most 31 days. `hours` omits hours without operations. With ' +
          '`step_s`, the response has `series` instead of `hours`: for each step, the operations, the failed ones ' +
          `and the durations (p50, p95); at most ${maxSteps} steps, or ${maxDays} steps of a day. ` +
          'With `by`, the response has `groups`: the same values for the whole time by integration, type, endpoint ' +
          `or function; at most ${maxGroups} groups, those with the most failures first. All values are exact, unless ` +
          'a filter by connection or text, or a time before counts were kept, requires the entries: a step ' +
          'with more entries than a call examines is marked `sampled` and `at_least`.',
        querystring: z.strictObject({
          ...filters,
          endpoint: z.coerce.number().int().min(1).max(Number.MAX_SAFE_INTEGER).optional(),
          sync: text({ max: 255 }).optional(),
          variant: text({ max: 255 }).optional(),
          step_s: z.coerce.number().pipe(z.literal(stepsS)).optional(),
          by: z.enum(groupings).optional(),
        }),
        response: {
          200: z.object({
            hours: z.array(z.object({ hour: z.string(), status: z.string(), count: z.number() })).optional(),
            series: z.array(point).optional(),
            groups: z.array(grouped).optional(),
            /** Whether there are more groups than these. */
            has_more: z.boolean().optional(),
            /** Whether all counts are exact. */
            exact: z.boolean(),
            /** How many operations of all environments this node has dropped since it started. */
            dropped: z.number(),
          }),
        },
      },
    },
    async ({ query, caller }) => {
      const { from: given, to: end, step_s: stepS, by, endpoint, sync, variant, ...chosen } = query;
      const at = now();
      const to = end ?? at;
      const from = given ?? new Date(to.getTime() - 24 * hourMs);
      const days = stepS === dayS || by !== undefined ? maxDays : maxHours / 24;
      if (to.getTime() - from.getTime() > days * 24 * hourMs) {
        throw fieldError('invalid_query_params', ['from'], `must be at most ${days} days before \`to\``);
      }
      const { dropped } = activity;
      const filter = { ...(await filterOf(db, caller, chosen)), endpoint, sync, variant, from, to };
      filter.type ??= endpoint !== undefined ? 'delivery' : sync !== undefined ? 'run' : undefined;
      if (by !== undefined) {
        if (!isCounted(filter)) {
          throw fieldError(
            'invalid_query_params',
            ['by'],
            'cannot be combined with `connection_id` or `text`',
          );
        }
        const { groups, hasMore, isAtLeast } = await groupsOf(db, { filter, by, now: at });
        return { groups: groups.map(groupToWire), has_more: hasMore, exact: !isAtLeast, dropped };
      }
      if (stepS === undefined) {
        const { hours, isAtLeast } = await countOperations(db, { filter, kept, now: at });
        return {
          hours: hours.map(({ hour, ...rest }) => ({ hour: hour.toISOString(), ...rest })),
          exact: !isAtLeast,
          dropped,
        };
      }
      if (countSteps(filter, stepS) > maxStepsOf(stepS)) {
        throw fieldError(
          'invalid_query_params',
          ['step_s'],
          `makes more than ${maxStepsOf(stepS)} steps of this time`,
        );
      }
      const series = await seriesOf(db, { filter, stepS, kept, now: at });
      return { series: series.map(pointToWire), exact: !series.some(({ isAtLeast }) => isAtLeast), dropped };
    },
  );

  app.get(
    '/operations/:id',
    {
      config: { access },
      schema: {
        operationId: 'getOperation',
        summary: 'Get an operation with its messages',
        description:
          'A proxy call, a run, a delivery or an authorization of an end user, with the messages that were logged for it.',
        errors: ['not_found'],
        params: z.object({ id: z.uuid() }),
        response: { 200: wholeOperationWire },
      },
    },
    async ({ params: { id }, caller }) => {
      const { messages, ...found } = await getOperation(db, {
        environmentId: caller.environmentId,
        id,
        vault,
      });
      const [operation] = await operationsToWire(db, { operations: [found], caller });
      return {
        ...operation!,
        messages: messages.map(({ isDeleted, ...one }) => ({
          ...one,
          details: one.details as Record<string, unknown>,
          deleted: isDeleted,
        })),
      };
    },
  );
}

function pointToWire({ at, p50Ms, p95Ms, isSampled, isAtLeast, ...counts }: Point): z.input<typeof point> {
  const times = { p50_ms: p50Ms, p95_ms: p95Ms };
  return { at: at.toISOString(), ...counts, ...times, sampled: isSampled, at_least: isAtLeast };
}

/** The target of a function is `kind/name`; operations that are counted without a name have none. */
function groupToWire({ integration, target, p50Ms, p95Ms, ...group }: Group): z.input<typeof grouped> {
  const slash = target?.indexOf('/') ?? -1;
  return {
    ...group,
    variant: group.variant || null,
    provider_config_key: integration || null,
    endpoint: group.type === 'delivery' && target ? Number(target) : null,
    kind: target && slash > 0 ? target.slice(0, slash) : null,
    function: target && slash > 0 ? target.slice(slash + 1) : null,
    p50_ms: p50Ms,
    p95_ms: p95Ms,
  };
}
