/** Cells with their formats and developer metadata, in one response with the properties of their tab. */
import { quotedTitle, rowsRange } from './a1.ts';
import { type Api, getJson, type SheetAccess } from './api.ts';
import { type BookJson, bookFields, bookOf, type Tab, tabFields } from './book.ts';
import { type ColumnKind, commonKind, kindOf, type RawCell } from './cells.ts';
import { tabGone } from './faults.ts';

const sampledRows = 200;

export type Mark = { metadataId: number; metadataKey: string; metadataValue?: string };
export type GridJson = { startRow?: number; rowData?: { values?: CellJson[] }[]; rowMetadata?: RowJson[] };
type CellJson = {
  effectiveValue?: {
    numberValue?: number;
    stringValue?: string;
    boolValue?: boolean;
    errorValue?: { type?: string };
  };
  effectiveFormat?: { numberFormat?: { type?: string } };
};
type RowJson = { developerMetadata?: { metadataId: number; metadataKey: string }[] };

export type Grid = { tab: Tab; timeZone: string; grid: GridJson | undefined; marks: Mark[] };

/**
 * The `fields` of the cells of some rows, with the properties of their tab, in one response. Undefined if the tab has another
 * title by now.
 */
export async function readGrid(
  trellis: Api,
  of: SheetAccess & { title: string; rows: { start: number; end: number } | undefined; fields: string },
): Promise<Grid | undefined> {
  const { settings, rights, title, rows, fields } = of;
  const range = rows === undefined ? quotedTitle(title) : rowsRange(title, rows);
  const params = {
    ranges: range,
    prettyPrint: false,
    fields: `${bookFields},sheets(${tabFields},${markFields},data(${fields}))`,
  };
  const json = await getJson<BookJson>(trellis, {
    spreadsheetId: settings.spreadsheetId,
    rights,
    params,
  }).catch((error: Error & { code?: string }) => {
    if (error.code === 'source_unavailable' && error.message === tabGone().message) return undefined;
    throw error;
  });
  const [sheet] = json?.sheets ?? [];
  if (json === undefined || sheet === undefined || (sheet.properties.sheetId ?? 0) !== settings.sheetId) {
    return undefined;
  }
  const book = bookOf(json);
  const marks = sheet.developerMetadata ?? [];
  return { tab: book.tabs[0]!, timeZone: book.timeZone, grid: sheet.data?.[0], marks };
}

const markFields = 'developerMetadata(metadataId,metadataKey,metadataValue)';
const formatFields = 'effectiveFormat(numberFormat(type))';
export const sampleFields = `startRow,rowData(values(effectiveValue(numberValue),${formatFields}))`;
export const wholeCellFields = `startRow,rowData(values(effectiveValue,${formatFields}))`;
export const wholeFields =
  `startRow,rowData(values(effectiveValue,${formatFields})),` +
  'rowMetadata(developerMetadata(metadataId,metadataKey))';

/** The header and the first rows below it, whose formats determine the kinds of the columns. */
export function sampleRows(headerIndex: number): { start: number; end: number } {
  return { start: headerIndex, end: headerIndex + 1 + sampledRows };
}

/** The kind of each column, by its index. */
export function kindsOf(grid: GridJson | undefined, headerIndex: number): ColumnKind[] {
  const rows = (grid?.rowData ?? []).slice(Math.max(0, headerIndex + 1 - (grid?.startRow ?? 0)));
  const width = rows.reduce((widest, { values = [] }) => Math.max(widest, values.length), 0);
  return Array.from({ length: width }, (_, column) => {
    const cells = rows.flatMap(({ values }) => values?.[column] ?? []);
    const numbers = cells.filter(({ effectiveValue }) => effectiveValue?.numberValue !== undefined);
    const formatted =
      numbers.length > 0 ? numbers : cells.filter(({ effectiveFormat }) => effectiveFormat?.numberFormat);
    return commonKind(formatted.map(({ effectiveFormat }) => kindOf(effectiveFormat?.numberFormat?.type)));
  });
}

const errorTexts: Readonly<Record<string, string>> = {
  ERROR: '#ERROR!',
  NULL_VALUE: '#NULL!',
  DIVIDE_BY_ZERO: '#DIV/0!',
  VALUE: '#VALUE!',
  REF: '#REF!',
  NAME: '#NAME?',
  NUM: '#NUM!',
  N_A: '#N/A',
};

/** The values of a grid in the form of the values API. */
export function cellsOf(grid: GridJson | undefined): RawCell[][] {
  return (grid?.rowData ?? []).map(({ values = [] }) =>
    values.map(({ effectiveValue: value }) => {
      if (value === undefined) return null;
      if (value.errorValue) return errorTexts[value.errorValue.type ?? ''] ?? '#ERROR!';
      return value.stringValue ?? value.numberValue ?? value.boolValue ?? null;
    }),
  );
}
