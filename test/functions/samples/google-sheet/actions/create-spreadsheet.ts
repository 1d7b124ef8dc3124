import { createAction } from 'nango';
import { z } from 'zod';

/** Its input has a shape that JSON Schema does not know in full. */
const Input = z
  .object({ title: z.string().trim().min(1), due: z.date().optional(), kind: z.enum(['plain', 'report']) })
  .refine(
    ({ title, kind }) => kind === 'plain' || title.startsWith('Report'),
    'A report is called Report ...',
  );

export default createAction({
  description: 'Makes a spreadsheet.',
  input: Input,
  output: z.object({ id: z.string(), url: z.url() }),
  exec: async (nango, input) => {
    const given = await nango.zodValidateInput({ zodSchema: Input, input });
    const { data } = await nango.post({
      endpoint: '/v4/spreadsheets',
      data: { properties: { title: given.data.title } },
    });
    return { id: data.spreadsheetId, url: data.spreadsheetUrl };
  },
});
