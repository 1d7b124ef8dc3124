import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { OperationDetails, OperationType } from '../../activity/operations.ts';
import { type Activity, logged } from '../../activity/writer.ts';
import { AppError } from '../../errors.ts';
import { actorOf } from '../../http/auth/caller.ts';
import { connectionErrors } from '../../http/openapi/describe.ts';
import type { App } from '../../http/server.ts';
import { reserve } from '../../large-buffer.ts';
import type { JsonValue } from '../codec/canonical.ts';
import {
  type CheckedRecords,
  checkParts,
  maxRecords,
  readSaveBody,
  requireValid,
  type SaveBody,
} from '../codec/check.ts';
import { readOnThread } from '../codec/thread.ts';
import { defaultRestore } from '../retention/policy.ts';
import { pruneRecords } from '../retention/prune.ts';
import { removerOf } from '../retention/receipt.ts';
import { deleteRecords } from '../write/delete.ts';
import { saveRecords } from '../write/save.ts';
import { endTracking, startTracking } from '../write/track-deletes.ts';
import { updateRecords } from '../write/update.ts';
import {
  type ConnectionRequest,
  connectionHeaders,
  connectionOf,
  datasetInput,
  ignoreFieldsInput,
  type RecordRouteDeps,
  recordIdsInput,
} from './input.ts';
import { savedCounts, saveToWire, saveWire } from './wire.ts';

/** The maximum size of the body of a save or an update. */
const maxBodyBytes = 32 * 1024 * 1024;

/** A smaller body of a save is read faster without the thread: in less than 1 ms. */
const minForThread = 64 * 1024;

const access = { by: 'key', scope: 'records:write' } as const;
const ids = z.array(z.string());

