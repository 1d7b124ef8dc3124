/**
 * Edits of rows and columns (insert, delete, append, move, resize), and edits of ranges that shift other cells.
 *
 * Each takes a forked spreadsheet and a checked request, and changes the fork.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { invalidArgument, notImplemented } from './errors.ts';
import { mergeMasked, requireMask } from './field-mask.ts';
import { applyIndexMove, type Dimension } from './index-moves.ts';
import { clipGridRange, type Rectangle } from './ranges.ts';
import {
  assertCellLimit,
  type Cell,
  compact,
  getSheet,
  type Row,
  rich,
  type Sheet,
  type Spreadsheet,
} from './spreadsheet.ts';

interface Span {
  readonly sheet: Sheet;
  readonly dimension: Dimension;
  readonly start: number;
  readonly end: number;
}

function spanOf(draft: Spreadsheet, range: sheets_v4.Schema$DimensionRange | null | undefined): Span {
  if (!range) throw invalidArgument('range is required.');
  const sheet = getSheet(draft, range.sheetId);
  if (range.dimension !== 'ROWS' && range.dimension !== 'COLUMNS')
    throw invalidArgument('No dimension specified.');
  const { dimension } = range;
  const start = range.startIndex ?? 0;
  const end = range.endIndex ?? countOf(sheet, dimension);
  if (start < 0) throw invalidArgument(`range.startIndex[${start}] can't be negative.`);
  if (end <= start)
    throw invalidArgument(`range.endIndex[${end}] must be greater than range.startIndex[${start}].`);
  return { sheet, dimension, start, end };
}

function countOf(sheet: Sheet, dimension: Dimension): number {
  return dimension === 'ROWS' ? sheet.rowCount : sheet.columnCount;
}

function setCount(sheet: Sheet, dimension: Dimension, count: number): void {
  if (dimension === 'ROWS') sheet.rowCount = count;
  else sheet.columnCount = count;
}

/** Removes `remove` entries at `start` from each line of the dimension and inserts `insert` blanks. */
function splice(
  { sheet, dimension, start }: Omit<Span, 'end'>,
  { remove, insert }: { remove: number; insert: number },
): void {
  const properties = dimension === 'ROWS' ? sheet.rowProperties : sheet.columnProperties;
  if (properties.length > start) properties.splice(start, remove, ...Array<null>(insert).fill(null));
  if (dimension === 'ROWS') {
    if (sheet.rows.length <= start) return;
    const blanks = Array.from({ length: insert }, (): Row => []);
    sheet.rows = [...sheet.rows.slice(0, start), ...blanks, ...sheet.rows.slice(start + remove)];
    return;
  }
  sheet.rows = sheet.rows.map((row) =>
    row.length <= start
      ? row
      : [...row.slice(0, start), ...Array<null>(insert).fill(null), ...row.slice(start + remove)],
  );
}

/** Inserts blank rows before the row at `index`. */
export function insertRows(draft: Spreadsheet, sheet: Sheet, at: { index: number; count: number }): void {
  insert(draft, { sheet, dimension: 'ROWS', start: at.index, end: at.index + at.count });
}

function insert(draft: Spreadsheet, { sheet, dimension, start, end }: Span): void {
  const count = end - start;
  setCount(sheet, dimension, countOf(sheet, dimension) + count);
  assertCellLimit(draft);
  splice({ sheet, dimension, start }, { remove: 0, insert: count });
  applyIndexMove(draft, { sheet, dimension, map: (index) => (index >= start ? index + count : index) });
}

export function insertDimension(draft: Spreadsheet, request: sheets_v4.Schema$InsertDimensionRequest): void {
  const span = spanOf(draft, request.range);
  const { sheet, dimension, start, end } = span;
  if (start > countOf(sheet, dimension)) {
    throw invalidArgument(
      `range.startIndex[${start}] is past the last ${nounOf(dimension)}: there are ${countOf(sheet, dimension)}.`,
    );
  }
  if (request.inheritFromBefore && start === 0) {
    throw invalidArgument('inheritFromBefore cannot be true when inserting at the first row or column.');
  }
  insert(draft, span);
  inheritFormats(span, request.inheritFromBefore ? start - 1 : end);
}

