import { z } from 'zod';
import { count, eventType, exampleDataset, ofDataset, time } from './event-type.ts';

const { model: _model, ...ofSync } = {
  ...ofDataset,
  function: z.string().describe('The name of the sync'),
};
const run = z.uuid().describe('As in `GET /functions/runs/{id}`');
const syncType = z
  .enum(['INITIAL', 'INCREMENTAL', 'WEBHOOK'])
  .describe('Its first success, a later one, or by a webhook of the provider');
const error = z.strictObject({ code: z.string(), message: z.string() });

const { model: _exampleModel, ...exampleSync } = { ...exampleDataset, function: 'rows' };
const exampleRun = '0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b';
const ended = {
  ...ofDataset,
  function: ofSync.function,
  run,
  sync_type: syncType,
  started_at: time,
};
const exampleEnded = {
  ...exampleDataset,
  function: 'rows',
  run: exampleRun,
  sync_type: 'INCREMENTAL' as const,
  started_at: '2026-11-21T10:15:00.000Z',
};

/** What becomes of the runs of syncs. */
export const syncTypes = {
  'sync.changed': eventType({
    meaning:
      'A run of a sync has ended well and changed records of a model; told for each model, once for the run.',
    data: z.strictObject({ ...ended, added: count, updated: count, deleted: count }),
    example: { ...exampleEnded, added: 12, updated: 3, deleted: 0 },
  }),
  'sync.unchanged': eventType({
    meaning:
      'A run of a sync has ended well and changed no record of a model; told for each model, once for the run.',
    data: z.strictObject(ended),
    example: exampleEnded,
  }),
  'sync.failed': eventType({
    meaning: 'A run of a sync has failed and is not tried again; the next one starts at its time.',
    data: z.strictObject({
      ...ofSync,
      run,
      sync_type: syncType,
      error,
      failures: count.describe('In a row'),
      started_at: time,
      failed_at: time,
    }),
    example: {
      ...exampleSync,
      run: exampleRun,
      sync_type: 'INCREMENTAL',
      error: { code: 'function_threw', message: 'Request failed with status code 500' },
      failures: 1,
      started_at: '2026-11-21T10:15:00.000Z',
      failed_at: '2026-11-21T10:15:02.512Z',
    },
  }),
  'sync.schema_changed': eventType({
    meaning:
      'The fields that a provider has for a model are others than at the last run of its sync; told before records are ' +
      'changed by it.',
    data: z.strictObject({
      ...ofDataset,
      function: ofSync.function,
      changes: z
        .array(
          z.strictObject({
            change: z.enum(['added', 'removed', 'renamed', 'moved']),
            field: z.string(),
            previous: z.string().optional(),
          }),
        )
        .describe('By field; `previous` is what a field that was renamed was called'),
    }),
    example: {
      ...exampleDataset,
      function: 'rows',
      changes: [{ change: 'renamed', field: 'Total', previous: 'Amount' }],
    },
  }),
  'sync.held': eventType({
    meaning:
      'The runs of a sync do not start any more, for a reason of its connection; told once, until one starts again.',
    data: z.strictObject({ ...ofSync, error, since: time }),
    example: {
      ...exampleSync,
      error: {
        code: 'missing_scopes',
        message: 'The connection lacks scopes that the function needs: a scope.',
      },
      since: '2026-11-21T10:15:00.000Z',
    },
  }),
};
