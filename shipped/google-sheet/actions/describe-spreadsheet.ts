import { createAction } from 'trellis';
import { z } from 'zod';
import { readLink } from '../sheet/a1.ts';
import { rightsOf } from '../sheet/api.ts';
import { readBook } from '../sheet/book.ts';
import { invalidLink, withActionErrors } from '../sheet/faults.ts';
import { worksheetModel } from '../sheet/models.ts';
import { identities } from '../sheet/settings.ts';

const Output = z.object({
  spreadsheetId: z.string(),
  title: z.string(),
  url: z.string(),
  timeZone: z.string(),
  locale: z.string(),
  /** The identities that the connection's permissions allow. */
  identities: z.array(z.enum(identities)),
  /** The tab in the link, else the first visible tab. */
  sheetId: z.int().nullable(),
  tabs: z.array(worksheetModel.omit({ id: true, spreadsheetId: true })),
});

export default createAction({
  description: 'Title and tabs of a spreadsheet, by its link or ID.',
  version: '1.0.0',
  readOnly: true,
  input: z.object({ spreadsheet: z.string().min(1).max(2_000).describe('A link, or an ID') }),
  output: Output,
  exec: (trellis, { spreadsheet }) =>
    withActionErrors(trellis, async () => {
      const link = readLink(spreadsheet);
      if (link === undefined) {
        throw invalidLink();
      }
      const rights = await rightsOf(trellis);
      const { tabs, ...book } = await readBook(trellis, { spreadsheetId: link.spreadsheetId, rights });
      const shown = tabs.find(({ hidden, kind }) => !hidden && kind === 'grid');
      const named = tabs.find(({ sheetId }) => sheetId === link.sheetId);
      return {
        ...book,
        identities: identities.filter((identity) => identity !== 'metadata' || rights.canWrite),
        sheetId: (named ?? shown)?.sheetId ?? null,
        tabs,
      };
    }),
});
