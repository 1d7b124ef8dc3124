/**
 * The Spreadsheet resource of `spreadsheets.get` and similar methods.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { toCellData } from './cell-data.ts';
import { createEvaluator, type Evaluator } from './formula.ts';
import { clip, intersects, type Rectangle, type RequestedRange, resolveGridRange } from './ranges.ts';
import type { Sheet, Spreadsheet } from './spreadsheet.ts';

const defaultRowPixels = 21;
const defaultColumnPixels = 100;

/** The properties of a tab, with its current index. */
export function sheetProperties(spreadsheet: Spreadsheet, sheet: Sheet): sheets_v4.Schema$SheetProperties {
  const { sheetId, title, sheetType, gridProperties, ...rest } = sheet.properties;
  return {
    sheetId,
    title,
    index: spreadsheet.sheets.indexOf(sheet),
    sheetType: sheetType ?? 'GRID',
    gridProperties: { rowCount: sheet.rowCount, columnCount: sheet.columnCount, ...gridProperties },
    ...rest,
  };
}

/**
 * The whole resource. With `ranges` it has the sheets of these ranges only; `grid` decides whether it has the cells
 * (of the ranges, or all).
 */
export function toSpreadsheetJson(
  spreadsheet: Spreadsheet,
  options: { url: string; ranges: readonly RequestedRange[]; grid: 'with cells' | 'without cells' },
): sheets_v4.Schema$Spreadsheet {
  const { ranges } = options;
  const evaluator = createEvaluator(spreadsheet);
  const isWhole = ranges.length === 0;
  const sheets = spreadsheet.sheets.flatMap((sheet) => {
    const own = isWhole ? [{ sheet, area: {} }] : ranges.filter((range) => range.sheet === sheet);
    if (own.length === 0) return [];
    const rectangles = own.map(clip);
    const merges = sheet.merges.filter((merge) => {
      const there = clip(resolveGridRange(spreadsheet, merge));
      return rectangles.some((rectangle) => intersects(rectangle, there));
    });
    const developerMetadata = sheetMetadata(spreadsheet, sheet);
    const json: sheets_v4.Schema$Sheet = {
      properties: sheetProperties(spreadsheet, sheet),
      ...(options.grid === 'with cells' && {
        data: rectangles.map((rectangle) =>
          gridData({ spreadsheet, sheet, rectangle, isBounded: !isWhole }, evaluator),
        ),
      }),
      ...(merges.length > 0 && { merges }),
      ...(developerMetadata.length > 0 && { developerMetadata }),
    };
    return [json];
  });
  const developerMetadata = spreadsheet.developerMetadata.filter((one) => one.location?.spreadsheet);
  return {
    spreadsheetId: spreadsheet.spreadsheetId,
    properties: spreadsheet.properties,
    sheets,
    ...(spreadsheet.namedRanges.length > 0 && { namedRanges: spreadsheet.namedRanges }),
    spreadsheetUrl: `${options.url}/spreadsheets/d/${spreadsheet.spreadsheetId}/edit`,
    ...(developerMetadata.length > 0 && { developerMetadata: [...developerMetadata] }),
  };
}

function sheetMetadata(spreadsheet: Spreadsheet, sheet: Sheet): sheets_v4.Schema$DeveloperMetadata[] {
  const { sheetId } = sheet.properties;
  return spreadsheet.developerMetadata.filter(({ location }) => location?.sheetId === sheetId);
}

function gridData(
  at: { spreadsheet: Spreadsheet; sheet: Sheet; rectangle: Rectangle; isBounded: boolean },
  evaluator: Evaluator,
): sheets_v4.Schema$GridData {
  const { sheet, rectangle: r } = at;
  const rowData: sheets_v4.Schema$RowData[] = [];
  for (let row = r.startRow; row < Math.min(r.endRow, sheet.rows.length); row += 1) {
    const cells = sheet.rows[row] ?? [];
    const values = cells
      .slice(r.startColumn, r.endColumn)
      .map((cell, offset) => toCellData({ sheet, row, column: r.startColumn + offset, cell }, evaluator));
    rowData.push(values.length > 0 ? { values } : {});
  }
  return {
    ...(r.startRow > 0 && { startRow: r.startRow }),
    ...(r.startColumn > 0 && { startColumn: r.startColumn }),
    ...(rowData.length > 0 && { rowData }),
    rowMetadata: dimensionProperties(at, { dimension: 'ROWS', start: r.startRow, end: r.endRow }),
    columnMetadata: dimensionProperties(at, { dimension: 'COLUMNS', start: r.startColumn, end: r.endColumn }),
  };
}

function dimensionProperties(
  { spreadsheet, sheet }: { spreadsheet: Spreadsheet; sheet: Sheet },
  { dimension, start, end }: { dimension: 'ROWS' | 'COLUMNS'; start: number; end: number },
): sheets_v4.Schema$DimensionProperties[] {
  const [stored, pixelSize] =
    dimension === 'ROWS'
      ? [sheet.rowProperties, defaultRowPixels]
      : [sheet.columnProperties, defaultColumnPixels];
  const attached = Map.groupBy(
    spreadsheet.developerMetadata.filter(({ location }) => {
      const range = location?.dimensionRange;
      return range?.dimension === dimension && (range.sheetId ?? 0) === sheet.properties.sheetId;
    }),
    ({ location }) => location?.dimensionRange?.startIndex ?? 0,
  );
  return Array.from({ length: end - start }, (_, offset) => {
    const developerMetadata = attached.get(start + offset);
    return { pixelSize, ...stored[start + offset], ...(developerMetadata && { developerMetadata }) };
  });
}
