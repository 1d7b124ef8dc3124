/**
 * Edits of cells: updateCells, repeatCell, appendCells, validation, merges.
 *
 * Each takes a forked spreadsheet and a checked request, changes the fork, and returns its reply if it has one.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { applyCellData } from './cell-data.ts';
import { invalidArgument, notImplemented } from './errors.ts';
import { requireMask } from './field-mask.ts';
import { offsetFormula } from './index-moves.ts';
import { clip, clipGridRange, intersects, type Rectangle, resolveGridRange, toGridRange } from './ranges.ts';
import {
  assertCellLimit,
  type Cell,
  compact,
  getCell,
  getSheet,
  isBlank,
  rich,
  type Sheet,
  type Spreadsheet,
  setCells,
} from './spreadsheet.ts';

export function updateCells(draft: Spreadsheet, request: sheets_v4.Schema$UpdateCellsRequest): void {
  const mask = requireMask(request.fields, 'CellData');
  const { sheet, area, isRange } = target(draft, request);
  const rows = request.rows ?? [];
  const width = rows.reduce((widest, row) => Math.max(widest, row.values?.length ?? 0), 0);
  if (area.startRow + rows.length > area.endRow) {
    throw invalidArgument(
      `Attempting to write row: ${area.endRow}, beyond the last requested row of: ${area.endRow - 1}`,
    );
  }
  if (area.startColumn + width > area.endColumn) {
    throw invalidArgument(
      `Attempting to write column: ${area.endColumn}, beyond the last requested column of: ${area.endColumn - 1}`,
    );
  }
  // With a range, cells without data are cleared; with a start, other cells stay unchanged.
  const height = isRange ? area.endRow - area.startRow : rows.length;
  for (let offset = 0; offset < height; offset += 1) {
    const row = area.startRow + offset;
    const data = rows[offset]?.values ?? [];
    const reach = isRange ? area.endColumn - area.startColumn : data.length;
    const cells = Array.from({ length: reach }, (_, index) =>
      applyCellData(getCell(sheet, row, area.startColumn + index), data[index] ?? {}, mask),
    );
    if (sheet.rows[row] !== undefined || cells.some((cell) => cell !== null)) {
      setCells(sheet, { row, startColumn: area.startColumn }, cells);
    }
  }
}

function target(draft: Spreadsheet, request: sheets_v4.Schema$UpdateCellsRequest) {
  if (request.range) {
    const { sheet, rectangle } = clipGridRange(draft, request.range);
    return { sheet, area: rectangle, isRange: true };
  }
  if (!request.start) throw invalidArgument('One of range or start must be set.');
  const sheet = getSheet(draft, request.start.sheetId);
  const [startRow, startColumn] = [request.start.rowIndex ?? 0, request.start.columnIndex ?? 0];
  if (startRow < 0 || startColumn < 0) throw invalidArgument("GridCoordinate indexes can't be negative.");
  const area = clip({ sheet, area: { startRow, startColumn } });
  return { sheet, area, isRange: false };
}

export function repeatCell(draft: Spreadsheet, request: sheets_v4.Schema$RepeatCellRequest): void {
  const mask = requireMask(request.fields, 'CellData');
  const { sheet, rectangle } = clipGridRange(draft, request.range);
  const data = request.cell ?? {};
  const formula = data.userEnteredValue?.formulaValue;
  mapCells(sheet, rectangle, (cell, row, column) => {
    const by = { rows: row - rectangle.startRow, columns: column - rectangle.startColumn };
    const here =
      formula == null ? data : { ...data, userEnteredValue: { formulaValue: offsetFormula(formula, by) } };
    return applyCellData(cell, here, mask);
  });
}

/** Adds rows after the last row with data, growing the grid as needed. */
export function appendCells(draft: Spreadsheet, request: sheets_v4.Schema$AppendCellsRequest): void {
  if (request.tableId) throw notImplemented('tables');
  const mask = requireMask(request.fields, 'CellData');
  const sheet = getSheet(draft, request.sheetId);
  let start = sheet.rows.length;
  while (start > 0 && (sheet.rows[start - 1] ?? []).every(isBlank)) start -= 1;
  const rows = request.rows ?? [];
  const width = rows.reduce((widest, row) => Math.max(widest, row.values?.length ?? 0), 0);
  sheet.rowCount = Math.max(sheet.rowCount, start + rows.length);
  sheet.columnCount = Math.max(sheet.columnCount, width);
  assertCellLimit(draft);
  for (const [offset, { values }] of rows.entries()) {
    const row = start + offset;
    const cells = (values ?? []).map((data, column) =>
      applyCellData(getCell(sheet, row, column), data, mask),
    );
    setCells(sheet, { row, startColumn: 0 }, cells);
  }
}