function inheritFormats({ sheet, dimension, start, end }: Span, source: number): void {
  if (dimension === 'ROWS') {
    const row = (sheet.rows[source] ?? []).map(formatOnly);
    if (row.some((cell) => cell !== null)) {
      for (let index = start; index < end; index += 1) sheet.rows[index] = row;
    }
    return;
  }
  sheet.rows = sheet.rows.map((row) => {
    const cell = formatOnly(row[source] ?? null);
    return cell === null ? row : row.map((one, index) => (index >= start && index < end ? cell : one));
  });
}

function formatOnly(cell: Cell): Cell {
  const { format } = rich(cell);
  return format === undefined ? null : compact({ format });
}

function nounOf(dimension: Dimension): string {
  return dimension === 'ROWS' ? 'row' : 'column';
}

export function deleteDimension(draft: Spreadsheet, request: sheets_v4.Schema$DeleteDimensionRequest): void {
  const { sheet, dimension, start, end } = spanOf(draft, request.range);
  const count = countOf(sheet, dimension);
  const noun = nounOf(dimension);
  if (start >= count) {
    throw invalidArgument(
      `Cannot delete a ${noun} that doesn't exist. Tried to delete ${noun} index ${start} but there are only ${count} ${noun}s.`,
    );
  }
  const last = Math.min(end, count);
  const removed = last - start;
  if (removed === count) throw invalidArgument(`You can't delete all the ${noun}s on the sheet.`);
  const frozen =
    sheet.properties.gridProperties?.[dimension === 'ROWS' ? 'frozenRowCount' : 'frozenColumnCount'] ?? 0;
  if (frozen > 0 && start <= frozen && last === count) {
    throw invalidArgument(`Sorry, it is not possible to delete all non-frozen ${noun}s.`);
  }
  splice({ sheet, dimension, start }, { remove: removed, insert: 0 });
  setCount(sheet, dimension, count - removed);
  const map = (index: number) => (index < start ? index : index < last ? undefined : index - removed);
  applyIndexMove(draft, { sheet, dimension, map });
}

export function appendDimension(draft: Spreadsheet, request: sheets_v4.Schema$AppendDimensionRequest): void {
  const sheet = getSheet(draft, request.sheetId);
  if (request.dimension !== 'ROWS' && request.dimension !== 'COLUMNS')
    throw invalidArgument('No dimension specified.');
  const length = request.length ?? 0;
  if (length <= 0) throw invalidArgument('length must be greater than 0.');
  setCount(sheet, request.dimension, countOf(sheet, request.dimension) + length);
  assertCellLimit(draft);
}

export function moveDimension(draft: Spreadsheet, request: sheets_v4.Schema$MoveDimensionRequest): void {
  const { sheet, dimension, start, end } = spanOf(draft, request.source);
  const to = request.destinationIndex ?? 0;
  const count = countOf(sheet, dimension);
  if (end > count || to < 0 || to > count) {
    throw invalidArgument(`Cannot move ${nounOf(dimension)}s that don't exist: there are only ${count}.`);
  }
  if (to >= start && to <= end) return;
  const length = end - start;
  const map = (index: number) => {
    if (index >= start && index < end) return to < start ? to + index - start : to - length + index - start;
    if (to < start) return index >= to && index < start ? index + length : index;
    return index >= end && index < to ? index - length : index;
  };
  const permute = <T>(list: readonly T[], blank: T): T[] => {
    const moved = Array.from({ length: Math.max(list.length, end, to) }, () => blank);
    for (const [index, item] of list.entries()) moved[map(index)] = item;
    return moved;
  };
  if (dimension === 'ROWS') {
    sheet.rows = permute<Row>(sheet.rows, []);
    sheet.rowProperties = permute(sheet.rowProperties, null);
  } else {
    sheet.rows = sheet.rows.map((row) => trimmed(permute<Cell>(row, null)));
    sheet.columnProperties = permute(sheet.columnProperties, null);
  }
  applyIndexMove(draft, { sheet, dimension, map });
}

function trimmed(row: Cell[]): Row {
  while (row.length > 0 && row.at(-1) === null) row.pop();
  return row;
}

