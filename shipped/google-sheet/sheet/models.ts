/** The models of the syncs. */
import { z } from 'zod';

export const cellValue = z.union([
  z.string(),
  z.number(),
  z.boolean(),
  z.null(),
  z.object({ error: z.string() }).describe('The error of a formula, such as #REF!'),
]);

export const rowModel = z.object({
  id: z.string(),
  fields: z.record(z.string(), cellValue).describe('The values by column header'),
});

export const worksheetModel = z.object({
  id: z.string().describe("The spreadsheet's ID, a slash, and the tab's gid"),
  sheetId: z.int().describe("The tab's gid"),
  spreadsheetId: z.string(),
  title: z.string(),
  index: z.int(),
  kind: z.string().describe('grid, object (a chart) or data_source'),
  rows: z.int(),
  columns: z.int(),
  hidden: z.boolean(),
  protected: z.boolean().describe('The whole tab can be edited by selected people only'),
});
