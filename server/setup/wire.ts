import { z } from 'zod';

/** What a connect page is told of sheets: a part of what the actions that ship answer. */
export const setUpWire = z.object({
  kind: z.literal('sheet'),
  provider_config_key: z.string(),
  connection_id: z.string(),
  /** The address of the account that was connected. */
  account: z.string().nullable(),
});

export const spreadsheetsWire = z.object({
  /** False: the connection may not list files, so that a link is asked for. */
  available: z.boolean(),
  spreadsheets: z.array(z.object({ spreadsheetId: z.string(), title: z.string(), modifiedAt: z.string() })),
  nextPageToken: z.string().nullable(),
});

export const bookWire = z.object({
  spreadsheetId: z.string(),
  title: z.string(),
  /** The tab to begin with. */
  sheetId: z.number().nullable(),
  tabs: z.array(z.object({ sheetId: z.number(), title: z.string(), kind: z.string(), hidden: z.boolean() })),
});

const cell = z.union([z.string(), z.number(), z.boolean(), z.null(), z.object({ error: z.string() })]);
export const previewWire = z.object({
  headerRow: z.number(),
  suggestedHeaderRow: z.number(),
  suggestedKeyColumn: z.string().nullable(),
  totalRows: z.number(),
  columns: z.array(z.object({ field: z.string(), type: z.string() })),
  keys: z
    .object({ column: z.string(), empty: z.number(), duplicates: z.number(), examples: z.array(z.string()) })
    .nullable(),
  rows: z.array(z.record(z.string(), cell)),
});

const spreadsheet = z.string().min(1).max(2_000);
const sheetId = z.int().min(0);
const headerRow = z.int().min(1).max(1_000_000);
const keyColumn = z.string().min(1).max(1_000);

export const spreadsheetsBody = z.strictObject({
  search: z.string().min(1).max(200).optional(),
  pageToken: z.string().max(4_096).optional(),
});
/** A link, or an ID. */
export const bookBody = z.strictObject({ spreadsheet });
export const previewBody = z.strictObject({
  spreadsheet,
  sheetId: sheetId.optional(),
  headerRow: headerRow.optional(),
  keyColumn: keyColumn.optional(),
});
/** Without a key column rows are told apart by what they hold. */
export const choiceBody = z.strictObject({
  spreadsheetId: z.string().regex(/^[A-Za-z0-9_-]{1,100}$/),
  sheetId,
  headerRow: headerRow.default(1),
  keyColumn: keyColumn.optional(),
  title: z.string().max(1_000).optional(),
  tab: z.string().max(1_000).optional(),
});
export type Choice = z.output<typeof choiceBody>;

export const chosenWire = z.object({
  provider_config_key: z.string(),
  connection_id: z.string(),
  variant: z.string(),
});
