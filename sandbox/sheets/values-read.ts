/**
 * Reading values: rectangles of cells to ValueRanges.
 *
 * Owns: what is left out (trailing blanks), major dimension, rendering of whole ranges.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { type DateTimeRenderOption, renderValue, type ValueRenderOption } from './cell-value.ts';
import { createEvaluator, type Evaluator } from './formula.ts';
import { type AskedRange, clip, type Rectangle, rangeName } from './ranges.ts';
import type { Scalar, Sheet, Spreadsheet } from './spreadsheet.ts';

/** How a client wants values: the same three options on every method that answers with values. */
interface Rendering {
  readonly majorDimension: 'ROWS' | 'COLUMNS';
  readonly valueRender: ValueRenderOption;
  readonly dateTimeRender: DateTimeRenderOption;
}

/** The options from a query or a body, with Google's defaults for those not given. */
export function renderingOf(options: {
  majorDimension?: unknown;
  valueRenderOption?: unknown;
  dateTimeRenderOption?: unknown;
}): Rendering {
  return {
    majorDimension: options.majorDimension === 'COLUMNS' ? 'COLUMNS' : 'ROWS',
    valueRender: (options.valueRenderOption as ValueRenderOption | undefined) ?? 'FORMATTED_VALUE',
    dateTimeRender: (options.dateTimeRenderOption as DateTimeRenderOption | undefined) ?? 'SERIAL_NUMBER',
  };
}

/** The ValueRange of each asked range, in their order. Throws where a range starts outside its grid. */
export function readRanges(
  spreadsheet: Spreadsheet,
  asked: readonly AskedRange[],
  rendering: Rendering,
): sheets_v4.Schema$ValueRange[] {
  const evaluator = createEvaluator(spreadsheet);
  return asked.map((range) => {
    const rectangle = clip(range);
    return readRectangle({ sheet: range.sheet, rectangle }, rendering, evaluator);
  });
}

/** The ValueRange of one rectangle: `range` names all of it, `values` ends with the last cell that shows anything. */
export function readRectangle(
  { sheet, rectangle }: { sheet: Sheet; rectangle: Rectangle },
  rendering: Rendering,
  evaluator: Evaluator,
): sheets_v4.Schema$ValueRange {
  const rows: Scalar[][] = [];
  const lastRow = Math.min(rectangle.endRow, sheet.rows.length);
  for (let row = rectangle.startRow; row < lastRow; row += 1) {
    rows.push(readRow({ sheet, row, rectangle }, rendering, evaluator));
  }
  const lines = rendering.majorDimension === 'ROWS' ? rows : transpose(rows);
  while (lines.length > 0 && lines.at(-1)?.length === 0) lines.pop();
  return {
    range: rangeName(sheet, rectangle),
    majorDimension: rendering.majorDimension,
    ...(lines.length > 0 && { values: lines }),
  };
}

function readRow(
  { sheet, row, rectangle }: { sheet: Sheet; row: number; rectangle: Rectangle },
  rendering: Rendering,
  evaluator: Evaluator,
): Scalar[] {
  const cells = sheet.rows[row] ?? [];
  const values: Scalar[] = [];
  const last = Math.min(rectangle.endColumn, cells.length);
  for (let column = rectangle.startColumn; column < last; column += 1) {
    const cell = cells[column] ?? null;
    const value = cell !== null && typeof cell === 'object' ? evaluator.value(sheet, row, column) : cell;
    values.push(renderValue(cell, value, rendering));
  }
  while (values.at(-1) === '') values.pop();
  return values;
}

function transpose(rows: readonly Scalar[][]): Scalar[][] {
  const width = rows.reduce((widest, row) => Math.max(widest, row.length), 0);
  return Array.from({ length: width }, (_, column) => {
    const line = rows.map((row) => row[column] ?? '');
    while (line.at(-1) === '') line.pop();
    return line;
  });
}
