/**
 * Reading values: rectangles of cells to ValueRanges.
 *
 * It renders whole ranges by their major dimension, and omits trailing blanks.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { type DateTimeRenderOption, renderValue, type ValueRenderOption } from './cell-value.ts';
import { createEvaluator, type Evaluator } from './formula.ts';
import { clip, type Rectangle, type RequestedRange, rangeName } from './ranges.ts';
import type { Scalar, Sheet, Spreadsheet } from './spreadsheet.ts';

/** The three options of all methods that return values. */
interface Rendering {
  readonly majorDimension: 'ROWS' | 'COLUMNS';
  readonly valueRender: ValueRenderOption;
  readonly dateTimeRender: DateTimeRenderOption;
}

/** The options in a query or a body, with Google's defaults. */
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

/** The ValueRange of each requested range, in order. Throws if a range starts outside its grid. */
export function readRanges(
  spreadsheet: Spreadsheet,
  asked: readonly RequestedRange[],
  rendering: Rendering,
): sheets_v4.Schema$ValueRange[] {
  const evaluator = createEvaluator(spreadsheet);
  return asked.map((range) => {
    const rectangle = clip(range);
    return readRectangle({ sheet: range.sheet, rectangle }, rendering, evaluator);
  });
}

/** The ValueRange of one rectangle: `range` names all of it, `values` ends with the last cell that is not empty. */
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
