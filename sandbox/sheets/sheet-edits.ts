/**
 * Edits of tabs and of the properties of tabs and spreadsheets.
 *
 * Each takes a forked spreadsheet and a checked request, changes the fork, and returns its reply if it has one.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { invalidArgument } from './errors.ts';
import { mergeMasked, requireMask } from './field-mask.ts';
import { applyIndexMove, changeFormulas } from './index-moves.ts';
import {
  assertCellLimit,
  createSheet,
  forkSheet,
  getSheet,
  newNumericId,
  type Sheet,
  type Spreadsheet,
} from './spreadsheet.ts';
import { sheetProperties } from './spreadsheet-json.ts';

const sheetIds = (draft: Spreadsheet) => new Set(draft.sheets.map((sheet) => sheet.properties.sheetId));

/** A sheet for `properties`, with a new id and title if they are absent; not yet among the tabs. */
export function newSheet(draft: Spreadsheet, properties: sheets_v4.Schema$SheetProperties): Sheet {
  if (properties.sheetType && properties.sheetType !== 'GRID') {
    throw invalidArgument(`Cannot create a sheet of type ${properties.sheetType}.`);
  }
  const sheetId = properties.sheetId ?? newNumericId(sheetIds(draft));
  if (sheetId < 0) throw invalidArgument(`Invalid sheetId: ${sheetId}. It must not be negative.`);
  if (sheetIds(draft).has(sheetId)) throw invalidArgument(`A sheet with id ${sheetId} already exists.`);
  const title = properties.title ?? freeTitle(draft);
  assertFreeTitle(draft, title);
  const { rowCount, columnCount } = properties.gridProperties ?? {};
  if ((rowCount ?? 1) < 1 || (columnCount ?? 1) < 1) {
    throw invalidArgument('A sheet must have at least one row and one column.');
  }
  return createSheet({ ...properties, sheetId, title });
}

function freeTitle(draft: Spreadsheet): string {
  const titles = new Set(draft.sheets.map((sheet) => sheet.properties.title));
  let number = draft.sheets.length + 1;
  while (titles.has(`Sheet${number}`)) number += 1;
  return `Sheet${number}`;
}

function assertFreeTitle(draft: Spreadsheet, title: string, own?: Sheet): void {
  if (title === '') throw invalidArgument('The sheet name cannot be empty.');
  if (title.length > 100) throw invalidArgument('The sheet name cannot be longer than 100 characters.');
  const isTaken = draft.sheets.some(
    (sheet) => sheet !== own && sheet.properties.title.toLowerCase() === title.toLowerCase(),
  );
  if (isTaken) {
    throw invalidArgument(`A sheet with the name "${title}" already exists. Please enter another name.`);
  }
}

export function addSheet(draft: Spreadsheet, { properties }: sheets_v4.Schema$AddSheetRequest): object {
  const sheet = newSheet(draft, properties ?? {});
  const index = properties?.index ?? draft.sheets.length;
  return { addSheet: { properties: insertTab(draft, sheet, index) } };
}

function insertTab(draft: Spreadsheet, sheet: Sheet, index: number): object {
  assertIndex(draft, index);
  draft.sheets.splice(index, 0, sheet);
  assertCellLimit(draft);
  return sheetProperties(draft, sheet);
}

function assertIndex(draft: Spreadsheet, index: number): void {
  if (index < 0 || index > draft.sheets.length) {
    throw invalidArgument(`Invalid index: ${index}. It must be between 0 and ${draft.sheets.length}.`);
  }
}

export function deleteSheet(draft: Spreadsheet, { sheetId }: sheets_v4.Schema$DeleteSheetRequest): void {
  const sheet = getSheet(draft, sheetId);
  if (draft.sheets.length === 1) throw invalidArgument("You can't remove all the sheets in a document.");
  draft.sheets = draft.sheets.filter((one) => one !== sheet);
  const { sheetId: id } = sheet.properties;
  draft.namedRanges = draft.namedRanges.filter((named) => (named.range?.sheetId ?? 0) !== id);
  draft.developerMetadata = draft.developerMetadata.filter(({ location }) => {
    return (
      location?.sheetId !== id && (!location?.dimensionRange || (location.dimensionRange.sheetId ?? 0) !== id)
    );
  });
}

export function duplicateSheet(draft: Spreadsheet, request: sheets_v4.Schema$DuplicateSheetRequest): object {
  const source = getSheet(draft, request.sourceSheetId);
  const title = request.newSheetName ?? copyTitle(draft, source.properties.title);
  assertFreeTitle(draft, title);
  const sheetId = request.newSheetId ?? newNumericId(sheetIds(draft));
  if (sheetIds(draft).has(sheetId)) throw invalidArgument(`A sheet with id ${sheetId} already exists.`);
  const sheet = copyOf(source, { sheetId, title });
  return { duplicateSheet: { properties: insertTab(draft, sheet, request.insertSheetIndex ?? 0) } };
}

