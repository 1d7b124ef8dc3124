import { createSync, ProxyConfiguration } from 'nango';
import * as z from 'zod';

const Tab = z.object({ id: z.string(), title: z.string(), rows: z.number().optional() });

const sync = createSync({
  description: 'The sheets of a spreadsheet.',
  version: '0.3.1',
  frequency: 'every half hour',
  syncType: 'full',
  trackDeletes: true,
  models: { Tab },
  scopes: ['https://www.googleapis.com/auth/spreadsheets.readonly'],
  exec: async (nango) => {
    const metadata = await nango.getMetadata<{ spreadsheetId: string }>();
    const config: ProxyConfiguration = {
      endpoint: `/v4/spreadsheets/${metadata.spreadsheetId}`,
      params: { fields: 'sheets.properties' },
    };
    const { data } = await nango.get(config);
    for (const { properties } of data.sheets) {
      await nango.batchSave(
        [
          {
            id: String(properties.sheetId),
            title: properties.title,
            rows: properties.gridProperties?.rowCount,
          },
        ],
        'Tab',
      );
    }
  },
});

export default sync;
