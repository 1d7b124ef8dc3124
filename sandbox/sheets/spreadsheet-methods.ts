/**
 * The methods on spreadsheets as a whole: create, get, getByDataFilter, copy a sheet.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { applyCellData, defaultFormat } from './cell-data.ts';
import { rangesOfFilter } from './data-filter.ts';
import { invalidArgument, notImplemented } from './errors.ts';
import { includesPath, type Mask } from './field-mask.ts';
import { checkedRange, newDeveloperMetadata } from './name-edits.ts';
import { resolveA1 } from './ranges.ts';
import { copyOf, copyTitle, newSheet } from './sheet-edits.ts';
import {
  assertCellLimit,
  fork,
  getCell,
  getSheet,
  newNumericId,
  newSpreadsheetId,
  type Sheet,
  type Spreadsheet,
  setCells,
} from './spreadsheet.ts';
import { sheetProperties, toSpreadsheetJson } from './spreadsheet-json.ts';
import type { Message } from './transcode.ts';
import { type Outcome, within } from './values-methods.ts';

/** The owner of a new spreadsheet, and the OAuth client that creates it, if any. */
interface Creator {
  readonly owner: { readonly email: string; readonly sub: string };
  readonly clientId?: string;
}

/** A spreadsheet with the given content; with one sheet `Sheet1` if no sheets are given. */
export function createSpreadsheet(given: sheets_v4.Schema$Spreadsheet, creator: Creator): Spreadsheet {
  const spreadsheet: Spreadsheet = {
    spreadsheetId: newSpreadsheetId(),
    owner: { ...creator.owner },
    ...(creator.clientId !== undefined && { clientId: creator.clientId }),
    modifiedAt: 0,
    properties: {
      locale: 'en_US',
      autoRecalc: 'ON_CHANGE',
      timeZone: 'Etc/GMT',
      defaultFormat,
      spreadsheetTheme: theme,
      ...given.properties,
      title: given.properties?.title ?? 'Untitled spreadsheet',
    },
    sheets: [],
    namedRanges: [],
    developerMetadata: [],
  };
  const sheets = given.sheets?.length ? given.sheets : [{}];
  for (const [index, one] of sheets.entries()) {
    within(`sheets[${index}]`, () => {
      refuseUnkept(one, ['properties', 'data', 'merges', 'developerMetadata']);
      const properties = { ...one.properties };
      if (properties.sheetId == null && index === 0) properties.sheetId = 0;
      const sheet = newSheet(spreadsheet, properties);
      spreadsheet.sheets.push(sheet);
      assertCellLimit(spreadsheet);
      for (const data of one.data ?? []) fillGrid(spreadsheet, sheet, data);
      sheet.merges = (one.merges ?? []).map((merge) =>
        checkedRange(spreadsheet, { ...merge, sheetId: sheet.properties.sheetId }),
      );
    });
  }
  refuseUnkept(given, [
    'spreadsheetId',
    'spreadsheetUrl',
    'properties',
    'sheets',
    'namedRanges',
    'developerMetadata',
  ]);
  spreadsheet.namedRanges = (given.namedRanges ?? []).map((named) => ({
    namedRangeId: named.namedRangeId ?? String(newNumericId(new Set())),
    ...named,
    range: checkedRange(spreadsheet, named.range ?? {}),
  }));
  for (const metadata of [
    ...(given.developerMetadata ?? []),
    ...sheets.flatMap((one) => one.developerMetadata ?? []),
  ]) {
    spreadsheet.developerMetadata = [
      ...spreadsheet.developerMetadata,
      newDeveloperMetadata(spreadsheet, metadata),
    ];
  }
  return spreadsheet;
}

function refuseUnkept(given: object, kept: readonly string[]): void {
  const other = Object.keys(given).find((name) => !kept.includes(name));
  if (other !== undefined) throw notImplemented(`'${other}' when creating a spreadsheet`);
}

