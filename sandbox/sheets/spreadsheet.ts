/**
 * The spreadsheet itself: sheets, rows, cells and names, as they are kept in memory and on disk.
 *
 * Owns: the shapes, and copy-on-write. A `Spreadsheet` that was handed out is never changed: an edit works on a
 * `fork` and the store takes the fork when the whole request has succeeded, so requests are atomic. Rows and rich
 * cells are replaced, never written into. Does not own: ranges (ranges.ts), what values mean (cell-value.ts).
 */
import { randomBytes, randomInt } from 'node:crypto';
import type { sheets_v4 } from '@googleapis/sheets';
import { invalidArgument } from './errors.ts';

export type Scalar = string | number | boolean;

/** A cell that has more than a plain value. */
export interface RichCell {
  readonly value?: Scalar;
  /** With its leading `=`; `value` is absent then. */
  readonly formula?: string;
  readonly format?: sheets_v4.Schema$CellFormat;
  readonly note?: string;
  readonly validation?: sheets_v4.Schema$DataValidationRule;
  readonly textFormatRuns?: sheets_v4.Schema$TextFormatRun[];
}

/** Plain values stand for themselves, which keeps tens of thousands of rows small and quick. */
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
  /** The OAuth client that made it: all that `drive.file` may touch. */
  clientId?: string;
  /** Milliseconds since 1970. */
  modifiedAt: number;
  /** Counts its changes, as Drive tells it. Absent in files of before it was counted. */
  version?: number;
  /** In Drive's trash; the Sheets API answers for it all the same. */
  trashed?: boolean;
  properties: sheets_v4.Schema$SpreadsheetProperties & { title: string };
  /** In the order of the tabs. */
  sheets: Sheet[];
  namedRanges: sheets_v4.Schema$NamedRange[];
  developerMetadata: readonly (sheets_v4.Schema$DeveloperMetadata & { metadataId: number })[];
}

/** Cells one spreadsheet may have; Google's own limit. */
const MAX_CELLS = 10_000_000;
const DEFAULT_ROWS = 1000;
const DEFAULT_COLUMNS = 26;

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
    rowCount: rowCount ?? DEFAULT_ROWS,
    columnCount: columnCount ?? DEFAULT_COLUMNS,
    rows: [],
    rowProperties: [],
    columnProperties: [],
    merges: [],
  };
}

/** A copy to edit. Costs the number of rows, not of cells. */
export function fork(spreadsheet: Spreadsheet): Spreadsheet {
  return {
    ...spreadsheet,
    sheets: spreadsheet.sheets.map(forkSheet),
    namedRanges: [...spreadsheet.namedRanges],
  };
}

/** A copy of one sheet, sharing the rows that nobody changes. */
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

/** The smallest way to keep `cell`. */
export function compact(cell: RichCell): Cell {
  const kept = Object.entries(cell).filter(([, part]) => part !== undefined);
  if (kept.length === 0) return null;
  return kept.length === 1 && cell.value !== undefined ? cell.value : (Object.fromEntries(kept) as RichCell);
}

/** Whether a cell shows nothing; a format, note or rule alone does not count as content. */
export function isBlank(cell: Cell | undefined): boolean {
  if (cell === null || cell === undefined || cell === '') return true;
  return (
    typeof cell === 'object' && (cell.value === undefined || cell.value === '') && cell.formula === undefined
  );
}

export function getCell(sheet: Sheet, row: number, column: number): Cell {
  return sheet.rows[row]?.[column] ?? null;
}

/** Puts `cells` into one row of a forked sheet, from `startColumn` on; `undefined` leaves a cell as it is. */
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

/** Refuses a grid that would take the spreadsheet over Google's limit of ten million cells. */
export function assertCellLimit(spreadsheet: Spreadsheet): void {
  const cells = spreadsheet.sheets.reduce((sum, sheet) => sum + sheet.rowCount * sheet.columnCount, 0);
  if (cells > MAX_CELLS) {
    throw invalidArgument(
      'This action would increase the number of cells in the workbook above the limit of 10000000 cells.',
    );
  }
}

/** The sheet with this id. Throws Google's 400 when there is none. */
export function getSheet(spreadsheet: Spreadsheet, sheetId: number | null | undefined): Sheet {
  const sheet = spreadsheet.sheets.find((one) => one.properties.sheetId === (sheetId ?? 0));
  if (sheet === undefined) throw invalidArgument(`No grid with id: ${sheetId ?? 0}`);
  return sheet;
}
