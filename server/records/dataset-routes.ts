import { z } from 'zod';
import type { ConnectionReader } from '../connections/reader.ts';
import { type Db, first } from '../db/pool.ts';
import { connectionErrors } from '../http/describe.ts';
import type { App } from '../http/server.ts';
import { readCursor } from './cursor.ts';
import { type DatasetName, findDatasetForReading } from './dataset.ts';
import { type DatasetView, listDatasets } from './datasets.ts';
import { connectionHeaders, datasetInput, ignoreFieldsInput, placeOf } from './input.ts';
import { rowBytes } from './payloads.ts';
import { removerOf } from './receipt.ts';
import { setDatasetSettings } from './settings.ts';
import { spellTime } from './wire.ts';

type Deps = { db: Db; connections: Pick<ConnectionReader, 'get'> };

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

/** What a connection's datasets hold, how they are compared and guarded, and what a prune would remove. */
export function datasetRoutes(app: App, { db, connections }: Deps): void {
  app.get(
    '/records/datasets',
    {
      config: { access: { by: 'key', scope: 'records:read' } },
      schema: {
        operationId: 'listDatasets',
        summary: 'Datasets of a connection',
        description: 'What each holds and how it is set: records, tombstones, pruned ones, bytes.',
        errors: [...connectionErrors],
        headers: connectionHeaders,
        response: { 200: z.object({ datasets: z.array(datasetWire) }) },
      },
    },
    async ({ headers, caller }) => {
      const { id } = await connections.get(placeOf(caller, headers));
      return { datasets: (await listDatasets(db, id)).map(toWire) };
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
          'What is absent stays as it is. `ignore_fields`: fields at the top level of a record that do not make it a ' +
          'changed one. `keep_previous`: a change keeps the payload that stood before it, and so `changes=true` of a list ' +
          'can tell former values. `mass_delete`: delete tracking that would delete more than this share of the records and more ' +
          'than this number is held.',
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
    async ({ body, headers, caller }) => {
      const connection = await connections.get(placeOf(caller, headers));
      const { model, variant, ignore_fields, keep_previous, mass_delete } = body;
      const dataset = await setDatasetSettings(
        db,
        { connection: connection.id, model, variant },
        {
          by: removerOf(caller, connection),
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
        summary: 'Tell what a prune would remove',
        description:
          'Payloads up to and including the cursor, and the sealed bytes of their rows: theirs, and those of what is ' +
          'kept of the ones before. Changes nothing.',
        errors: [...connectionErrors, 'invalid_cursor'],
        headers: connectionHeaders,
        body: z.strictObject({ ...datasetInput, until_cursor: z.string().min(1) }),
        response: { 200: z.object({ count: z.number(), bytes: z.number() }) },
      },
    },
    async ({ body, headers, caller }) => {
      const connection = (await connections.get(placeOf(caller, headers))).id;
      const { model, variant, until_cursor } = body;
      return estimatePrune(db, { connection, model, variant, untilCursor: until_cursor });
    },
  );
}

function toWire(dataset: DatasetView): z.input<typeof datasetWire> {
  const { lastModifiedAt, isTracking, heldAt } = dataset;
  return {
    model: dataset.model,
    variant: dataset.variant,
    records: dataset.records,
    deleted: dataset.deleted,
    pruned: dataset.pruned,
    payload_bytes: dataset.payloadBytes,
    first_cursor: dataset.firstCursor ?? null,
    last_cursor: dataset.lastCursor ?? null,
    last_modified_at: lastModifiedAt === null ? null : spellTime(lastModifiedAt),
    ignore_fields: dataset.ignoreFields,
    keep_previous: dataset.keepPrevious,
    mass_delete: { share: dataset.massDeleteShare, number: dataset.massDeleteNumber },
    delete_tracking: heldAt !== null ? 'held' : isTracking ? 'open' : null,
  };
}

type PruneEstimate = {
  /** Payloads that stand up to the cursor. */
  count: number;
  /** The sealed bytes of their rows: theirs, and those of what is kept of the ones before. */
  bytes: number;
};

/**
 * What a prune up to the cursor would remove, were it made at this moment to its end. Exact; changes nothing. Throws
 * `invalid_cursor` as a prune does.
 *
 * Counts the payloads on the shorter side of the cursor; the dataset's counters give those on the other.
 */
export function estimatePrune(
  db: Db,
  request: DatasetName & { untilCursor: string },
): Promise<PruneEstimate> {
  return db.transaction(async (tx) => {
    const dataset = await findDatasetForReading(tx, request);
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
  }, 'snapshot');
}
