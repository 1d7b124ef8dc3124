import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Activity } from '../activity/writer.ts';
import type { Brand } from '../brand.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { connectionErrors } from '../http/describe.ts';
import type { App } from '../http/server.ts';
import { maxRecords, requireRecords } from './check.ts';
import { connectionHeaders, datasetInput, ignoreFieldsInput, placeOf } from './input.ts';
import { reserve } from './large.ts';
import { loggedCall } from './logged-call.ts';
import { defaultRestore } from './policy.ts';
import { saveRecords } from './save.ts';
import { readSaveBody, type SaveBody } from './save-body.ts';
import { readOnThread } from './save-queue.ts';
import { savedCounts, saveToWire, saveWire } from './wire.ts';

type Deps = { db: Db; brand: Brand; connections: Pick<ConnectionReader, 'get'>; activity: Activity };

/** Bytes a save may carry. */
const maxSaveBytes = 32 * 1024 * 1024;

/** Smaller bodies are read sooner here than on the thread: in less than 1 ms. */
const minForThread = 64 * 1024;

export function saveRoute(app: App, { db, brand, connections, activity }: Deps): void {
  // Of one route alone: elsewhere a body is parsed as a whole.
  app.register(async (route: App) => {
    /** What stands behind the nulls in the body of a request that fits. */
    const sent = new WeakMap<object, SaveBody['records'] & object>();
    route.removeContentTypeParser('application/json');
    const parse = async (request: FastifyRequest, payload: IncomingMessage) => {
      const { 'content-length': length } = request.headers;
      const told = length === undefined ? undefined : Number(length);
      const bytes = await collect(payload, { told, max: maxSaveBytes });
      const { body, records } = await readBody(bytes, brand.metadataKey);
      if (records !== undefined) sent.set(request, records);
      return body;
    };
    route.addContentTypeParser('application/json', parse);

    route.post(
      '/records',
      {
        config: { access: { by: 'key', scope: 'records:write' } },
        bodyLimit: maxSaveBytes,
        schema: {
          operationId: 'saveRecords',
          summary: 'Save records',
          description:
            'New and deleted records are added, changed ones updated, equal ones left alone; a pruned record that is ' +
            'saved again gets its payload back. One bad record refuses the call and is named by its index. ' +
            '`ignore_fields` stands in place of the ones of the dataset.',
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
        const { body, headers, caller } = request;
        const { model, variant } = body;
        const save = async () => {
          const connection = await connections.get(placeOf(caller, headers));
          return saveRecords(db, {
            connection,
            model,
            variant,
            restore: body.restore ?? (await defaultRestore(db, connection)),
            records: requireRecords(sent.get(request) as SaveBody['records'] & object),
            ignoreFields: body.ignore_fields,
            withChangedFields: body.changed_fields,
          });
        };
        const call = { id: request.id, caller, headers, body, type: 'records.save' } as const;
        return saveToWire(await loggedCall(activity, { ...call, detailsOf: savedCounts }, save));
      },
    );
  });
}

/** As `readSaveBody`, which a large body is given to on a thread. */
async function readBody(bytes: Buffer<ArrayBuffer>, metadataKey: string): Promise<SaveBody> {
  return bytes.length < minForThread ? readSaveBody(bytes, metadataKey) : readOnThread(bytes, metadataKey);
}

/** Share of a body with a Content-Length that must arrive before memory for the whole body is allocated. */
const begunShare = 1 / 4;

/**
 * The bytes of a request's body, in a buffer of their own; `told` is its Content-Length. A body with a Content-Length is
 * copied to its final buffer once a good part of it has arrived: a client that only announces a body takes no memory. Throws
 * `body_too_large` beyond `max` bytes, before any byte is read if the Content-Length is larger.
 */
async function collect(
  body: Readable,
  { told, max }: { told: number | undefined; max: number },
): Promise<Buffer<ArrayBuffer>> {
  if (told !== undefined && told > max) throw new AppError('body_too_large');
  const begunBytes = told === undefined ? Number.POSITIVE_INFINITY : told * begunShare;
  let whole: Buffer<ArrayBuffer> | undefined;
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of arriving(body)) {
    if (length + chunk.length > max) throw new AppError('body_too_large');
    // HTTP lets no body be longer than it tells; one that is shorter is a fault of the message.
    if (whole === undefined) chunks.push(chunk);
    else whole.set(chunk, length);
    length += chunk.length;
    if (whole === undefined && told !== undefined && length >= begunBytes) whole = laid(chunks, told);
  }
  return whole ?? laid(chunks, length);
}

/** A buffer of so many bytes with the chunks at its beginning. Removes the chunks from the array as it copies them. */
function laid(chunks: Buffer[], bytes: number): Buffer<ArrayBuffer> {
  const whole = reserve(bytes);
  for (let at = 0; chunks.length > 0; ) at += chunks.shift()?.copy(whole, at) ?? 0;
  return whole;
}

/** The body stays open where its reader ends early, so that its request can be answered. */
async function* arriving(body: Readable): AsyncGenerator<Buffer, void, undefined> {
  try {
    yield* body.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError('invalid_json', 'The body has not arrived whole.', { cause: error });
  }
}
