import { z } from 'zod';
import { emailsOf } from '../activity/accounts.ts';
import { writeAudit } from '../activity/audit.ts';
import type { Db } from '../db/pool.ts';
import { AppError, fieldError } from '../errors.ts';
import { eventWire } from '../events/catalogue.ts';
import { eventTypes } from '../events/event-types.ts';
import { actorOf, type Caller } from '../http/auth/caller.ts';
import { nameSchemas, success } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { withIntegrationId } from '../http/spellings.ts';
import {
  type Delivery,
  deliveryStatuses,
  findDelivery,
  listDeliveries,
  maxReplayed,
  replayOne,
  replayRange,
} from './deliveries.ts';
import { acceptEmptyBody, idParams } from './endpoint-routes.ts';
import { getEndpoint } from './endpoints.ts';

const deliveryWire = z.object({
  id: z.number().int(),
  endpoint: z.number().int(),
  status: z.enum(deliveryStatuses),
  attempts: z.number(),
  event: z.object({ id: z.string(), type: z.string(), created_at: z.string() }),
  provider_config_key: z.string().nullable(),
  connection_id: z.string().nullable(),
  account_email: z.string().nullable(),
  /** The start of the time for attempts: the event, or its replay. */
  queued_at: z.string(),
  last_attempt: z.record(z.string(), z.unknown()).nullable(),
  settled_at: z.string().nullable(),
});
const wholeDeliveryWire = deliveryWire.extend({ event: eventWire });
nameSchemas({ Delivery: wholeDeliveryWire, ListedDelivery: deliveryWire });
const time = z.iso.datetime({ offset: true }).transform((given) => new Date(given));
const position = z.string().regex(/^\d{1,15}$/, 'is not a valid position of the feed');