function fillGrid(spreadsheet: Spreadsheet, sheet: Sheet, data: sheets_v4.Schema$GridData): void {
  const [startRow, startColumn] = [data.startRow ?? 0, data.startColumn ?? 0];
  if (startRow < 0 || startColumn < 0) throw invalidArgument("startRow and startColumn can't be negative.");
  const rowData = data.rowData ?? [];
  const width = rowData.reduce((widest, { values }) => Math.max(widest, values?.length ?? 0), 0);
  const { rowMetadata = [], columnMetadata = [] } = data;
  sheet.rowCount = Math.max(sheet.rowCount, startRow + Math.max(rowData.length, rowMetadata.length));
  sheet.columnCount = Math.max(sheet.columnCount, startColumn + Math.max(width, columnMetadata.length));
  assertCellLimit(spreadsheet);
  for (const [offset, { values }] of rowData.entries()) {
    const row = startRow + offset;
    const cells = (values ?? []).map((cell, index) =>
      applyCellData(getCell(sheet, row, startColumn + index), cell, true),
    );
    if (cells.length > 0) setCells(sheet, { row, startColumn }, cells);
  }
  putProperties(sheet.rowProperties, startRow, rowMetadata);
  putProperties(sheet.columnProperties, startColumn, columnMetadata);
}

function putProperties(
  list: Sheet['rowProperties'],
  start: number,
  properties: readonly sheets_v4.Schema$DimensionProperties[],
): void {
  if (properties.length === 0) return;
  while (list.length < start) list.push(null);
  list.splice(start, properties.length, ...properties);
}

/** Whether the response has cells: the field mask decides, or `includeGridData` without a mask. */
export function getSpreadsheet(
  spreadsheet: Spreadsheet,
  { params }: Message,
  { url, mask }: { url: string; mask: Mask | undefined },
): Outcome {
  const ranges = ((params.ranges ?? []) as string[]).map((range) => resolveA1(spreadsheet, range));
  return {
    answer: toSpreadsheetJson(spreadsheet, { url, ranges, grid: gridFor(params.includeGridData, mask) }),
  };
}

export function getSpreadsheetByDataFilter(
  spreadsheet: Spreadsheet,
  { body }: Message,
  { url, mask }: { url: string; mask: Mask | undefined },
): Outcome {
  const request = body as sheets_v4.Schema$GetSpreadsheetByDataFilterRequest;
  const ranges = (request.dataFilters ?? []).flatMap((filter, index) =>
    within(`dataFilters[${index}]`, () => rangesOfFilter(spreadsheet, filter)),
  );
  return {
    answer: toSpreadsheetJson(spreadsheet, { url, ranges, grid: gridFor(request.includeGridData, mask) }),
  };
}

function gridFor(includeGridData: unknown, mask: Mask | undefined): 'with cells' | 'without cells' {
  const isAsked = mask === undefined ? includeGridData === true : includesPath(mask, ['sheets', 'data']);
  return isAsked ? 'with cells' : 'without cells';
}

/** A copy of one sheet at the end of `destination`; `changed` is the destination. */
export function copySheet(source: Spreadsheet, sheetId: unknown, destination: Spreadsheet): Outcome {
  if (typeof sheetId !== 'number') throw invalidArgument('sheetId is required.');
  const sheet = getSheet(source, sheetId);
  const changed = fork(destination);
  const taken = new Set(changed.sheets.map((one) => one.properties.sheetId));
  const copy = copyOf(sheet, {
    sheetId: newNumericId(taken),
    title: copyTitle(changed, sheet.properties.title),
  });
  changed.sheets.push(copy);
  assertCellLimit(changed);
  return { changed, answer: sheetProperties(changed, copy) };
}

const color = (red: number, green: number, blue: number) => ({
  rgbColor: { red: red / 255, green: green / 255, blue: blue / 255 },
});

const theme: sheets_v4.Schema$SpreadsheetTheme = {
  primaryFontFamily: 'Arial',
  themeColors: [
    { colorType: 'TEXT', color: { rgbColor: {} } },
    { colorType: 'BACKGROUND', color: color(255, 255, 255) },
    { colorType: 'ACCENT1', color: color(66, 133, 244) },
    { colorType: 'ACCENT2', color: color(234, 67, 53) },
    { colorType: 'ACCENT3', color: color(251, 188, 4) },
    { colorType: 'ACCENT4', color: color(52, 168, 83) },
    { colorType: 'ACCENT5', color: color(255, 109, 1) },
    { colorType: 'ACCENT6', color: color(70, 189, 198) },
    { colorType: 'LINK', color: color(17, 85, 204) },
  ],
};
