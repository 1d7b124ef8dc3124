import { z } from 'zod';
import { type Db, first } from '../../db/pool.ts';
import { connectionErrors } from '../../http/openapi/describe.ts';
import { nameSchemas } from '../../http/openapi/schema-names.ts';
import type { App } from '../../http/server.ts';
import { readCursor } from '../cursor.ts';
import { type DatasetName, readDataset } from '../dataset.ts';
import {
  type DatasetOfConnection,
  type DatasetView,
  listDatasets,
  listDatasetsOf,
  setDatasetSettings,
} from '../datasets.ts';
import { removerOf } from '../retention/receipt.ts';
import { rowBytes } from '../rows.ts';
import {
  connectionHeaders,
  connectionOf,
  datasetInput,
  ignoreFieldsInput,
  type RecordRouteDeps,
} from './input.ts';
import { isoTime } from './wire.ts';

const datasetWire = z.object({
  model: z.string(),
  variant: z.string(),
  records: z.number(),
  deleted: z.number(),
  pruned: z.number(),
  payload_bytes: z.number(),
  first_cursor: z.string().nullable(),
  last_cursor: z.string().nullable(),
  last_modified_at: z.string().nullable(),
  ignore_fields: z.array(z.string()),
  keep_previous: z.boolean(),
  mass_delete: z.object({ share: z.number(), number: z.number() }),
  delete_tracking: z.enum(['open', 'held']).nullable(),
});
nameSchemas({ Dataset: datasetWire });

const datasetOfConnectionWire = datasetWire
  .pick({
    model: true,
    variant: true,
    records: true,
    pruned: true,
    payload_bytes: true,
    last_modified_at: true,
    delete_tracking: true,
  })
  .extend({
    connection: z.number(),
    consumers: z.array(z.object({ name: z.string(), behind: z.number() })),
  });

/** Connections of one page of the list of connections. */
const maxConnections = 50;

/** The datasets of a connection, their settings, and the estimate of a prune. */
export function datasetRoutes(app: App, { db, connections }: RecordRouteDeps): void {
  app.get(
    '/records/datasets',
    {
      config: { access: { by: 'key', scope: 'records:read' } },
      schema: {
        operationId: 'listDatasets',
        list: { items: 'datasets', by: 'whole' },
        summary: 'Datasets of a connection',
        description:
          'The numbers of records, tombstones and pruned records, the bytes, and the settings of each dataset.',
        errors: [...connectionErrors],
        headers: connectionHeaders,
        response: { 200: z.object({ datasets: z.array(datasetWire) }) },
      },
    },
    async (request) => {
      const { id } = await connectionOf(connections, request);
      return { datasets: (await listDatasets(db, id)).map(toWire) };
    },
  );

  app.get(
    '/records/datasets/of-connections',
    {
      config: { access: { by: 'key', scope: 'records:read' } },
      schema: {
        operationId: 'listDatasetsOfConnections',
        list: { items: 'datasets', by: 'whole' },
        summary: 'Datasets of several connections',
        description:
          'With the consumers of each, and how many records each is `behind`. Unknown connections are left out.',
        querystring: z.strictObject({
          connection_ids: z
            .string()
            .regex(/^\d{1,15}(,\d{1,15})*$/, 'must be IDs of connections, with commas')
            .transform((ids) => ids.split(',').map(Number))
            .pipe(z.array(z.number()).max(maxConnections)),
        }),
        response: { 200: z.object({ datasets: z.array(datasetOfConnectionWire) }) },
      },
    },
    async ({ caller: { environmentId }, query }) => {
      const datasets = await listDatasetsOf(db, { environmentId, connections: query.connection_ids });
      return {
        datasets: datasets.map(({ connection, consumers, ...dataset }) => ({
          connection,
          ...countsToWire(dataset),
          consumers,
        })),
      };
    },
  );

  app.patch(
    '/records/datasets',
    {
      config: { access: { by: 'key', scope: 'records:write' } },
      schema: {
        operationId: 'changeDataset',
        summary: 'Change the settings of a dataset',
        description:
          'Absent settings stay as they are. `ignore_fields`: fields at the top level of a record that the comparison ' +
          'of a save ignores. `keep_previous`: a change keeps the payload before it, so that `changes=true` of a list ' +
          'has the former values. `mass_delete`: delete tracking that would delete more than this share of the records ' +
          'and more than this number is held.',
        errors: [...connectionErrors],
        headers: connectionHeaders,
        example: { body: { model: 'Row', ignore_fields: ['fetched_at'] } },
        body: z.strictObject({
          ...datasetInput,
          ignore_fields: ignoreFieldsInput.optional(),
          keep_previous: z.boolean().optional(),
          mass_delete: z
            .strictObject({
              share: z.number().min(0).max(1).optional(),
              number: z.number().int().min(0).optional(),
            })
            .optional(),
        }),
        response: { 200: datasetWire },
      },
    },
    async (request) => {
      const connection = await connectionOf(connections, request);
      const { model, variant, ignore_fields, keep_previous, mass_delete } = request.body;
      const dataset = await setDatasetSettings(
        db,
        { connection: connection.id, model, variant },
        {
          by: removerOf(request.caller, connection),
          ignoreFields: ignore_fields,
          keepPrevious: keep_previous,
          massDeleteShare: mass_delete?.share,
          massDeleteNumber: mass_delete?.number,
        },
      );
      return toWire(dataset);
    },
  );

  app.post(
    '/records/prune/estimate',
    {
      config: { access: { by: 'key', scope: 'records:read', viewers: 'served' } },
      schema: {
        operationId: 'estimatePrune',
        summary: 'Estimate a prune',
        description:
          'The number of payloads up to and including the cursor, and the sealed bytes of their rows with former payloads.',
        errors: [...connectionErrors, 'invalid_cursor'],
        headers: connectionHeaders,
        body: z.strictObject({ ...datasetInput, until_cursor: z.string().min(1) }),
        response: { 200: z.object({ count: z.number(), bytes: z.number() }) },
      },
    },
    async (request) => {
      const { id: connection } = await connectionOf(connections, request);
      const { model, variant, until_cursor } = request.body;
      return estimatePrune(db, { connection, model, variant, untilCursor: until_cursor });
    },
  );
}

