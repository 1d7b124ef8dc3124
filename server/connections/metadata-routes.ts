import { z } from 'zod';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Caller } from '../http/caller.ts';
import type { App } from '../http/server.ts';
import { integrationKey } from '../integrations/wire.ts';
import type { Vault } from '../vault.ts';
import { auditConnection } from './audit.ts';
import type { ConnectionReader } from './reader.ts';
import { changeMetadata, findConnection } from './store.ts';
import { connectionId } from './wire.ts';

const metadataBody = z.strictObject({
  connection_id: z.union([connectionId, z.array(connectionId).min(1).max(1000)]),
  provider_config_key: integrationKey,
  metadata: z.record(z.string(), z.unknown()),
});

/** Metadata of one connection or of many: all of the named ones are changed, or none. */
export function metadataRoutes(
  app: App,
  { db, vault, reader }: { db: Db; vault: Vault; reader: ConnectionReader },
): void {
  const metadataSchema = { body: metadataBody };
  app.post(
    '/connections/metadata',
    {
      config: { access: { by: 'key', scope: 'connections:write' } },
      schema: {
        operationId: 'replaceMetadata',
        summary: 'Replace metadata',
        description: 'Of one connection or of many: all that are named are changed, or none.',
        errors: [{ code: 'unknown_connection', status: 404 }],
        ...metadataSchema,
        response: { 201: metadataBody },
      },
    },
    async ({ body, caller }, reply) => {
      await changeAll(caller, body, () => body.metadata);
      reply.code(201);
      return body;
    },
  );
  app.patch(
    '/connections/metadata',
    {
      config: { access: { by: 'key', scope: 'connections:write' } },
      schema: {
        operationId: 'mergeMetadata',
        summary: 'Merge into metadata, one level deep',
        description:
          'Of one connection or of many: all that are named are changed, or none. A field that is given takes the place of what was.',
        errors: [{ code: 'unknown_connection', status: 404 }],
        ...metadataSchema,
        response: { 200: metadataBody },
      },
    },
    async ({ body, caller }) => {
      await changeAll(caller, body, (now) => ({ ...now, ...body.metadata }));
      return body;
    },
  );

  async function changeAll(
    caller: Caller,
    body: z.output<typeof metadataBody>,
    change: (now: Record<string, unknown>) => Record<string, unknown>,
  ): Promise<void> {
    // One order for everybody, so that two calls cannot wait for each other.
    const placeOf = (connectionId: string) => ({
      environmentId: caller.environmentId,
      integrationKey: body.provider_config_key,
      connectionId,
    });
    const ids = [...new Set([body.connection_id].flat())].sort();
    await db.transaction(async (tx) => {
      for (const id of ids) {
        const connection = await findConnection(tx, { ...placeOf(id), vault });
        if (connection === undefined) {
          throw new AppError('unknown_connection', `There is no connection "${id}".`, { status: 404 });
        }
        await changeMetadata(tx, { connection, change });
        await auditConnection(tx, { caller, connection, action: 'connection.metadata_changed' });
      }
    });
    for (const id of ids) reader.forget(placeOf(id));
  }
}