export function updateDimensionProperties(
  draft: Spreadsheet,
  request: sheets_v4.Schema$UpdateDimensionPropertiesRequest,
): void {
  if (request.dataSourceSheetRange) throw notImplemented('dataSourceSheetRange');
  const mask = requireMask(request.fields, 'DimensionProperties');
  const { sheet, dimension, start, end } = spanOf(draft, request.range);
  const properties = dimension === 'ROWS' ? sheet.rowProperties : sheet.columnProperties;
  const last = Math.min(end, countOf(sheet, dimension));
  while (properties.length < last) properties.push(null);
  for (let index = start; index < last; index += 1) {
    properties[index] = mergeMasked(properties[index] ?? {}, request.properties ?? {}, mask) ?? null;
  }
}

/** Validates the request and changes nothing: the sandbox cannot measure text. */
export function autoResizeDimensions(
  draft: Spreadsheet,
  request: sheets_v4.Schema$AutoResizeDimensionsRequest,
): void {
  if (request.dataSourceSheetDimensions) throw notImplemented('dataSourceSheetDimensions');
  spanOf(draft, request.dimensions);
}

export function insertRange(draft: Spreadsheet, request: sheets_v4.Schema$InsertRangeRequest): void {
  const { sheet, rectangle } = clipGridRange(draft, request.range);
  const dimension = shiftOf(request.shiftDimension);
  const { start, end, band } = bandOf(rectangle, dimension);
  const count = end - start;
  rewriteBand(sheet, { dimension, band }, (line) =>
    line.length <= start
      ? line
      : [...line.slice(0, start), ...Array<null>(count).fill(null), ...line.slice(start)],
  );
  applyIndexMove(draft, {
    sheet,
    dimension,
    band,
    map: (index) => (index >= start ? index + count : index),
  });
  // The grid grows for cells and merges that are moved beyond its edge.
  const isRows = dimension === 'ROWS';
  const lines = isRows ? [sheet.rows.length] : sheet.rows.map((row) => row.length);
  const merges = sheet.merges.map((merge) => (isRows ? merge.endRowIndex : merge.endColumnIndex) ?? 0);
  const needed = [...lines, ...merges].reduce((max, one) => Math.max(max, one), countOf(sheet, dimension));
  setCount(sheet, dimension, needed);
  assertCellLimit(draft);
}

export function deleteRange(draft: Spreadsheet, request: sheets_v4.Schema$DeleteRangeRequest): void {
  const { sheet, rectangle } = clipGridRange(draft, request.range);
  const dimension = shiftOf(request.shiftDimension);
  const { start, end, band } = bandOf(rectangle, dimension);
  rewriteBand(sheet, { dimension, band }, (line) => [...line.slice(0, start), ...line.slice(end)]);
  const map = (index: number) => (index < start ? index : index < end ? undefined : index - (end - start));
  applyIndexMove(draft, { sheet, dimension, band, map });
}

function shiftOf(dimension: string | null | undefined): Dimension {
  if (dimension === 'ROWS' || dimension === 'COLUMNS') return dimension;
  throw invalidArgument('No shiftDimension specified.');
}

function bandOf(r: Rectangle, dimension: Dimension) {
  return dimension === 'ROWS'
    ? { start: r.startRow, end: r.endRow, band: { start: r.startColumn, end: r.endColumn } }
    : { start: r.startColumn, end: r.endColumn, band: { start: r.startRow, end: r.endRow } };
}

/** Replaces each line along `dimension` inside the band by the result of `change`. */
function rewriteBand(
  sheet: Sheet,
  { dimension, band }: { dimension: Dimension; band: { start: number; end: number } },
  change: (line: Cell[]) => Cell[],
): void {
  if (dimension === 'COLUMNS') {
    sheet.rows = sheet.rows.map((row, index) =>
      index >= band.start && index < band.end ? trimmed(change([...row])) : row,
    );
    return;
  }
  const rows: Cell[][] = sheet.rows.map((row) => [...row]);
  const width = rows.reduce((widest, row) => Math.max(widest, row.length), 0);
  for (let column = band.start; column < Math.min(band.end, width); column += 1) {
    const line = change(sheet.rows.map((row) => row[column] ?? null));
    while (rows.length < line.length) rows.push([]);
    for (const [index, row] of rows.entries()) {
      while (row.length <= column) row.push(null);
      row[column] = line[index] ?? null;
    }
  }
  sheet.rows = rows.map(trimmed);
}
