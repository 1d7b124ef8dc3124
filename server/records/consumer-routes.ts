import { z } from 'zod';
import type { ConnectionReader } from '../connections/reader.ts';
import type { Db } from '../db/pool.ts';
import { listOwningKeys } from '../environments/key-replacements.ts';
import { AppError } from '../errors.ts';
import type { Caller } from '../http/caller.ts';
import { connectionErrors } from '../http/describe.ts';
import type { App } from '../http/server.ts';
import { moverOf } from './consumer-owner.ts';
import {
  acknowledge,
  type Consumer,
  findConsumer,
  listConsumers,
  removeConsumer,
  rewind,
} from './consumers.ts';
import { connectionHeaders, datasetInput, placeOf } from './input.ts';

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
  key_id: z.number().int().nullable(),
  stalled_since: z.string().nullable(),
});

/** Who follows a dataset: a bookmark for the reader, and what a retention policy waits for. */
export function consumerRoutes(
  app: App,
  { db, connections, now }: { db: Db; connections: Pick<ConnectionReader, 'get'>; now: () => Date },
): void {
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
        summary: 'Consumers of a connection',
        description:
          'Each with how many records it is behind. `key_id`: the key that it belongs to, null for none. `stalled_since`: ' +
          'since when the consumer acknowledges one cursor while changes wait, once that has lasted for 30 days.',
        errors: [...connectionErrors],
        headers: connectionHeaders,
        response: { 200: z.object({ consumers: z.array(consumerWire) }) },
      },
    },
    async ({ headers, caller }) => {
      const { id } = await connections.get(placeOf(caller, headers));
      return { consumers: await toWire(caller, await listConsumers(db, id)) };
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
          'Says that this consumer has taken everything up to and including the cursor; null for nothing yet. An ' +
          'earlier cursor than before is refused, unless `rewind` is true. A consumer belongs to the key that creates it; ' +
          'another key needs the scope records:write. A consumer without a valid owner goes to the first key with ' +
          'records:read that acknowledges its present cursor.',
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
      const connection = await connections.get(placeOf(caller, headers));
      const { model, variant } = body;
      const to = {
        ...{ connection: connection.id, model, variant, name: params.name, cursor: body.cursor ?? undefined },
        ...{ by: moverOf(caller, connection), now: now() },
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
      const { id: connection } = await connections.get(placeOf(caller, headers));
      const consumer = await findConsumer(db, { connection, ...query, name: params.name });
      if (consumer === undefined) throw unknown(params.name);
      return oneToWire(caller, consumer);
    },
  );

  app.delete(
    '/records/consumers/:name',
    {
      config: { access: { by: 'key', scope: ['records:read', 'records:write'] } },
      schema: {
        operationId: 'removeConsumer',
        summary: 'Forget a consumer',
        description:
          'Retention waits for it no longer. Records stay as they are. A consumer of another key, or without a valid ' +
          'owner, takes the scope records:write.',
        errors: [...connectionErrors, 'not_found', 'consumer_without_owner'],
        headers: connectionHeaders,
        params: named,
        querystring: z.strictObject(datasetInput),
        response: { 200: z.object({ success: z.literal(true) }) },
      },
    },
    async ({ params, query, headers, caller }) => {
      const connection = await connections.get(placeOf(caller, headers));
      const at = { connection: connection.id, ...query, name: params.name };
      const by = moverOf(caller, connection);
      if (!(await removeConsumer(db, { ...at, by, now: now() }))) throw unknown(params.name);
      return { success: true as const };
    },
  );
}

function unknown(name: string): AppError {
  return new AppError('not_found', `Nobody named "${name}" follows this dataset.`);
}
