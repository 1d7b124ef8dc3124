import { z } from 'zod';
import { count, eventType, exampleDataset, ofDataset, time } from './event-type.ts';

/** What happens to synced records and to those who follow them, beside the changes that the cursor tells of. */
export const recordTypes = {
  'consumer.stale': eventType({
    meaning:
      'A consumer has been silent for 30 days and changes wait for it; told once, until it acknowledges again.',
    data: z.strictObject({
      ...ofDataset,
      consumer: z.string().describe('Its name'),
      cursor: z.string().nullable().describe('Null: it has taken nothing yet'),
      acknowledged_at: time,
    }),
    example: {
      ...exampleDataset,
      consumer: 'warehouse',
      cursor: 'AQAAAAAAAAAHAAAAAAAAADCM0X9T',
      acknowledged_at: '2026-10-21T08:00:00.000Z',
    },
  }),
  'records.retention_done': eventType({
    meaning: 'A run of retention has let something go in the environment.',
    data: z.strictObject({
      datasets: count,
      pruned: count.describe('Payloads; these counts are of all since the event before'),
      bytes: count,
      tombstones_removed: count,
    }),
    example: { datasets: 2, pruned: 1840, bytes: 906_512, tombstones_removed: 12 },
  }),
  'records.mass_delete_held': eventType({
    meaning:
      'The end of delete tracking would delete so much that it was held back; told once, until the tracking is closed.',
    data: z.strictObject({ ...ofDataset, would_delete: count, live: count }),
    example: { ...exampleDataset, would_delete: 980, live: 1000 },
  }),
  'records.dataset_emptied': eventType({
    meaning:
      'All records of a dataset were removed without tombstones. Its cursors stay valid, so a client that follows a cursor and ' +
      'holds a copy drops the copy and reads from the beginning.',
    data: z.strictObject({
      ...ofDataset,
      records: count.describe('Live ones that there were'),
      deleted: count.describe('Tombstones that there were'),
    }),
    example: { ...exampleDataset, records: 1000, deleted: 3 },
  }),
};
