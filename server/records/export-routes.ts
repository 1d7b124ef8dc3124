import { z } from 'zod';
import type { Brand } from '../brand.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import type { Db } from '../db/pool.ts';
import { connectionErrors } from '../http/describe.ts';
import type { App } from '../http/server.ts';
import { readAhead } from './ahead.ts';
import { connectionHeaders, cursorInput, datasetInput } from './input.ts';
import { createScratchBuffer, listRecords, type Portion } from './list.ts';
import { cursorAfter, portionBytes, portionRecords } from './page.ts';
import type { RecordOwner } from './save.ts';
import { streamOf } from './stream.ts';
import { linesToWire } from './wire.ts';

/** A whole dataset as a stream. */
export function exportRoutes(
  app: App,
  { db, brand, connections }: { db: Db; brand: Brand; connections: Pick<ConnectionReader, 'get'> },
): void {
  app.get(
    '/records/export',
    {
      config: { access: { by: 'key', scope: 'records:read', viewers: 'refused' } },
      schema: {
        operationId: 'exportRecords',
        summary: 'Export records as NDJSON',
        description:
          'One record a line, in the order of their latest changes, as in a list. The last line is ' +
          `\`{"${brand.exportKey}": {"count", "next_cursor"}}\`; without it the export was cut off. With ` +
          '`unless_emptied=true` a cursor from before the dataset was emptied is 410 `cursor_expired`, and an export ' +
          'that is under way then is cut off.',
        errors: [...connectionErrors, 'invalid_cursor', 'cursor_expired'],
        headers: connectionHeaders,
        querystring: z.strictObject({ ...datasetInput, ...cursorInput }),
        answers: {
          200: {
            description: 'The records, a line each.',
            type: 'application/x-ndjson',
            schema: { type: 'string' },
            example: `{"id":"row-1","name":"Ada","${brand.metadataKey}":{}}\n{"${brand.exportKey}":{"count":1,"next_cursor":null}}\n`,
          },
        },
      },
    },
    async ({ query, headers, caller }, reply) => {
      const lines = exportRecords(db, {
        connection: () =>
          connections.get({
            environmentId: caller.environmentId,
            integrationKey: headers['provider-config-key'],
            connectionId: headers['connection-id'],
          }),
        model: query.model,
        variant: query.variant,
        cursor: query.cursor,
        unlessEmptied: query.unless_emptied === 'true',
        brand,
      });
      return reply.type('application/x-ndjson').send(await streamOf(lines));
    },
  );
}

type ExportRequest = {
  /** Asked before each portion, so that a long export ends with its connection. */
  connection: () => Promise<RecordOwner>;
  model: string;
  variant: string;
  /** Records after this position; from the first one where absent. */
  cursor?: string | undefined;
  /** As of a list; of the cursors within the export too. */
  unlessEmptied?: boolean | undefined;
};

/**
 * All records after a cursor as NDJSON, in the order of their latest changes: in portions, one of which is read while
 * the one before it is on its way, each as of its own moment, so that a record which changes meanwhile may come twice, the later state last.
 *
 * The last line is `{"_<brand>_export": {"count", "next_cursor"}}`, and only a whole export has it: `next_cursor` is
 * where to go on from later, null where there was nothing to begin with. Throws what `listRecords` throws, at the
 * portion where it happens.
 */
export async function* exportRecords(
  db: Db,
  request: ExportRequest & { brand: Brand },
): AsyncGenerator<Buffer, void, undefined> {
  let cursor = request.cursor;
  let count = 0;
  for await (const portion of readAhead(readAll(db, request))) {
    cursor = cursorAfter(portion) ?? cursor;
    count += portion.records.length;
    const lines = linesToWire(portion, request.brand);
    // Held here while the lines go out, they would not be collected with what is young.
    portion.records.length = 0;
    if (lines.length > 0) yield lines;
  }
  const end = { [request.brand.exportKey]: { count, next_cursor: cursor ?? null } };
  yield Buffer.from(`${JSON.stringify(end)}\n`);
}

async function* readAll(db: Db, request: ExportRequest): AsyncGenerator<Portion, void, undefined> {
  const { model, variant, unlessEmptied } = request;
  // One is being written to the reader while the other is filled.
  const scratch = [createScratchBuffer(), createScratchBuffer()] as const;
  let cursor = request.cursor;
  let hasMore = true;
  for (let turn: 0 | 1 = 0; hasMore; turn = turn === 0 ? 1 : 0) {
    const portion = await listRecords(db, {
      ...{ connection: await request.connection(), model, variant, cursor, unlessEmptied },
      ...{ limit: portionRecords, maxBytes: portionBytes, scratch: scratch[turn] },
    });
    cursor = cursorAfter(portion) ?? cursor;
    hasMore = portion.hasMore;
    yield portion;
  }
}
