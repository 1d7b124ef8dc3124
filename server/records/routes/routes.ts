/**
 * The cache of synced records, per connection, model and variant.
 *
 * Owns: the tables dataset, record, payload, prune, tracked, consumer, retention and retained, and the promises of
 * their invariants: positions in commit order (`dataset.ts`), cursors (`cursor.ts`), lists (`read/`), changes,
 * tombstones and delete tracking (`write/`), prunes and policies (`retention/`). Does not own: connections, and the
 * functions that fetch records.
 *
 * `codec/` and the files beside the folders import none of the folders below; `read/`, `write/`, `retention/` and
 * `routes/` import only folders named before them.
 */
import { z } from 'zod';
import type { Brand } from '../../brand.ts';
import type { Db } from '../../db/pool.ts';
import { connectionErrors } from '../../http/openapi/describe.ts';
import type { App } from '../../http/server.ts';
import { readAll, readPage } from '../read/page.ts';
import { cursorAfter } from '../read/portion.ts';
import { consumerRoutes } from './consumer-routes.ts';
import { datasetRoutes } from './dataset-routes.ts';
import {
  actionsInput,
  connectionHeaders,
  connectionOf,
  cursorInput,
  datasetInput,
  idsInput,
  pageLimitInput,
  type RecordRouteDeps,
  timeInput,
} from './input.ts';
import { retentionRoutes } from './retention-routes.ts';
import { linesToWire, pageToWire, pageWire, streamOf } from './wire.ts';
import { writeRoutes } from './write-routes.ts';

export function recordRoutes(app: App, deps: RecordRouteDeps): void {
  consumerRoutes(app, deps);
  retentionRoutes(app, deps);
  writeRoutes(app, deps);
  datasetRoutes(app, deps);
  readRoutes(app, deps);
}

const access = { by: 'key', scope: 'records:read' } as const;

/** List and export. */
function readRoutes(app: App, { db, brand, connections }: RecordRouteDeps): void {
  app.get(
    '/records',
    {
      config: { access: { ...access, viewers: 'without exports' } },
      schema: {
        operationId: 'listRecords',
        summary: 'List records by cursor',
        description:
          'In the order of their latest changes. Follow `next_cursor`, or keep the cursor of the last record: all later ' +
          'changes come after it. A reset with `emptyCache` removes records without tombstones: with ' +
          '`unless_emptied=true` a cursor from before that is refused with 410 `cursor_expired`. `changes=true` adds the ' +
          'last change of each record, as far as it is kept.',
        errors: [...connectionErrors, 'invalid_cursor', 'cursor_expired'],
        headers: connectionHeaders,
        querystring: z.strictObject({
          ...datasetInput,
          ...cursorInput,
          limit: pageLimitInput,
          filter: actionsInput.optional(),
          ids: idsInput.optional(),
          modified_after: timeInput.optional(),
          changes: z.enum(['true', 'false']).default('false'),
        }),
        response: { 200: pageWire(brand) },
      },
    },
    async (request, reply) => {
      const {
        filter: actions,
        modified_after: modifiedAfter,
        unless_emptied,
        changes,
        ...query
      } = request.query;
      const portions = readPage(db, {
        ...query,
        actions,
        modifiedAfter,
        unlessEmptied: unless_emptied === 'true',
        withChanges: changes === 'true',
        connection: () => connectionOf(connections, request),
      });
      // The stream is already JSON, so the serializer must not run.
      const json: unknown = await streamOf(pageToWire(portions, brand));
      return reply.type('application/json; charset=utf-8').send(json as z.input<ReturnType<typeof pageWire>>);
    },
  );

  app.get(
    '/records/export',
    {
      config: { access: { ...access, viewers: 'refused' } },
      schema: {
        operationId: 'exportRecords',
        summary: 'Export records as NDJSON',
        description:
          'One record a line, in the order of their latest changes, as in a list. The last line is ' +
          `\`{"${brand.exportKey}": {"count", "next_cursor"}}\`; without it the export is incomplete. With ` +
          '`unless_emptied=true` a cursor from before the dataset was emptied is refused with 410 `cursor_expired`, and ' +
          'an export during which the dataset is emptied is cut off.',
        errors: [...connectionErrors, 'invalid_cursor', 'cursor_expired'],
        headers: connectionHeaders,
        querystring: z.strictObject({ ...datasetInput, ...cursorInput }),
        answers: {
          200: {
            description: 'The records, one on each line.',
            type: 'application/x-ndjson',
            schema: { type: 'string' },
            example: `{"id":"row-1","name":"Ada","${brand.metadataKey}":{}}\n{"${brand.exportKey}":{"count":1,"next_cursor":null}}\n`,
          },
        },
      },
    },
    async (request, reply) => {
      const { model, variant, cursor, unless_emptied } = request.query;
      const lines = exportRecords(db, {
        model,
        variant,
        cursor,
        unlessEmptied: unless_emptied === 'true',
        brand,
        connection: () => connectionOf(connections, request),
      });
      return reply.type('application/x-ndjson').send(await streamOf(lines));
    },
  );
}

/**
 * Writes all records after a cursor as NDJSON. The last line is `{"_<brand>_export": {"count", "next_cursor"}}`, and
 * only a complete export has it. `next_cursor` is where a later export continues; it is null if there was nothing to
 * begin with.
 */
export async function* exportRecords(
  db: Db,
  { brand, ...request }: Parameters<typeof readAll>[1] & { brand: Brand },
): AsyncGenerator<Buffer, void, undefined> {
  let { cursor } = request;
  let count = 0;
  for await (const portion of readAll(db, request)) {
    cursor = cursorAfter(portion) ?? cursor;
    count += portion.records.length;
    const lines = linesToWire(portion, brand);
    // If the records were referenced here while the lines are sent, they would not be collected as young garbage.
    portion.records.length = 0;
    if (lines.length > 0) yield lines;
  }
  const end = { [brand.exportKey]: { count, next_cursor: cursor ?? null } };
  yield Buffer.from(`${JSON.stringify(end)}\n`);
}
