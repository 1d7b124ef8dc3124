/**
 * Writing ValueRanges to a forked spreadsheet, at a position or after a table.
 *
 * It checks the bounds of a write, handles null and "" in input, and detects tables. cell-value.ts converts the values.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { columnName } from './a1.ts';
import { enterAsUser, enterRaw } from './cell-value.ts';
import { insertRows } from './dimension-edits.ts';
import { invalidArgument } from './errors.ts';
import { clip, quotedRangeName, type Rectangle, type RequestedRange } from './ranges.ts';
import {
  assertCellLimit,
  type Cell,
  compact,
  getCell,
  isBlank,
  rich,
  type Scalar,
  type Sheet,
  type Spreadsheet,
  setCells,
} from './spreadsheet.ts';

/** The conversion of input: none, or as if typed by a user. */
type Enter = (before: Cell, input: Scalar) => Cell;

/** The conversion for `valueInputOption`. Throws Google's 400 if it is absent. */
export function enterFor(valueInputOption: unknown): Enter {
  if (valueInputOption === 'RAW') return enterRaw;
  if (valueInputOption === 'USER_ENTERED') return enterAsUser;
  throw invalidArgument("'valueInputOption' is required but not specified");
}

/** The result of a write. The counts include cells that got a value or were cleared, but no nulls. */
export interface Written {
  readonly sheet: Sheet;
  readonly rectangle: Rectangle;
  readonly rows: number;
  readonly columns: number;
  readonly cells: number;
}

/**
 * Writes `values` from the range's first cell on. A range of one cell extends to the edge of the grid; any other range is a
 * limit, and Google refuses values beyond it.
 */
export function writeValues(
  asked: RequestedRange,
  values: sheets_v4.Schema$ValueRange,
  enter: Enter,
): Written {
  const within = clip(asked);
  const isCell = asked.area.endRow === within.startRow + 1 && asked.area.endColumn === within.startColumn + 1;
  const limit = isCell
    ? { ...within, endRow: asked.sheet.rowCount, endColumn: asked.sheet.columnCount }
    : within;
  const lines = rowsOf(values);
  for (const [offset, line] of lines.entries()) {
    const refuse = (where: string) =>
      invalidArgument(
        `Requested writing within range [${quotedRangeName(asked.sheet, asked.area)}], ` +
          `but tried writing to ${where}`,
      );
    const isAnyGiven = line.some((input) => input !== null);
    if (isAnyGiven && within.startRow + offset >= limit.endRow) {
      throw refuse(`row [${within.startRow + offset + 1}]`);
    }
    const beyond = line.findIndex(
      (input, at) => input !== null && within.startColumn + at >= limit.endColumn,
    );
    if (beyond >= 0) throw refuse(`column [${columnName(within.startColumn + beyond)}]`);
  }
  return writeLines(asked.sheet, within, { lines, enter });
}

function writeLines(
  sheet: Sheet,
  at: { startRow: number; startColumn: number },
  { lines, enter }: { lines: readonly (Scalar | null)[][]; enter: Enter },
): Written {
  const columns = new Set<number>();
  let rows = 0;
  let cells = 0;
  for (const [offset, line] of lines.entries()) {
    const row = at.startRow + offset;
    const entered = line.map((input, index) => {
      if (input === null) return undefined;
      columns.add(index);
      cells += 1;
      return enter(getCell(sheet, row, at.startColumn + index), input);
    });
    if (entered.every((cell) => cell === undefined)) continue;
    rows += 1;
    setCells(sheet, { row, startColumn: at.startColumn }, entered);
  }
  const width = lines.reduce((widest, line) => Math.max(widest, line.length), 0);
  const rectangle = {
    startRow: at.startRow,
    endRow: at.startRow + Math.max(lines.length, 1),
    startColumn: at.startColumn,
    endColumn: at.startColumn + Math.max(width, 1),
  };
  return { sheet, rectangle, rows, columns: columns.size, cells };
}

/** The values of a ValueRange by rows. Throws for objects and lists in place of a cell's value. */
function rowsOf({ values, majorDimension }: sheets_v4.Schema$ValueRange): (Scalar | null)[][] {
  const lines = (values ?? []).map((line, row) => line.map((input, column) => scalarOf(input, row, column)));
  if (majorDimension !== 'COLUMNS') return lines;
  const height = lines.reduce((longest, line) => Math.max(longest, line.length), 0);
  return Array.from({ length: height }, (_, row) => lines.map((line) => line[row] ?? null));
}

function scalarOf(input: unknown, row: number, column: number): Scalar | null {
  if (typeof input === 'object' && input !== null) {
    throw invalidArgument(`Invalid values[${row}][${column}]: ${protoText(input, '')}`);
  }
  return input as Scalar | null;
}