/** Save, update, delete, delete tracking and prune. All but the start of a tracking are in the activity log. */
export function writeRoutes(app: App, deps: RecordRouteDeps): void {
  const { db, brand, connections, activity } = deps;
  saveRoute(app, deps);

  app.patch(
    '/records',
    {
      config: { access },
      bodyLimit: maxBodyBytes,
      schema: {
        operationId: 'updateRecords',
        summary: 'Update records in part',
        description:
          'Objects are merged at every depth; any other value, also an array, replaces the stored value. Unknown, ' +
          'deleted and pruned records are not changed, and the response lists their ids.',
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
    async (request) => {
      const { model, variant, records } = request.body;
      const update = async () => {
        const { updatedCount, unchangedCount, ...left } = await updateRecords(db, {
          connection: await connectionOf(connections, request),
          model,
          variant,
          parts: checkParts(records as JsonValue[], brand.metadataKey),
        });
        return { counts: { updated: updatedCount, unchanged: unchangedCount }, ...left };
      };
      return loggedWrite(activity, {
        request,
        type: 'records.update',
        write: update,
        detailsOf: ({ counts, missing, deleted, pruned }) => ({
          ...counts,
          left: missing.length + deleted.length + pruned.length,
        }),
      });
    },
  );

  app.post(
    '/records/delete',
    {
      config: { access },
      schema: {
        operationId: 'deleteRecords',
        summary: 'Delete records',
        description:
          'Each record becomes a tombstone, which lists return, and keeps its last payload. Deletes nothing at the ' +
          'provider.',
        errors: [...connectionErrors],
        headers: connectionHeaders,
        body: z.strictObject({ ...datasetInput, ids: recordIdsInput }),
        response: { 200: z.object({ count: z.number(), already_deleted: ids, missing: ids }) },
      },
    },
    async (request) => {
      const remove = async () => {
        const { id: connection } = await connectionOf(connections, request);
        const { count, alreadyDeleted, missing } = await deleteRecords(db, { connection, ...request.body });
        return { count, already_deleted: alreadyDeleted, missing };
      };
      const detailsOf = ({ count }: { count: number }) => ({ count });
      return loggedWrite(activity, { request, type: 'records.delete', write: remove, detailsOf });
    },
  );

  app.post(
    '/records/track-deletes/start',
    {
      config: { access },
      schema: {
        operationId: 'startDeleteTracking',
        summary: 'Begin delete tracking',
        description:
          'Begins a tracking, or resumes the open one (`resumed`). Then save all records, and end the tracking.',
        errors: [...connectionErrors],
        headers: connectionHeaders,
        body: z.strictObject(datasetInput),
        response: { 200: z.object({ resumed: z.boolean() }) },
      },
    },
    async (request) => {
      const { id: connection } = await connectionOf(connections, request);
      return { resumed: (await startTracking(db, { connection, ...request.body })).isResumed };
    },
  );

  app.post(
    '/records/track-deletes/end',
    {
      config: { access },
      schema: {
        operationId: 'endDeleteTracking',
        summary: 'End delete tracking',
        description:
          'Deletes the records that were not saved since delete tracking began. If these are more than the share and ' +
          'more than the number of records that the dataset allows, nothing is deleted and the tracking stays open: 409 ' +
          '`mass_delete_held`. With `override` they are deleted in any case.',
        errors: [...connectionErrors, 'no_delete_tracking', 'mass_delete_held'],
        headers: connectionHeaders,
        body: z.strictObject({ ...datasetInput, override: z.boolean().default(false) }),
        response: { 200: z.object({ count: z.number(), deleted_keys: ids }) },
      },
    },
    async (request) => {
      const { model, variant, override } = request.body;
      const end = async () => {
        const { count, deletedKeys } = await endTracking(db, {
          connection: (await connectionOf(connections, request)).id,
          model,
          variant,
          override: override ? 'mass_delete' : 'none',
        });
        return { count, deleted_keys: deletedKeys };
      };
      const detailsOf = ({ count }: { count: number }) => ({ count, by: 'delete tracking' });
      return loggedWrite(activity, { request, type: 'records.delete', write: end, detailsOf });
    },
  );

  app.patch(
    '/records/prune',
    {
      config: { access },
      schema: {
        operationId: 'pruneRecords',
        summary: 'Prune payloads up to a cursor',
        description:
          'Removes the payloads of records up to and including the cursor, oldest first, and keeps ids, metadata and ' +
          'cursors. While `has_more` is true, send the same call again. A record that is saved again gets its payload back.',
        errors: [...connectionErrors, 'invalid_cursor'],
        headers: connectionHeaders,
        body: z.strictObject({
          ...datasetInput,
          until_cursor: z.string().min(1),
          limit: z.number().int().min(1).max(10_000).default(1000),
        }),
        response: { 200: z.object({ count: z.number().int(), has_more: z.boolean() }) },
      },
    },
    async (request) => {
      const { model, variant, until_cursor: untilCursor, limit } = request.body;
      const prune = async () => {
        const connection = await connectionOf(connections, request);
        const { count, hasMore } = await pruneRecords(db, {
          connection: connection.id,
          model,
          variant,
          untilCursor,
          limit,
          by: removerOf(request.caller, connection),
        });
        return { count, has_more: hasMore };
      };
      const detailsOf = (pruned: { count: number; has_more: boolean }) => pruned;
      return loggedWrite(activity, { request, type: 'records.prune', write: prune, detailsOf });
    },
  );
}

function saveRoute(app: App, { db, brand, connections, activity }: RecordRouteDeps): void {
  // The content type parser is only for this route: on all other routes, a body is parsed as a whole.
  app.register(async (route: App) => {
    /** The checked records of each request, in place of which its body has nulls. */
    const recordsOf = new WeakMap<object, SaveBody['records'] & object>();
    route.removeContentTypeParser('application/json');
    const parse = async (request: FastifyRequest, payload: IncomingMessage) => {
      const { 'content-length': length } = request.headers;
      const contentLength = length === undefined ? undefined : Number(length);
      const bytes = await collectBody(payload, { contentLength, max: maxBodyBytes });
      const read = bytes.length < minForThread ? readSaveBody : readOnThread;
      const { body, records } = await read(bytes, brand.metadataKey);
      if (records !== undefined) recordsOf.set(request, records);
      return body;
    };
    route.addContentTypeParser('application/json', parse);

    route.post(
      '/records',
      {
        config: { access },
        bodyLimit: maxBodyBytes,
        schema: {
          operationId: 'saveRecords',
          summary: 'Save records',
          description:
            'New and deleted records are added, changed records are updated, and equal records are not written. A ' +
            'pruned record that is saved again gets its payload back. If one record is not valid, the call is refused, ' +
            'and the error has its index. `ignore_fields` replaces the ignored fields of the dataset.',
          errors: [...connectionErrors, 'invalid_record'],
          headers: connectionHeaders,
          body: z.strictObject({
            ...datasetInput,
            records: z.array(z.unknown()).max(maxRecords),
            ignore_fields: ignoreFieldsInput.optional(),
            changed_fields: z.boolean().default(false),
            restore: z.enum(['always', 'on_change']).optional(),
          }),
          response: { 200: saveWire },
        },
      },
      async (request) => {
        const { model, variant, restore, ignore_fields: ignoreFields, changed_fields } = request.body;
        const save = async () => {
          const connection = await connectionOf(connections, request);
          return saveRecords(db, {
            connection,
            model,
            variant,
            ignoreFields,
            withChangedFields: changed_fields,
            restore: restore ?? (await defaultRestore(db, connection)),
            records: requireValid<CheckedRecords>(recordsOf.get(request) as SaveBody['records'] & object),
          });
        };
        const log = { request, type: 'records.save', write: save, detailsOf: savedCounts } as const;
        return saveToWire(await loggedWrite(activity, log));
      },
    );
  });
}

/**
 * Runs a call that changes records, and logs it as `logged` does, with the counts that `detailsOf` takes from the
 * result.
 */
async function loggedWrite<T>(
  activity: Activity,
  log: {
    request: ConnectionRequest & { id: string; body: { model: string; variant: string } };
    type: Extract<OperationType, `records.${string}`>;
    write: () => Promise<T>;
    detailsOf: (result: T) => OperationDetails;
  },
): Promise<T> {
  const { id, caller, headers, body } = log.request;
  const { model, variant } = body;
  const operation = {
    type: log.type,
    environmentId: caller.environmentId,
    integration: headers['provider-config-key'].slice(0, 255),
    connection: headers['connection-id'].slice(0, 255),
    actor: actorOf(caller),
    requestId: id,
    details: { model, variant },
    of: (result: T) => ({ details: { model, variant, ...log.detailsOf(result) } }),
  };
  return logged(activity, operation, log.write);
}

/** The share of a body with a Content-Length that must arrive before memory for the whole body is allocated. */
const startShare = 1 / 4;

/**
 * Collects the bytes of a body in a buffer of their own. A body with a Content-Length is copied to its final buffer
 * once a good part of it has arrived, so that a client that only announces a body takes no memory. Throws
 * `body_too_large` beyond `max` bytes, before any byte is read if the Content-Length is larger.
 */
async function collectBody(
  body: Readable,
  { contentLength, max }: { contentLength: number | undefined; max: number },
): Promise<Buffer<ArrayBuffer>> {
  if (contentLength !== undefined && contentLength > max) throw new AppError('body_too_large');
  const startBytes = contentLength === undefined ? Number.POSITIVE_INFINITY : contentLength * startShare;
  let whole: Buffer<ArrayBuffer> | undefined;
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of chunksOf(body)) {
    if (length + chunk.length > max) throw new AppError('body_too_large');
    // A body is never longer than its Content-Length, and a shorter body is an error of the HTTP message.
    if (whole === undefined) chunks.push(chunk);
    else whole.set(chunk, length);
    length += chunk.length;
    if (whole === undefined && contentLength !== undefined && length >= startBytes)
      whole = moveTo(contentLength, chunks);
  }
  return whole ?? moveTo(length, chunks);
}

/** Allocates a buffer of this size and moves the chunks to its beginning. */
function moveTo(bytes: number, chunks: Buffer[]): Buffer<ArrayBuffer> {
  const whole = reserve(bytes);
  for (let at = 0; chunks.length > 0; ) at += chunks.shift()?.copy(whole, at) ?? 0;
  return whole;
}

/** The body stays open if its reader ends early, so that the request can be answered. */
async function* chunksOf(body: Readable): AsyncGenerator<Buffer, void, undefined> {
  try {
    yield* body.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError('invalid_json', 'The body is incomplete.', { cause: error });
  }
}
