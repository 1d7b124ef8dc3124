import type { IncomingMessage } from 'node:http';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Activity } from '../activity/writer.ts';
import type { Brand } from '../brand.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import type { Db } from '../db/pool.ts';
import { connectionErrors } from '../http/describe.ts';
import type { App } from '../http/server.ts';
import { maxRecords, requireRecords } from './check.ts';
import { collect } from './collect.ts';
import { connectionHeaders, datasetInput, ignoreFieldsInput, placeOf } from './input.ts';
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
const leastForThread = 64 * 1024;

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
  return bytes.length < leastForThread ? readSaveBody(bytes, metadataKey) : readOnThread(bytes, metadataKey);
}
