import { z } from 'zod';
import type { Activity } from '../activity/writer.ts';
import type { Brand } from '../brand.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import type { Db } from '../db/pool.ts';
import { connectionErrors } from '../http/describe.ts';
import type { App } from '../http/server.ts';
import { consumerRoutes } from './consumer-routes.ts';
import { datasetRoutes } from './dataset-routes.ts';
import { exportRoutes } from './export-routes.ts';
import {
  actionsInput,
  connectionHeaders,
  cursorInput,
  datasetInput,
  idsInput,
  pageLimitInput,
  placeOf,
  timeInput,
} from './input.ts';
import { loggedCall } from './logged-call.ts';
import { readPage } from './page.ts';
import { pruneRecords } from './prune.ts';
import { removerOf } from './receipt.ts';
import { retentionRoutes } from './retention-routes.ts';
import { saveRoute } from './save-route.ts';
import { streamOf } from './stream.ts';
import { pageToWire, pageWire } from './wire.ts';
import { writeRoutes } from './write-routes.ts';

/**
 * The cache of synced records, per connection, model and variant.
 *
 * Owns: the tables dataset, record, payload, prune and tracked, and what their invariants promise: positions in commit
 * order (`dataset.ts`, `changes.ts`), cursors (`cursor.ts`), pages (`list.ts`), pruning (`prune.ts`), tombstones
 * (`tombstones.ts`, `track-deletes.ts`). Does not own: whose
 * records they are (`connections/`), nor what fetches them.
 */
type Deps = {
  db: Db;
  brand: Brand;
  connections: Pick<ConnectionReader, 'get'>;
  activity: Activity;
  now: () => Date;
};

/** All of them; list and prune are here. */
export function recordRoutes(app: App, { db, brand, connections, activity, now }: Deps): void {
  exportRoutes(app, { db, brand, connections });
  consumerRoutes(app, { db, connections, now });
  retentionRoutes(app, { db });
  saveRoute(app, { db, brand, connections, activity });
  writeRoutes(app, { db, brand, connections, activity });
  datasetRoutes(app, { db, connections });

  app.get(
    '/records',
    {
      config: { access: { by: 'key', scope: 'records:read' } },
      schema: {
        operationId: 'listRecords',
        summary: 'List records by cursor',
        description:
          'In the order of their latest changes. Follow `next_cursor`, or keep the cursor of the last record you saw: ' +
          'no change is ever missed behind it. A reset with `emptyCache` removes records without tombstones: ' +
          'with `unless_emptied=true` a cursor from before that is 410 `cursor_expired`. `changes=true` tells of each record what its last change changed, as far ' +
          'as that is kept.',
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
    async ({ query, headers, caller }, reply) => {
      const { filter: actions, modified_after: modifiedAfter, unless_emptied, changes, ...asked } = query;
      const portions = readPage(db, {
        ...asked,
        actions,
        modifiedAfter,
        unlessEmptied: unless_emptied === 'true',
        withChanges: changes === 'true',
        connection: () => connections.get(placeOf(caller, headers)),
      });
      // JSON already: a stream passes the serializer by.
      const json: unknown = await streamOf(pageToWire(portions, brand));
      return reply.type('application/json; charset=utf-8').send(json as z.input<ReturnType<typeof pageWire>>);
    },
  );

  app.patch(
    '/records/prune',
    {
      config: { access: { by: 'key', scope: 'records:write' } },
      schema: {
        operationId: 'pruneRecords',
        summary: 'Prune payloads up to a cursor',
        description:
          'Empties the payloads of records up to and including the cursor, oldest first, and keeps ids, metadata and ' +
          'cursors. While `has_more` is true, send the same call again. Deletes nothing at the provider; saving a ' +
          'record again brings its payload back.',
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
    async ({ id, body, headers, caller }) => {
      const { model, variant, until_cursor, limit } = body;
      const prune = async () => {
        const connection = await connections.get(placeOf(caller, headers));
        const { count, hasMore } = await pruneRecords(db, {
          connection: connection.id,
          model,
          variant,
          untilCursor: until_cursor,
          limit,
          by: removerOf(caller, connection),
        });
        return { count, has_more: hasMore };
      };
      const call = { id, caller, headers, body, type: 'records.prune' } as const;
      return loggedCall(activity, { ...call, detailsOf: (pruned) => pruned }, prune);
    },
  );
}
