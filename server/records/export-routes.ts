import { z } from 'zod';
import type { Brand } from '../brand.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import type { Db } from '../db/pool.ts';
import { connectionErrors } from '../http/describe.ts';
import type { App } from '../http/server.ts';
import { exportRecords } from './export.ts';
import { connectionHeaders, cursorInput, datasetInput } from './input.ts';
import { streamOf } from './stream.ts';

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