/** A google.protobuf.Value in protobuf's text format, which Google uses in errors. */
function protoText(value: unknown, indent: string): string {
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    const items = value.map(
      (item) => `${inner}values {\n${inner}  ${protoText(item, `${inner}  `)}${inner}}\n`,
    );
    return `list_value {\n${items.join('')}${indent}}\n`;
  }
  if (typeof value === 'object' && value !== null) {
    const fields = Object.entries(value).map(([key, item]) => {
      const text = protoText(item, `${inner}    `);
      return `${inner}fields {\n${inner}  key: ${JSON.stringify(key)}\n${inner}  value {\n${inner}    ${text}${inner}  }\n${inner}}\n`;
    });
    return `struct_value {\n${fields.join('')}${indent}}\n`;
  }
  if (typeof value === 'string') return `string_value: ${JSON.stringify(value)}\n`;
  if (typeof value === 'number') return `number_value: ${value}\n`;
  return typeof value === 'boolean' ? `bool_value: ${value}\n` : 'null_value: NULL_VALUE\n';
}

/** Clears the values of a rectangle; formats, notes and rules stay. */
export function clearValues(sheet: Sheet, rectangle: Rectangle): void {
  const last = Math.min(rectangle.endRow, sheet.rows.length);
  for (let row = rectangle.startRow; row < last; row += 1) {
    const cells = (sheet.rows[row] ?? []).slice(rectangle.startColumn, rectangle.endColumn).map((cell) => {
      const { value: _, formula: __, ...rest } = rich(cell);
      return compact(rest);
    });
    if (cells.length > 0) setCells(sheet, { row, startColumn: rectangle.startColumn }, cells);
  }
}

/** The result of an append: the table it found, if any, and the write. */
interface Appended extends Written {
  readonly table?: Rectangle;
}

/**
 * Writes `values` after the last table that the range touches, or at the range's first cell if it touches none.
 * The grid grows as needed. INSERT_ROWS inserts rows; OVERWRITE does not.
 */
export function appendValues(
  spreadsheet: Spreadsheet,
  asked: RequestedRange,
  input: { values: sheets_v4.Schema$ValueRange; enter: Enter; insertDataOption: unknown },
): Appended {
  const { sheet } = asked;
  const within = clip(asked);
  const lines = rowsOf(input.values);
  const table = findTable(sheet, within);
  const at = table
    ? { startRow: table.endRow, startColumn: table.startColumn }
    : { startRow: within.startRow, startColumn: within.startColumn };
  if (input.insertDataOption === 'INSERT_ROWS' && lines.length > 0 && at.startRow < sheet.rowCount) {
    insertRows(spreadsheet, sheet, { index: at.startRow, count: lines.length });
  }
  const width = lines.reduce((widest, line) => Math.max(widest, line.length), 0);
  sheet.rowCount = Math.max(sheet.rowCount, at.startRow + lines.length);
  sheet.columnCount = Math.max(sheet.columnCount, at.startColumn + width);
  assertCellLimit(spreadsheet);
  return { ...writeLines(sheet, at, { lines, enter: input.enter }), ...(table && { table }) };
}

/**
 * The last table that `within` touches: the block of cells around the range's lowest non-blank cell, as far as it
 * goes without a blank row or column.
 */
function findTable(sheet: Sheet, within: Rectangle): Rectangle | undefined {
  for (let row = Math.min(within.endRow, sheet.rows.length) - 1; row >= within.startRow; row -= 1) {
    const cells = sheet.rows[row] ?? [];
    for (let column = within.startColumn; column < Math.min(within.endColumn, cells.length); column += 1) {
      if (!isBlank(cells[column])) return growTable(sheet, row, column);
    }
  }
  return undefined;
}

function growTable(sheet: Sheet, row: number, column: number): Rectangle {
  let [startRow, endRow, startColumn, endColumn] = [row, row + 1, column, column + 1];
  const isRowUsed = (at: number) =>
    (sheet.rows[at] ?? []).slice(Math.max(startColumn - 1, 0), endColumn + 1).some((cell) => !isBlank(cell));
  const isColumnUsed = (at: number) => {
    for (let one = Math.max(startRow - 1, 0); one <= endRow; one += 1) {
      if (!isBlank(sheet.rows[one]?.[at])) return true;
    }
    return false;
  };
  for (let hasGrown = true; hasGrown; ) {
    const before = [startRow, endRow, startColumn, endColumn].join();
    while (endRow < sheet.rows.length && isRowUsed(endRow)) endRow += 1;
    while (startRow > 0 && isRowUsed(startRow - 1)) startRow -= 1;
    while (endColumn < sheet.columnCount && isColumnUsed(endColumn)) endColumn += 1;
    while (startColumn > 0 && isColumnUsed(startColumn - 1)) startColumn -= 1;
    hasGrown = before !== [startRow, endRow, startColumn, endColumn].join();
  }
  return { startRow, endRow, startColumn, endColumn };
}
