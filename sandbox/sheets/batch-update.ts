/**
 * spreadsheets.batchUpdate: a list of edits that are applied together or not at all.
 *
 * An edit that is not in the table is refused with 501 and its name.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import * as cells from './cell-edits.ts';
import * as dimensions from './dimension-edits.ts';
import { invalidArgument, notImplemented } from './errors.ts';
import * as names from './name-edits.ts';
import { resolveA1 } from './ranges.ts';
import * as sheets from './sheet-edits.ts';
import { fork, type Spreadsheet } from './spreadsheet.ts';
import { toSpreadsheetJson } from './spreadsheet-json.ts';
import * as tables from './table-edits.ts';
import type { Message } from './transcode.ts';
import { type Outcome, within } from './values-methods.ts';

type Requests = Required<sheets_v4.Schema$Request>;
type Edits = {
  [Kind in keyof Requests]?: (draft: Spreadsheet, request: NonNullable<Requests[Kind]>) => unknown;
};

const edits: Edits = {
  addNamedRange: names.addNamedRange,
  addSheet: sheets.addSheet,
  appendCells: cells.appendCells,
  appendDimension: dimensions.appendDimension,
  autoResizeDimensions: dimensions.autoResizeDimensions,
  createDeveloperMetadata: names.createDeveloperMetadata,
  deleteDeveloperMetadata: names.deleteDeveloperMetadata,
  deleteDimension: dimensions.deleteDimension,
  deleteNamedRange: names.deleteNamedRange,
  deleteRange: dimensions.deleteRange,
  deleteSheet: sheets.deleteSheet,
  duplicateSheet: sheets.duplicateSheet,
  findReplace: tables.findReplace,
  insertDimension: dimensions.insertDimension,
  insertRange: dimensions.insertRange,
  mergeCells: cells.mergeCells,
  moveDimension: dimensions.moveDimension,
  repeatCell: cells.repeatCell,
  setDataValidation: cells.setDataValidation,
  sortRange: tables.sortRange,
  unmergeCells: cells.unmergeCells,
  updateCells: cells.updateCells,
  updateDeveloperMetadata: names.updateDeveloperMetadata,
  updateDimensionProperties: dimensions.updateDimensionProperties,
  updateSheetProperties: sheets.updateSheetProperties,
  updateSpreadsheetProperties: sheets.updateSpreadsheetProperties,
};

/** Applies all requests to a fork. The first failure fails all, with the position of the request in its message. */
export function batchUpdate(spreadsheet: Spreadsheet, { body }: Message, { url }: { url: string }): Outcome {
  const request = body as sheets_v4.Schema$BatchUpdateSpreadsheetRequest;
  const requests = request.requests ?? [];
  if (requests.length === 0) throw invalidArgument('Must specify at least one request.');
  refuseUnknownKinds(requests);
  const changed = fork(spreadsheet);
  const replies = requests.map((one, index) => applyEdit(changed, one, index));
  return {
    changed,
    answer: {
      spreadsheetId: spreadsheet.spreadsheetId,
      replies,
      ...(request.includeSpreadsheetInResponse && {
        updatedSpreadsheet: updatedSpreadsheet(changed, request, url),
      }),
    },
  };
}

/** Called before any edit, so that the response does not depend on failures of other edits. */
function refuseUnknownKinds(requests: readonly sheets_v4.Schema$Request[]): void {
  for (const [index, request] of requests.entries()) {
    const kind = Object.keys(request)[0];
    if (kind !== undefined && !Object.hasOwn(edits, kind)) {
      within(`requests[${index}].${kind}`, () => {
        throw notImplemented(`the batchUpdate request '${kind}'`);
      });
    }
  }
}

function applyEdit(draft: Spreadsheet, request: sheets_v4.Schema$Request, index: number): object {
  const [kind, content] = Object.entries(request)[0] ?? [];
  if (kind === undefined) throw invalidArgument(`Invalid requests[${index}]: No request set.`);
  // The keys of the table and the checked message come from the same schema.
  const edit = edits[kind as keyof Requests] as (draft: Spreadsheet, content: unknown) => unknown;
  const reply = within(`requests[${index}].${kind}`, () => edit(draft, content));
  return typeof reply === 'object' && reply !== null ? reply : {};
}

function updatedSpreadsheet(
  changed: Spreadsheet,
  request: sheets_v4.Schema$BatchUpdateSpreadsheetRequest,
  url: string,
): object {
  const ranges = (request.responseRanges ?? []).map((range) => resolveA1(changed, range));
  const grid = request.responseIncludeGridData ? 'with cells' : 'without cells';
  return toSpreadsheetJson(changed, { url, ranges, grid });
}
