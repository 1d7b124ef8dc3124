import { createSync } from 'nango';
import { z } from 'zod';
import { fingerprint, readRows } from '../helpers/values.js';

const ChangedRow = z.object({
  id: z.string(),
  fingerprint: z.string(),
  cells: z.record(z.string(), z.string()),
});

export default createSync({
  description: 'Rows in portions, each behind a checkpoint, so that a run can go on where another ended.',
  frequency: 'every hour',
  autoStart: false,
  models: { ChangedRow },
  metadata: z.object({ spreadsheetId: z.string() }),
  checkpoint: z.object({ done: z.number() }),
  webhookSubscriptions: ['drive.changed'],
  exec: async (nango) => {
    const { spreadsheetId } = await nango.getMetadata();
    const rows = await readRows(nango, { spreadsheetId, range: 'A1:Z1000' });
    const checkpoint = await nango.getCheckpoint();
    for (let from = checkpoint?.done ?? 0; from < rows.length; from += 50) {
      const portion = rows.slice(from, from + 50);
      await nango.batchSave(
        portion.map((cells, at) => ({ id: String(from + at + 2), fingerprint: fingerprint(cells), cells })),
        'ChangedRow',
      );
      await nango.saveCheckpoint({ done: from + portion.length });
    }
    await nango.clearCheckpoint();
  },
  onWebhook: async (nango, payload) => {
    await nango.log('Something changed', payload);
  },
});
