import { createAction } from 'trellis';
import { z } from 'zod';

export default createAction({
  description: 'The values of a range.',
  readOnly: true,
  input: z.object({ spreadsheetId: z.string(), range: z.string() }),
  output: z.object({ values: z.array(z.array(z.string())) }),
  exec: async (trellis, { spreadsheetId, range }) => {
    const { data } = await trellis.get<{ values?: string[][] }>({
      endpoint: `/v4/spreadsheets/${spreadsheetId}/values/${encodeURIComponent(range)}`,
    });
    return { values: data.values ?? [] };
  },
});