export function setDataValidation(
  draft: Spreadsheet,
  request: sheets_v4.Schema$SetDataValidationRequest,
): void {
  const { sheet, rectangle } = clipGridRange(draft, request.range);
  mapCells(sheet, rectangle, (cell) => {
    const { validation: _, ...rest } = rich(cell);
    return compact(request.rule ? { ...rest, validation: request.rule } : rest);
  });
}

/** Replaces each cell by the result of `change`. */
export function mapCells(
  sheet: Sheet,
  r: Rectangle,
  change: (cell: Cell, row: number, column: number) => Cell,
): void {
  for (let row = r.startRow; row < r.endRow; row += 1) {
    const cells: Cell[] = [];
    for (let column = r.startColumn; column < r.endColumn; column += 1) {
      cells.push(change(getCell(sheet, row, column), row, column));
    }
    if (sheet.rows[row] !== undefined || cells.some((cell) => cell !== null)) {
      setCells(sheet, { row, startColumn: r.startColumn }, cells);
    }
  }
}

export function mergeCells(draft: Spreadsheet, request: sheets_v4.Schema$MergeCellsRequest): void {
  const { sheet, rectangle: r } = clipGridRange(draft, request.range);
  const cuts = sheet.merges.map((merge) => clip(resolveGridRange(draft, merge)));
  const isCut = cuts.some((one) => intersects(one, r) && !isInside(one, r));
  if (isCut) throw invalidArgument('You must select all cells in a merged range to merge or unmerge them.');
  const merges = splitMerge(r, request.mergeType ?? 'MERGE_ALL');
  sheet.merges = [
    ...sheet.merges.filter((_, index) => !intersects(cuts[index] ?? r, r)),
    ...merges.map((merge) => toGridRange(sheet, merge)),
  ];
  for (const merge of merges) {
    // Only the first cell of a merge keeps its value.
    mapCells(sheet, merge, (cell, row, column) => {
      if (row === merge.startRow && column === merge.startColumn) return cell;
      const { value: _, formula: __, ...rest } = rich(cell);
      return compact(rest);
    });
  }
}

function splitMerge(r: Rectangle, mergeType: string): Rectangle[] {
  if (mergeType === 'MERGE_ROWS') {
    return Array.from({ length: r.endRow - r.startRow }, (_, at) => ({
      ...r,
      startRow: r.startRow + at,
      endRow: r.startRow + at + 1,
    }));
  }
  if (mergeType === 'MERGE_COLUMNS') {
    return Array.from({ length: r.endColumn - r.startColumn }, (_, at) => ({
      ...r,
      startColumn: r.startColumn + at,
      endColumn: r.startColumn + at + 1,
    }));
  }
  return [r];
}

export function unmergeCells(draft: Spreadsheet, request: sheets_v4.Schema$UnmergeCellsRequest): void {
  const { sheet, rectangle } = clipGridRange(draft, request.range);
  sheet.merges = sheet.merges.filter((merge) => {
    const one = clip(resolveGridRange(draft, merge));
    if (!intersects(one, rectangle)) return true;
    if (!isInside(one, rectangle)) {
      throw invalidArgument('You must select all cells in a merged range to merge or unmerge them.');
    }
    return false;
  });
}

function isInside(inner: Rectangle, outer: Rectangle): boolean {
  return (
    inner.startRow >= outer.startRow &&
    inner.endRow <= outer.endRow &&
    inner.startColumn >= outer.startColumn &&
    inner.endColumn <= outer.endColumn
  );
}