/** Routes for deliveries and their replay. */
export function deliveryRoutes(app: App, { db, now }: { db: Db; now: () => Date }): void {
  app.get(
    '/events/deliveries',
    {
      config: { access: { by: 'key', scope: 'events:read' } },
      schema: {
        operationId: 'listDeliveries',
        list: { items: 'deliveries', by: { parameter: 'before', next: 'next_before' } },
        summary: 'List deliveries of events to endpoints, newest first',
        description:
          '`status`: `waiting` (to be sent, or sent again), `delivered`, or `dead` (not accepted within three days). ' +
          '`before` is the `next_before` of the previous page. The list ends only when `next_before` is null: with a ' +
          '`type`, a page can be short.',
        querystring: z.strictObject({
          endpoint: z.coerce.number().int().min(1).max(Number.MAX_SAFE_INTEGER).optional(),
          status: z.enum(deliveryStatuses).optional(),
          type: z.enum(eventTypes).optional(),
          before: z.coerce.number().int().min(1).max(Number.MAX_SAFE_INTEGER).optional(),
          limit: z.coerce.number().int().min(1).max(1000).default(100),
        }),
        response: {
          200: z.object({ deliveries: z.array(deliveryWire), next_before: z.number().nullable() }),
        },
      },
    },
    async ({ query, caller }) => {
      const { deliveries, next } = await listDeliveries(db, {
        environmentId: caller.environmentId,
        ...query,
      });
      return { deliveries: await toWire(db, { caller, deliveries }), next_before: next ?? null };
    },
  );

  app.get(
    '/events/deliveries/:id',
    {
      config: { access: { by: 'key', scope: 'events:read' } },
      schema: {
        operationId: 'getDelivery',
        summary: 'Get a delivery with its complete event',
        description: 'With the number of attempts, and the last response.',
        errors: ['not_found'],
        params: idParams,
        response: { 200: wholeDeliveryWire },
      },
    },
    async ({ params: { id }, caller }) => {
      const { environmentId, environment } = caller;
      const delivery = await findDelivery(db, { id, environmentId });
      if (delivery === undefined) throw unknown(id);
      const [wire] = await toWire(db, { caller, deliveries: [delivery] });
      return { ...wire!, event: { ...wire!.event, environment, data: withIntegrationId(delivery.data) } };
    },
  );

  app.post(
    '/events/deliveries/:id/replay',
    {
      preValidation: acceptEmptyBody,
      config: { access: { by: 'key', scope: 'events:write' } },
      schema: {
        operationId: 'replayDelivery',
        summary: 'Send one delivery again',
        description: 'The `webhook-id` stays the same. A waiting delivery does not change.',
        errors: ['not_found'],
        params: idParams,
        body: z.strictObject({}),
        response: { 200: success },
      },
    },
    async ({ params: { id }, caller }) => {
      const { environmentId } = caller;
      await db.transaction(async (tx) => {
        if (!(await replayOne(tx, { id, environmentId, now: now() }))) throw unknown(id);
        const entry = { environmentId, actor: actorOf(caller), target: String(id) };
        await writeAudit(tx, { ...entry, action: 'delivery.replayed' });
      });
      return { success: true as const };
    },
  );

  app.post(
    '/events/endpoints/:id/replay',
    {
      config: { access: { by: 'key', scope: 'events:write' } },
      schema: {
        operationId: 'replayEvents',
        summary: 'Send the events of a range to an endpoint again',
        description:
          `Oldest first, at most ${maxReplayed} events a call, including events from the time when the endpoint was ` +
          'disabled or did not exist. `after` is a position of the feed; `from` and `to` are times (`to` is ' +
          'exclusive). Send `next_after` as `after` to continue; null means that no events are left.',
        errors: ['not_found'],
        params: idParams,
        example: { body: { after: '1042' } },
        body: z.strictObject({
          after: position.optional(),
          from: time.optional(),
          to: time.optional(),
          undelivered_only: z.boolean().default(false),
        }),
        response: { 200: z.object({ count: z.number(), next_after: z.string().nullable() }) },
      },
    },
    async ({ params: { id }, body, caller }) => {
      const { after, from, to, undelivered_only: undeliveredOnly } = body;
      if (after === undefined && from === undefined) {
        throw fieldError('invalid_body', ['after'], 'Send `after` or `from` as the start of the range.');
      }
      const { environmentId } = caller;
      const range = { after: Number(after ?? 0), from, to, undeliveredOnly };
      const { count, doneUpTo } = await db.transaction(async (tx) => {
        const endpoint = await getEndpoint(tx, { id, environmentId });
        const replayed = await replayRange(tx, { endpoint, environmentId, range, now: now() });
        const entry = { environmentId, actor: actorOf(caller), target: String(id) };
        await writeAudit(tx, { ...entry, action: 'endpoint.replayed', details: { count: replayed.count } });
        return replayed;
      });
      return { count, next_after: doneUpTo === undefined ? null : String(doneUpTo) };
    },
  );
}

function unknown(id: number): AppError {
  return new AppError('not_found', `This environment has no delivery ${id}.`);
}

async function toWire(
  db: Db,
  { caller, deliveries }: { caller: Caller; deliveries: readonly Delivery[] },
): Promise<z.input<typeof deliveryWire>[]> {
  const emailOf = await emailsOf(db, { caller, all: deliveries });
  return deliveries.map((delivery) => {
    const { lastAttemptAt, lastAttempt } = delivery;
    return {
      id: delivery.id,
      endpoint: delivery.endpoint,
      status: delivery.status,
      attempts: delivery.attempts,
      event: { id: delivery.eventId, type: delivery.type, created_at: delivery.createdAt.toISOString() },
      provider_config_key: delivery.integration,
      connection_id: delivery.connection,
      account_email: emailOf(delivery),
      queued_at: delivery.queuedAt.toISOString(),
      last_attempt:
        lastAttemptAt === null ? null : { at: lastAttemptAt.toISOString(), ...(lastAttempt as object) },
      settled_at: delivery.settledAt?.toISOString() ?? null,
    };
  });
}
