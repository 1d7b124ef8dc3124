/**
 * Ranges of a given spreadsheet: A1 texts, GridRanges and named ranges to rectangles inside a sheet's grid.
 *
 * It resolves and clips ranges, with Google's error texts.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { type Area, formatA1, parseA1, quoteTitle } from './a1.ts';
import { invalidArgument } from './errors.ts';
import { getSheet, type Sheet, type Spreadsheet } from './spreadsheet.ts';

/** A rectangle inside the grid of one sheet; ends are exclusive. */
export interface Rectangle {
  readonly startRow: number;
  readonly endRow: number;
  readonly startColumn: number;
  readonly endColumn: number;
}

/** A requested range of a spreadsheet, not yet clipped to the grid. */
export interface RequestedRange {
  readonly sheet: Sheet;
  readonly area: Area;
}

/** Finds the sheet and area of a range text. Throws `Unable to parse range: ...` if the name is unknown. */
export function resolveA1(spreadsheet: Spreadsheet, text: string): RequestedRange {
  const range = findA1(spreadsheet, text);
  if (range === undefined) throw invalidArgument(`Unable to parse range: ${text}`);
  return range;
}

function findA1(spreadsheet: Spreadsheet, text: string): RequestedRange | undefined {
  const a1 = parseA1(text);
  if (a1 === undefined) return undefined;
  if (a1.kind === 'area') {
    const sheet = a1.sheet === undefined ? spreadsheet.sheets[0] : findSheet(spreadsheet, a1.sheet);
    return sheet && { sheet, area: a1.area };
  }
  // A sheet takes precedence over a named range with the same name.
  const sheet = findSheet(spreadsheet, a1.name);
  if (sheet !== undefined) return { sheet, area: {} };
  const named = spreadsheet.namedRanges.find((one) => one.name?.toLowerCase() === a1.name.toLowerCase());
  return a1.quoted || !named?.range ? undefined : resolveGridRange(spreadsheet, named.range);
}

function findSheet(spreadsheet: Spreadsheet, title: string): Sheet | undefined {
  const { sheets } = spreadsheet;
  return (
    sheets.find((sheet) => sheet.properties.title === title) ??
    sheets.find((sheet) => sheet.properties.title.toLowerCase() === title.toLowerCase())
  );
}

/** The sheet and area of a GridRange. Throws `No grid with id: ...` and for ends that are not after their starts. */
export function resolveGridRange(
  spreadsheet: Spreadsheet,
  range: sheets_v4.Schema$GridRange,
): RequestedRange {
  const sheet = getSheet(spreadsheet, range.sheetId);
  const { startRowIndex, endRowIndex, startColumnIndex, endColumnIndex } = range;
  assertOrder('RowIndex', startRowIndex, endRowIndex);
  assertOrder('ColumnIndex', startColumnIndex, endColumnIndex);
  return {
    sheet,
    area: {
      ...(startRowIndex != null && { startRow: startRowIndex }),
      ...(endRowIndex != null && { endRow: endRowIndex }),
      ...(startColumnIndex != null && { startColumn: startColumnIndex }),
      ...(endColumnIndex != null && { endColumn: endColumnIndex }),
    },
  };
}

function assertOrder(name: string, start?: number | null, end?: number | null): void {
  if ((start ?? 0) < 0) throw invalidArgument(`GridRange.start${name}[${start}] can't be negative.`);
  if (end != null && end <= (start ?? 0)) {
    throw invalidArgument(`GridRange.end${name}[${end}] must be after start${name}[${start ?? 0}].`);
  }
}

/**
 * The part of a range inside the grid. A range that ends beyond the grid is clipped; a range that starts beyond it
 * is refused with Google's text.
 */
export function clip({ sheet, area }: RequestedRange): Rectangle {
  const startRow = area.startRow ?? 0;
  const startColumn = area.startColumn ?? 0;
  if (startRow >= sheet.rowCount || startColumn >= sheet.columnCount) {
    throw invalidArgument(
      `Range (${formatA1(sheet.properties.title, area)}) exceeds grid limits. ` +
        `Max rows: ${sheet.rowCount}, max columns: ${sheet.columnCount}`,
    );
  }
  return {
    startRow,
    endRow: Math.min(area.endRow ?? sheet.rowCount, sheet.rowCount),
    startColumn,
    endColumn: Math.min(area.endColumn ?? sheet.columnCount, sheet.columnCount),
  };
}

/** A resolved GridRange, clipped to the grid. */
export function clipGridRange(
  spreadsheet: Spreadsheet,
  range: sheets_v4.Schema$GridRange | null | undefined,
): { sheet: Sheet; rectangle: Rectangle } {
  if (range == null) throw invalidArgument('range is required.');
  const asked = resolveGridRange(spreadsheet, range);
  return { sheet: asked.sheet, rectangle: clip(asked) };
}

/** The name of a rectangle in responses: `Sheet1!A1:B2`. */
export function rangeName(sheet: Sheet, rectangle: Rectangle): string {
  return formatA1(sheet.properties.title, rectangle);
}

/** The name of a range in errors of writes: `'Sheet1'!A1:B2`, always quoted. */
export function quotedRangeName(sheet: Sheet, area: Area): string {
  const { title } = sheet.properties;
  const plain = quoteTitle(title);
  return (plain === title ? `'${title}'` : plain) + formatA1(title, area).slice(plain.length);
}

/** The GridRange of a rectangle. */
export function toGridRange(sheet: Sheet, rectangle: Rectangle): sheets_v4.Schema$GridRange {
  return {
    sheetId: sheet.properties.sheetId,
    startRowIndex: rectangle.startRow,
    endRowIndex: rectangle.endRow,
    startColumnIndex: rectangle.startColumn,
    endColumnIndex: rectangle.endColumn,
  };
}

/** Whether two rectangles share a cell. */
export function intersects(a: Rectangle, b: Rectangle): boolean {
  return (
    a.startRow < b.endRow &&
    b.startRow < a.endRow &&
    a.startColumn < b.endColumn &&
    b.startColumn < a.endColumn
  );
}
