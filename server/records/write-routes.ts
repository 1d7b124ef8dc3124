import { z } from 'zod';
import type { Activity } from '../activity/writer.ts';
import type { Brand } from '../brand.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import type { Db } from '../db/pool.ts';
import { connectionErrors } from '../http/describe.ts';
import type { App } from '../http/server.ts';
import type { JsonValue } from './canonical.ts';
import { checkParts, maxRecords } from './check.ts';
import { deleteRecords } from './delete.ts';
import { connectionHeaders, datasetInput, placeOf, recordIdsInput } from './input.ts';
import { loggedCall } from './logged-call.ts';
import { endTracking, startTracking } from './track-deletes.ts';
import { updateRecords } from './update.ts';

type Deps = { db: Db; brand: Brand; connections: Pick<ConnectionReader, 'get'>; activity: Activity };

/** Bytes an update may carry: as many as a save. */
const maxUpdateBytes = 32 * 1024 * 1024;

const ids = z.array(z.string());

/** Update, delete, and delete tracking. */
export function writeRoutes(app: App, { db, brand, connections, activity }: Deps): void {
  app.patch(
    '/records',
    {
      config: { access: { by: 'key', scope: 'records:write' } },
      bodyLimit: maxUpdateBytes,
      schema: {
        operationId: 'updateRecords',
        summary: 'Update records in part',
        description:
          'Objects are merged at every depth; everything else replaces what was there, arrays too. Unknown, deleted ' +
          'and pruned records are left alone and named.',
        errors: [...connectionErrors, 'invalid_record'],
        headers: connectionHeaders,
        body: z.strictObject({ ...datasetInput, records: z.array(z.unknown()).max(maxRecords) }),
        response: {
          200: z.object({
            counts: z.object({ updated: z.number(), unchanged: z.number() }),
            missing: ids,
            deleted: ids,
            pruned: ids,
          }),
        },
      },
    },
    async ({ id, body, headers, caller }) => {
      const { model, variant } = body;
      const update = async () => {
        const { updatedCount, unchangedCount, ...left } = await updateRecords(db, {
          connection: await connections.get(placeOf(caller, headers)),
          model,
          variant,
          parts: checkParts(body.records as JsonValue[], brand.metadataKey),
        });
        return { counts: { updated: updatedCount, unchanged: unchangedCount }, ...left };
      };
      return loggedCall(
        activity,
        {
          ...{ id, caller, headers, body, type: 'records.update' },
          detailsOf: ({ counts, missing, deleted, pruned }) => ({
            ...counts,
            left: missing.length + deleted.length + pruned.length,
          }),
        },
        update,
      );
    },
  );

  app.post(
    '/records/delete',
    {
      config: { access: { by: 'key', scope: 'records:write' } },
      schema: {
        operationId: 'deleteRecords',
        summary: 'Delete records',
        description:
          'Each becomes a tombstone, which followers see, and keeps the payload it had last. Deletes nothing at the ' +
          'provider.',
        errors: [...connectionErrors],
        headers: connectionHeaders,
        body: z.strictObject({ ...datasetInput, ids: recordIdsInput }),
        response: { 200: z.object({ count: z.number(), already_deleted: ids, missing: ids }) },
      },
    },
    async ({ id, body, headers, caller }) => {
      const remove = async () => {
        const connection = (await connections.get(placeOf(caller, headers))).id;
        const { count, alreadyDeleted, missing } = await deleteRecords(db, { connection, ...body });
        return { count, already_deleted: alreadyDeleted, missing };
      };
      const call = { id, caller, headers, body, type: 'records.delete' } as const;
      return loggedCall(activity, { ...call, detailsOf: ({ count }) => ({ count }) }, remove);
    },
  );

  app.post(
    '/records/track-deletes/start',
    {
      config: { access: { by: 'key', scope: 'records:write' } },
      schema: {
        operationId: 'startDeleteTracking',
        summary: 'Begin delete tracking',
        description:
          'Or go on with the tracking that is open: `resumed` says which. Then save all there is, and end it.',
        errors: [...connectionErrors],
        headers: connectionHeaders,
        body: z.strictObject(datasetInput),
        response: { 200: z.object({ resumed: z.boolean() }) },
      },
    },
    async ({ body, headers, caller }) => {
      const connection = (await connections.get(placeOf(caller, headers))).id;
      return { resumed: (await startTracking(db, { connection, ...body })).isResumed };
    },
  );

  app.post(
    '/records/track-deletes/end',
    {
      config: { access: { by: 'key', scope: 'records:write' } },
      schema: {
        operationId: 'endDeleteTracking',
        summary: 'Delete what was not seen since delete tracking began',
        description:
          'Nothing is deleted and the tracking stays open where that is more than the share and the number of records ' +
          'that the dataset allows: 409 `mass_delete_held`. With `override` they are deleted all the same.',
        errors: [...connectionErrors, 'no_delete_tracking', 'mass_delete_held'],
        headers: connectionHeaders,
        body: z.strictObject({ ...datasetInput, override: z.boolean().default(false) }),
        response: { 200: z.object({ count: z.number(), deleted_keys: ids }) },
      },
    },
    async ({ id, body, headers, caller }) => {
      const { model, variant } = body;
      const end = async () => {
        const { count, deletedKeys } = await endTracking(db, {
          connection: (await connections.get(placeOf(caller, headers))).id,
          model,
          variant,
          override: body.override ? 'mass_delete' : 'none',
        });
        return { count, deleted_keys: deletedKeys };
      };
      const call = { id, caller, headers, body, type: 'records.delete' } as const;
      return loggedCall(
        activity,
        { ...call, detailsOf: ({ count }) => ({ count, by: 'delete tracking' }) },
        end,
      );
    },
  );
}