function toWire(dataset: DatasetView): z.input<typeof datasetWire> {
  return {
    ...countsToWire(dataset),
    deleted: dataset.deleted,
    first_cursor: dataset.firstCursor ?? null,
    last_cursor: dataset.lastCursor ?? null,
    ignore_fields: dataset.ignoreFields,
    keep_previous: dataset.keepPrevious,
    mass_delete: { share: dataset.massDeleteShare, number: dataset.massDeleteNumber },
  };
}

function countsToWire(dataset: Omit<DatasetOfConnection, 'connection' | 'consumers'>) {
  const { lastModifiedAt, isTracking, heldAt } = dataset;
  return {
    model: dataset.model,
    variant: dataset.variant,
    records: dataset.records,
    pruned: dataset.pruned,
    payload_bytes: dataset.payloadBytes,
    last_modified_at: lastModifiedAt === null ? null : isoTime(lastModifiedAt),
    delete_tracking: heldAt !== null ? ('held' as const) : isTracking ? ('open' as const) : null,
  };
}

type PruneEstimate = {
  /** The number of payloads up to the cursor. */
  count: number;
  /** The sealed bytes of their rows, with what is kept of the former payloads. */
  bytes: number;
};

/**
 * Returns what prunes up to the cursor would remove now. The numbers are exact, and nothing changes. Throws
 * `invalid_cursor` as a prune does.
 *
 * Counts the payloads on the shorter side of the cursor; the dataset's counters give those on the other side.
 */
export function estimatePrune(
  db: Db,
  request: DatasetName & { untilCursor: string },
): Promise<PruneEstimate> {
  return readDataset(db, request, async (tx, dataset) => {
    const until = readCursor(request.untilCursor, dataset);
    if (dataset === undefined || until <= dataset.pruneFloor) return { count: 0, bytes: 0 };
    const { id, pruneFloor, lastSeq } = dataset;
    const isNearEnd = lastSeq - until < until - pruneFloor;
    const [after, upTo] = isNearEnd ? [until, lastSeq] : [pruneFloor, until];
    const rows = await tx.query<PruneEstimate>(
      `select count(*) as count, coalesce(sum(${rowBytes}), 0)::bigint as bytes
       from payload
       where dataset_id = $1 and seq > $2 and seq <= $3`,
      [id, after, upTo],
    );
    const counted = first(rows) ?? { count: 0, bytes: 0 };
    if (!isNearEnd) return counted;
    const standing = dataset.records + dataset.deleted - dataset.pruned;
    return { count: standing - counted.count, bytes: dataset.payloadBytes - counted.bytes };
  });
}
