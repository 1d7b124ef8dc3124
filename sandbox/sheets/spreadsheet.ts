/**
 * The model of a spreadsheet: sheets, rows, cells and names, in memory and on disk.
 *
 * It is copy-on-write. A `Spreadsheet` that was returned is never changed: an edit works on a
 * `fork`, which is stored when the whole request has succeeded, so requests are atomic. Rows and rich
 * cells are replaced, never changed.
 */
import { randomBytes, randomInt } from 'node:crypto';
import type { sheets_v4 } from '@googleapis/sheets';
import { invalidArgument } from './errors.ts';

export type Scalar = string | number | boolean;

/** A cell with more than a plain value. */
export interface RichCell {
  readonly value?: Scalar;
  /** With its leading `=`; then `value` is absent. */
  readonly formula?: string;
  readonly format?: sheets_v4.Schema$CellFormat;
  readonly note?: string;
  readonly validation?: sheets_v4.Schema$DataValidationRule;
  readonly textFormatRuns?: sheets_v4.Schema$TextFormatRun[];
}

/** A cell with only a value is the value itself, to save memory and time. */
export type Cell = Scalar | RichCell | null;
export type Row = readonly Cell[];

export interface Sheet {
  properties: sheets_v4.Schema$SheetProperties & { sheetId: number; title: string };
  rowCount: number;
  columnCount: number;
  /** May be shorter than `rowCount`, and each row shorter than `columnCount`. */
  rows: Row[];
  /** Sparse: sizes and visibility of rows and columns that were set. */
  rowProperties: (sheets_v4.Schema$DimensionProperties | null)[];
  columnProperties: (sheets_v4.Schema$DimensionProperties | null)[];
  merges: sheets_v4.Schema$GridRange[];
}

export interface Spreadsheet {
  spreadsheetId: string;
  owner: { email: string; sub: string };
  /** The OAuth client that created it; `drive.file` is limited to the files of the client. */
  clientId?: string;
  /** Milliseconds since 1970. */
  modifiedAt: number;
  /** The number of changes, shown by Drive. Absent in older files. */
  version?: number;
  /** In Drive's trash; the Sheets API still serves it. */
  trashed?: boolean;
  properties: sheets_v4.Schema$SpreadsheetProperties & { title: string };
  /** In the order of the tabs. */
  sheets: Sheet[];
  namedRanges: sheets_v4.Schema$NamedRange[];
  developerMetadata: readonly (sheets_v4.Schema$DeveloperMetadata & { metadataId: number })[];
}

/** Google's limit for the cells of a spreadsheet. */
const maxCells = 10_000_000;
const defaultRows = 1000;
const defaultColumns = 26;

/** An id that looks like Google's: 44 characters, starting with 1. */
export function newSpreadsheetId(): string {
  return `1${randomBytes(33).toString('base64url').slice(0, 43)}`;
}

/** An id for a sheet or metadata entry that is not yet among `taken`. */
export function newNumericId(taken: ReadonlySet<number>): number {
  for (;;) {
    const id = randomInt(100_000_000, 2_000_000_000);
    if (!taken.has(id)) return id;
  }
}

/** An empty sheet of the given or Google's default size. */
export function createSheet(
  properties: sheets_v4.Schema$SheetProperties & { sheetId: number; title: string },
): Sheet {
  const { gridProperties, index: _, ...rest } = properties;
  const { rowCount, columnCount, ...grid } = gridProperties ?? {};
  return {
    properties: { ...rest, sheetType: 'GRID', ...(Object.keys(grid).length > 0 && { gridProperties: grid }) },
    rowCount: rowCount ?? defaultRows,
    columnCount: columnCount ?? defaultColumns,
    rows: [],
    rowProperties: [],
    columnProperties: [],
    merges: [],
  };
}

/** A copy to edit. Its cost depends on the number of rows, not of cells. */
export function fork(spreadsheet: Spreadsheet): Spreadsheet {
  return {
    ...spreadsheet,
    sheets: spreadsheet.sheets.map(forkSheet),
    namedRanges: [...spreadsheet.namedRanges],
  };
}

/** A copy of one sheet that shares its unchanged rows. */
export function forkSheet(sheet: Sheet): Sheet {
  return {
    ...sheet,
    rows: [...sheet.rows],
    rowProperties: [...sheet.rowProperties],
    columnProperties: [...sheet.columnProperties],
    merges: [...sheet.merges],
  };
}

/** The value, format and so on of a cell, plain or rich. */
export function rich(cell: Cell | undefined): RichCell {
  if (cell === null || cell === undefined) return {};
  return typeof cell === 'object' ? cell : { value: cell };
}

/** The smallest representation of `cell`. */
export function compact(cell: RichCell): Cell {
  const kept = Object.entries(cell).filter(([, part]) => part !== undefined);
  if (kept.length === 0) return null;
  return kept.length === 1 && cell.value !== undefined ? cell.value : (Object.fromEntries(kept) as RichCell);
}

/** Whether a cell has no content; formats, notes and rules are not content. */
export function isBlank(cell: Cell | undefined): boolean {
  if (cell === null || cell === undefined || cell === '') return true;
  return (
    typeof cell === 'object' && (cell.value === undefined || cell.value === '') && cell.formula === undefined
  );
}

export function getCell(sheet: Sheet, row: number, column: number): Cell {
  return sheet.rows[row]?.[column] ?? null;
}

/** Writes `cells` to one row of a forked sheet, from `startColumn`; `undefined` leaves a cell unchanged. */
export function setCells(
  sheet: Sheet,
  at: { row: number; startColumn: number },
  cells: readonly (Cell | undefined)[],
): void {
  const row: Cell[] = [...(sheet.rows[at.row] ?? [])];
  for (const [offset, cell] of cells.entries()) {
    if (cell === undefined) continue;
    while (row.length <= at.startColumn + offset) row.push(null);
    row[at.startColumn + offset] = cell;
  }
  while (row.length > 0 && row.at(-1) === null) row.pop();
  while (sheet.rows.length <= at.row) sheet.rows.push([]);
  sheet.rows[at.row] = row;
}

/** Refuses a spreadsheet above Google's limit of ten million cells. */
export function assertCellLimit(spreadsheet: Spreadsheet): void {
  const cells = spreadsheet.sheets.reduce((sum, sheet) => sum + sheet.rowCount * sheet.columnCount, 0);
  if (cells > maxCells) {
    throw invalidArgument(
      'This action would increase the number of cells in the workbook above the limit of 10000000 cells.',
    );
  }
}

/** The sheet with this id. Throws Google's 400 if there is none. */
export function getSheet(spreadsheet: Spreadsheet, sheetId: number | null | undefined): Sheet {
  const sheet = spreadsheet.sheets.find((one) => one.properties.sheetId === (sheetId ?? 0));
  if (sheet === undefined) throw invalidArgument(`No grid with id: ${sheetId ?? 0}`);
  return sheet;
}