/** A copy of a sheet under another id and title. */
export function copyOf(source: Sheet, identity: { sheetId: number; title: string }): Sheet {
  const copy = forkSheet(source);
  copy.properties = { ...copy.properties, ...identity };
  copy.merges = copy.merges.map((merge) => ({ ...merge, sheetId: identity.sheetId }));
  return copy;
}

/** `Copy of X`, then `Copy of X 2`, as long as the title is taken. */
export function copyTitle(draft: Spreadsheet, title: string): string {
  const isTaken = (wanted: string) => draft.sheets.some((sheet) => sheet.properties.title === wanted);
  let wanted = `Copy of ${title}`;
  for (let number = 2; isTaken(wanted); number += 1) wanted = `Copy of ${title} ${number}`;
  return wanted;
}

export function updateSheetProperties(
  draft: Spreadsheet,
  request: sheets_v4.Schema$UpdateSheetPropertiesRequest,
): void {
  const mask = requireMask(request.fields, 'SheetProperties');
  const given = request.properties ?? {};
  const sheet = getSheet(draft, given.sheetId);
  const current = sheetProperties(draft, sheet);
  const merged = mergeMasked(current, { ...given, sheetId: current.sheetId ?? 0 }, mask) ?? {};
  const title = merged.title ?? '';
  if (title !== current.title) {
    assertFreeTitle(draft, title, sheet);
    renameInFormulas(draft, sheet, title);
  }
  const { rowCount, columnCount, ...grid } = merged.gridProperties ?? {};
  resize(draft, sheet, {
    rowCount: rowCount ?? sheet.rowCount,
    columnCount: columnCount ?? sheet.columnCount,
  });
  if ((grid.frozenRowCount ?? 0) >= sheet.rowCount)
    throw invalidArgument("You can't freeze all visible rows on the sheet.");
  if ((grid.frozenColumnCount ?? 0) >= sheet.columnCount) {
    throw invalidArgument("You can't freeze all visible columns on the sheet.");
  }
  const { index: _, gridProperties: __, ...rest } = merged;
  sheet.properties = {
    ...rest,
    sheetId: sheet.properties.sheetId,
    title,
    sheetType: 'GRID',
    ...(Object.keys(grid).length > 0 && { gridProperties: grid }),
  };
  if (draft.sheets.every((one) => one.properties.hidden)) {
    throw invalidArgument("You can't hide all the sheets in a document.");
  }
  if (mask === true || mask.index !== undefined) moveSheet(draft, sheet, given.index ?? 0);
}

function renameInFormulas(draft: Spreadsheet, sheet: Sheet, title: string): void {
  const before = sheet.properties.title.toLowerCase();
  changeFormulas(draft, (reference) =>
    reference.sheet?.toLowerCase() === before ? { ...reference, sheet: title } : reference,
  );
}

function resize(draft: Spreadsheet, sheet: Sheet, size: { rowCount: number; columnCount: number }): void {
  if (size.rowCount < 1 || size.columnCount < 1) {
    throw invalidArgument('A sheet must have at least one row and one column.');
  }
  const isGone = { ROWS: size.rowCount < sheet.rowCount, COLUMNS: size.columnCount < sheet.columnCount };
  sheet.rowCount = size.rowCount;
  sheet.columnCount = size.columnCount;
  sheet.rows = sheet.rows.slice(0, size.rowCount);
  if (isGone.COLUMNS) {
    sheet.rows = sheet.rows.map((row) =>
      row.length > size.columnCount ? row.slice(0, size.columnCount) : row,
    );
  }
  for (const [dimension, count] of [
    ['ROWS', size.rowCount],
    ['COLUMNS', size.columnCount],
  ] as const) {
    const map = (index: number) => (index < count ? index : undefined);
    if (isGone[dimension]) applyIndexMove(draft, { sheet, dimension, map });
  }
  sheet.rowProperties = sheet.rowProperties.slice(0, size.rowCount);
  sheet.columnProperties = sheet.columnProperties.slice(0, size.columnCount);
  assertCellLimit(draft);
}

/** Moves a tab. Like at Google, `to` is an index in the order before the move. */
function moveSheet(draft: Spreadsheet, sheet: Sheet, to: number): void {
  assertIndex(draft, to);
  const from = draft.sheets.indexOf(sheet);
  draft.sheets.splice(from, 1);
  draft.sheets.splice(to > from ? to - 1 : to, 0, sheet);
}

export function updateSpreadsheetProperties(
  draft: Spreadsheet,
  request: sheets_v4.Schema$UpdateSpreadsheetPropertiesRequest,
): void {
  const mask = requireMask(request.fields, 'SpreadsheetProperties');
  const merged = mergeMasked<sheets_v4.Schema$SpreadsheetProperties>(
    draft.properties,
    request.properties ?? {},
    mask,
  );
  if (!merged?.title) throw invalidArgument('The title of a spreadsheet cannot be empty.');
  draft.properties = { ...merged, title: merged.title };
}
