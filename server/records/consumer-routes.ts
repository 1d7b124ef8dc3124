import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Caller } from '../http/caller.ts';
import { connectionErrors } from '../http/describe.ts';
import type { App } from '../http/server.ts';
import {
  acknowledge,
  type Consumer,
  findConsumer,
  listConsumers,
  removeConsumer,
  rewind,
} from './consumers.ts';
import { connectionHeaders, datasetInput, placeOf } from './input.ts';
import { removerOf } from './receipt.ts';

const named = z.strictObject({
  name: z
    .string()
    .regex(
      /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/,
      'starts with a letter or digit and holds A-Z a-z 0-9 . _ - alone, at most 100 characters',
    ),
});

const consumerWire = z.object({
  name: z.string(),
  model: z.string(),
  variant: z.string(),
  cursor: z.string().nullable(),
  acknowledged_at: z.string(),
  behind: z.number().int(),
});

/** Who follows a dataset: a bookmark for the reader, and what a retention policy waits for. */
export function consumerRoutes(
  app: App,
  { db, connections }: { db: Db; connections: Pick<ConnectionReader, 'get'> },
): void {
  const idOf = async (caller: Caller, headers: z.output<typeof connectionHeaders>): Promise<number> =>
    (
      await connections.get({
        environmentId: caller.environmentId,
        integrationKey: headers['provider-config-key'],
        connectionId: headers['connection-id'],
      })
    ).id;

  app.get(
    '/records/consumers',
    {
      config: { access: { by: 'key', scope: 'records:read' } },
      schema: {
        operationId: 'listConsumers',
        summary: 'Consumers of a connection',
        description: 'Each with how many records it is behind.',
        errors: [...connectionErrors],
        headers: connectionHeaders,
        response: { 200: z.object({ consumers: z.array(consumerWire) }) },
      },
    },
    async ({ headers, caller }) => {
      const consumers = await listConsumers(db, await idOf(caller, headers));
      return { consumers: consumers.map(toWire) };
    },
  );

  app.put(
    '/records/consumers/:name',
    {
      config: { access: { by: 'key', scope: 'records:read' } },
      schema: {
        operationId: 'acknowledgeRecords',
        summary: 'Acknowledge up to a cursor',
        description:
          'Says that this consumer has taken everything up to and including the cursor; null for nothing yet. An ' +
          'earlier cursor than before is refused, unless `rewind` is true.',
        errors: [...connectionErrors, 'invalid_cursor', 'cursor_expired', 'cursor_behind_consumer'],
        headers: connectionHeaders,
        params: named,
        body: z.strictObject({
          ...datasetInput,
          cursor: z.string().min(1).max(1000).nullable(),
          rewind: z.boolean().default(false),
        }),
        response: { 200: consumerWire },
      },
    },
    async ({ params, body, headers, caller }) => {
      const connection = await idOf(caller, headers);
      const { model, variant } = body;
      const cursor = body.cursor ?? undefined;
      const to = { connection, model, variant, name: params.name, cursor };
      return toWire(body.rewind ? await rewind(db, to) : await acknowledge(db, to));
    },
  );

  app.get(
    '/records/consumers/:name',
    {
      config: { access: { by: 'key', scope: 'records:read' } },
      schema: {
        operationId: 'getConsumer',
        summary: 'One consumer',
        description: 'How far it has come, and how many records it is behind.',
        errors: [...connectionErrors, 'not_found'],
        headers: connectionHeaders,
        params: named,
        querystring: z.strictObject(datasetInput),
        response: { 200: consumerWire },
      },
    },
    async ({ params, query, headers, caller }) => {
      const connection = await idOf(caller, headers);
      const consumer = await findConsumer(db, { connection, ...query, name: params.name });
      if (consumer === undefined) throw unknown(params.name);
      return toWire(consumer);
    },
  );

  app.delete(
    '/records/consumers/:name',
    {
      config: { access: { by: 'key', scope: 'records:read' } },
      schema: {
        operationId: 'removeConsumer',
        summary: 'Forget a consumer',
        description: 'Retention waits for it no longer. Records stay as they are.',
        errors: [...connectionErrors, 'not_found'],
        headers: connectionHeaders,
        params: named,
        querystring: z.strictObject(datasetInput),
        response: { 200: z.object({ success: z.literal(true) }) },
      },
    },
    async ({ params, query, headers, caller }) => {
      const connection = await connections.get(placeOf(caller, headers));
      const { name } = params;
      await db.transaction(async (tx) => {
        if (!(await removeConsumer(tx, { connection: connection.id, ...query, name }))) throw unknown(name);
        await writeAudit(tx, {
          ...removerOf(caller, connection),
          action: 'consumer.removed',
          details: { name, ...query },
        });
      });
      return { success: true as const };
    },
  );
}

function unknown(name: string): AppError {
  return new AppError('not_found', `Nobody named "${name}" follows this dataset.`);
}

function toWire(consumer: Consumer): z.input<typeof consumerWire> {
  return {
    name: consumer.name,
    model: consumer.model,
    variant: consumer.variant,
    cursor: consumer.cursor ?? null,
    acknowledged_at: consumer.acknowledgedAt.toISOString(),
    behind: consumer.behind,
  };
}
