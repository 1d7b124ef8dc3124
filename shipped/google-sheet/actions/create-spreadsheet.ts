import { createAction } from 'trellis';
import { z } from 'zod';
import { rightsOf, spreadsheets } from '../sheet/api.ts';
import { fault, sourceFault, withActionErrors } from '../sheet/faults.ts';
import { isOutcomeUnknown } from '../sheet/write.ts';

const Output = z.object({
  spreadsheetId: z.string(),
  url: z.string(),
  tabs: z.array(z.object({ sheetId: z.int(), title: z.string() })),
});

export default createAction({
  description: 'Creates a spreadsheet with tabs and header rows.',
  version: '1.0.0',
  input: z.object({
    title: z.string().min(1).max(255),
    tabs: z
      .array(
        z.object({ title: z.string().min(1).max(100), header: z.array(z.string()).max(1_000).default([]) }),
      )
      .max(200)
      .default([]),
  }),
  output: Output,
  once: true,
  exec: (trellis, { title, tabs }) =>
    withActionErrors(trellis, async () => {
      const { account } = await rightsOf(trellis);
      const sheets = tabs.map((tab) => ({
        properties: { title: tab.title },
        ...(tab.header.length > 0 && { data: [{ rowData: [{ values: tab.header.map(textCell) }] }] }),
      }));
      const { data } = await trellis
        .post<{
          spreadsheetId: string;
          spreadsheetUrl: string;
          sheets: { properties: { sheetId?: number; title: string } }[];
        }>({
          endpoint: spreadsheets,
          params: { fields: 'spreadsheetId,spreadsheetUrl,sheets(properties(sheetId,title))' },
          data: { properties: { title }, ...(sheets.length > 0 && { sheets }) },
        })
        .catch((error: unknown) => {
          if (!isOutcomeUnknown(error)) throw sourceFault(error, account);
          throw fault(
            'outcome_unknown',
            'Google returned no response: the spreadsheet may have been created. Check Drive before you try again.',
            { tried: 'create', arrived: 'unknown' },
          );
        });
      return {
        spreadsheetId: data.spreadsheetId,
        url: data.spreadsheetUrl,
        tabs: data.sheets.map(({ properties }) => ({
          sheetId: properties.sheetId ?? 0,
          title: properties.title,
        })),
      };
    }),
});

function textCell(text: string): object {
  return text === '' ? {} : { userEnteredValue: { stringValue: text } };
}
