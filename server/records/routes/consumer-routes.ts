import { z } from 'zod';
import { listOwningKeys } from '../../environments/keys.ts';
import { AppError } from '../../errors.ts';
import type { Caller } from '../../http/auth/caller.ts';
import { connectionErrors } from '../../http/openapi/describe.ts';
import { nameSchemas, success } from '../../http/openapi/schema-names.ts';
import type { App } from '../../http/server.ts';
import {
  acknowledge,
  type Consumer,
  findConsumer,
  listConsumers,
  moverOf,
  removeConsumer,
  rewind,
} from '../retention/consumers.ts';
import { connectionHeaders, connectionOf, datasetInput, type RecordRouteDeps } from './input.ts';

const consumerParams = z.strictObject({
  name: z
    .string()
    .regex(
      /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/,
      'must start with a letter or digit and contain only A-Z a-z 0-9 . _ -, at most 100 characters',
    ),
});

const consumerWire = z.object({
  name: z.string(),
  model: z.string(),
  variant: z.string(),
  cursor: z.string().nullable(),
  acknowledged_at: z.string(),
  behind: z.number().int(),
  key_id: z.number().int().nullable(),
  stalled_since: z.string().nullable(),
});
nameSchemas({ Consumer: consumerWire });

/** Consumers of datasets: each is a bookmark for its reader, and a retention policy waits for it. */
export function consumerRoutes(app: App, { db, connections, now }: RecordRouteDeps): void {
  const toWire = async (caller: Caller, consumers: readonly Consumer[]) => {
    const owners = consumers.flatMap(({ ownerKeyId }) => ownerKeyId ?? []);
    const keys = await listOwningKeys(db, { environmentId: caller.environmentId, owners, now: now() });
    return consumers.map(
      (consumer): z.input<typeof consumerWire> => ({
        name: consumer.name,
        model: consumer.model,
        variant: consumer.variant,
        cursor: consumer.cursor ?? null,
        acknowledged_at: consumer.acknowledgedAt.toISOString(),
        behind: consumer.behind,
        key_id: keys.get(consumer.ownerKeyId ?? 0) ?? null,
        stalled_since: consumer.stalledSince?.toISOString() ?? null,
      }),
    );
  };
  const oneToWire = async (caller: Caller, consumer: Consumer) => (await toWire(caller, [consumer]))[0]!;

  app.get(
    '/records/consumers',
    {
      config: { access: { by: 'key', scope: 'records:read' } },
      schema: {
        operationId: 'listConsumers',
        list: { items: 'consumers', by: 'whole' },
        summary: 'Consumers of a connection',
        description:
          '`behind`: the number of records after the cursor. `key_id`: the key that owns the consumer, or null. ' +
          '`stalled_since`: the time since which the consumer acknowledges one cursor while changes wait, once that has ' +
          'lasted for 30 days.',
        errors: [...connectionErrors],
        headers: connectionHeaders,
        response: { 200: z.object({ consumers: z.array(consumerWire) }) },
      },
    },
    async (request) => {
      const { id } = await connectionOf(connections, request);
      return { consumers: await toWire(request.caller, await listConsumers(db, id)) };
    },
  );

  app.put(
    '/records/consumers/:name',
    {
      config: { access: { by: 'key', scope: ['records:read', 'records:write'] } },
      schema: {
        operationId: 'acknowledgeRecords',
        summary: 'Acknowledge up to a cursor',
        description:
          'Stores that this consumer has taken everything up to and including the cursor; null for nothing yet. An ' +
          'earlier cursor than before is refused, unless `rewind` is true. A consumer belongs to the key that creates ' +
          'it; another key needs the scope records:write. The first key with records:read that acknowledges the present ' +
          'cursor of a consumer without a valid owner becomes its owner.',
        errors: [
          ...connectionErrors,
          ...([
            'invalid_cursor',
            'cursor_expired',
            'cursor_behind_consumer',
            'consumer_without_owner',
          ] as const),
        ],
        headers: connectionHeaders,
        params: consumerParams,
        body: z.strictObject({
          ...datasetInput,
          cursor: z.string().min(1).max(1000).nullable(),
          rewind: z.boolean().default(false),
        }),
        response: { 200: consumerWire },
      },
    },
    async (request) => {
      const { params, body, caller } = request;
      const connection = await connectionOf(connections, request);
      const { model, variant } = body;
      const to = {
        connection: connection.id,
        model,
        variant,
        name: params.name,
        cursor: body.cursor ?? undefined,
        by: moverOf(caller, connection),
        now: now(),
      };
      return oneToWire(caller, body.rewind ? await rewind(db, to) : await acknowledge(db, to));
    },
  );

  app.get(
    '/records/consumers/:name',
    {
      config: { access: { by: 'key', scope: 'records:read' } },
      schema: {
        operationId: 'getConsumer',
        summary: 'Get a consumer',
        description: 'Its cursor, and the number of records after it.',
        errors: [...connectionErrors, 'not_found'],
        headers: connectionHeaders,
        params: consumerParams,
        querystring: z.strictObject(datasetInput),
        response: { 200: consumerWire },
      },
    },
    async (request) => {
      const { name } = request.params;
      const { id: connection } = await connectionOf(connections, request);
      const consumer = await findConsumer(db, { connection, ...request.query, name });
      if (consumer === undefined) throw unknownConsumer(name);
      return oneToWire(request.caller, consumer);
    },
  );

  app.delete(
    '/records/consumers/:name',
    {
      config: { access: { by: 'key', scope: ['records:read', 'records:write'] } },
      schema: {
        operationId: 'removeConsumer',
        summary: 'Remove a consumer',
        description:
          'Retention no longer waits for it. Records stay as they are. For a consumer of another key, or without a ' +
          'valid owner, the caller needs the scope records:write.',
        errors: [...connectionErrors, 'not_found', 'consumer_without_owner'],
        headers: connectionHeaders,
        params: consumerParams,
        querystring: z.strictObject(datasetInput),
        response: { 200: success },
      },
    },
    async (request) => {
      const { name } = request.params;
      const connection = await connectionOf(connections, request);
      const at = { connection: connection.id, ...request.query, name };
      const by = moverOf(request.caller, connection);
      if (!(await removeConsumer(db, { ...at, by, now: now() }))) throw unknownConsumer(name);
      return { success: true as const };
    },
  );
}

function unknownConsumer(name: string): AppError {
  return new AppError('not_found', `This dataset has no consumer named "${name}".`);
}
