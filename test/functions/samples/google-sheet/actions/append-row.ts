import { createAction } from 'nango';
import { z } from 'zod';

const Input = z.object({
  spreadsheetId: z.string().min(1),
  range: z.string().optional(),
  values: z.array(z.union([z.string(), z.number(), z.boolean(), z.null()])).min(1),
});
const Output = z.object({ range: z.string(), rows: z.number() });

export default createAction({
  description: 'Appends a row below a table.',
  version: '2.0.0',
  endpoint: { method: 'POST', path: '/rows' },
  input: Input,
  output: Output,
  scopes: ['https://www.googleapis.com/auth/spreadsheets'],
  exec: async (nango, input): Promise<z.infer<typeof Output>> => {
    const { data } = await nango.post({
      endpoint: `/v4/spreadsheets/${input.spreadsheetId}/values/${input.range ?? 'A1'}:append`,
      params: { valueInputOption: 'RAW' },
      data: { values: [input.values] },
      retries: 0,
    });
    if (!data.updates) {
      throw new nango.ActionError({ type: 'nothing_appended', message: 'The provider appended nothing.' });
    }
    return { range: data.updates.updatedRange, rows: data.updates.updatedRows };
  },
});
