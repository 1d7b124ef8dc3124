import { createSync } from 'nango';
import { z } from 'zod';
import { readRows } from '../helpers/values.js';

const Row = z.object({ id: z.string(), cells: z.record(z.string(), z.string()) });
const Place = z.object({ spreadsheetId: z.string(), range: z.string().default('A1:Z1000') });

const sync = createSync({
  description: 'Every row of a range, by its number; rows that are gone are deleted.',
  version: '1.2.0',
  frequency: 'every 5 minutes',
  autoStart: true,
  models: { Row },
  metadata: Place,
  endpoints: [{ method: 'GET', path: '/rows' }],
  exec: async (nango) => {
    const { spreadsheetId, range } = Place.parse(await nango.getMetadata());
    await nango.trackDeletesStart('Row');
    const rows = await readRows(nango, { spreadsheetId, range });
    await nango.log(`Read ${rows.length} rows`);
    await nango.batchSave(
      rows.map((cells, at) => ({ id: String(at + 2), cells })),
      'Row',
    );
    await nango.trackDeletesEnd('Row');
  },
});

export type NangoSyncLocal = Parameters<(typeof sync)['exec']>[0];
export default sync;
