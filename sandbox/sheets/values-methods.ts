/**
 * The methods under `/values`.
 *
 * Each returns the response and, if it edits, the changed spreadsheet.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { findMetadata, rangesOfFilter } from './data-filter.ts';
import { GoogleError, invalidArgument } from './errors.ts';
import { createEvaluator } from './formula.ts';
import { clip, type RequestedRange, rangeName, resolveA1 } from './ranges.ts';
import { fork, type Spreadsheet } from './spreadsheet.ts';
import type { Message } from './transcode.ts';
import { readRanges, readRectangle, renderingOf } from './values-read.ts';
import { appendValues, clearValues, enterFor, type Written, writeValues } from './values-write.ts';

/** The result of a method: its response and, if it edited, the new spreadsheet. */
export interface Outcome {
  readonly answer: object;
  readonly changed?: Spreadsheet;
}

/** Runs `step`; its errors get the position in the request as a prefix, like in batch methods. */
export function within<T>(place: string, step: () => T): T {
  try {
    return step();
  } catch (error) {
    if (!(error instanceof GoogleError)) throw error;
    const { code, status, details, headers } = error;
    throw new GoogleError({ code, status, details, headers, message: `Invalid ${place}: ${error.message}` });
  }
}

export function getValues(spreadsheet: Spreadsheet, { params }: Message): Outcome {
  const asked = resolveA1(spreadsheet, String(params.range));
  return { answer: readRanges(spreadsheet, [asked], renderingOf(params))[0] ?? {} };
}

export function batchGetValues(spreadsheet: Spreadsheet, { params }: Message): Outcome {
  const ranges = (params.ranges ?? []) as string[];
  const asked = ranges.map((range) => resolveA1(spreadsheet, range));
  const valueRanges = readRanges(spreadsheet, asked, renderingOf(params));
  return {
    answer: { spreadsheetId: spreadsheet.spreadsheetId, ...(valueRanges.length > 0 && { valueRanges }) },
  };
}

export function batchGetValuesByDataFilter(spreadsheet: Spreadsheet, message: Message): Outcome {
  const body = message.body as sheets_v4.Schema$BatchGetValuesByDataFilterRequest;
  const rendering = renderingOf(body);
  const valueRanges = (body.dataFilters ?? []).flatMap((filter, index) =>
    within(`dataFilters[${index}]`, () =>
      readRanges(spreadsheet, rangesOfFilter(spreadsheet, filter), rendering),
    ).map((valueRange) => ({ valueRange, dataFilters: [filter] })),
  );
  return {
    answer: { spreadsheetId: spreadsheet.spreadsheetId, ...(valueRanges.length > 0 && { valueRanges }) },
  };
}

export function updateValues(spreadsheet: Spreadsheet, { params, body }: Message): Outcome {
  const valueRange = body as sheets_v4.Schema$ValueRange;
  const enter = enterFor(params.valueInputOption);
  const range = String(params.range);
  if (valueRange.range && valueRange.range !== range) {
    throw invalidArgument(`Request range[${range}] does not match value's range[${valueRange.range}].`);
  }
  const changed = fork(spreadsheet);
  const written = writeValues(resolveA1(changed, range), valueRange, enter);
  return { changed, answer: writtenAnswer(changed, written, responseOptions(params, valueRange)) };
}

export function batchUpdateValues(spreadsheet: Spreadsheet, { body }: Message): Outcome {
  const request = body as sheets_v4.Schema$BatchUpdateValuesRequest;
  const enter = enterFor(request.valueInputOption);
  const changed = fork(spreadsheet);
  const data = request.data ?? [];
  const written = data.map((valueRange, index) =>
    within(`data[${index}]`, () =>
      writeValues(resolveA1(changed, valueRange.range ?? ''), valueRange, enter),
    ),
  );
  const responses = written.map((one, index) =>
    writtenAnswer(changed, one, responseOptions(request, data[index] ?? {})),
  );
  return { changed, answer: { spreadsheetId: spreadsheet.spreadsheetId, ...totals(written), responses } };
}

export function batchUpdateValuesByDataFilter(spreadsheet: Spreadsheet, { body }: Message): Outcome {
  const request = body as sheets_v4.Schema$BatchUpdateValuesByDataFilterRequest;
  const enter = enterFor(request.valueInputOption);
  const changed = fork(spreadsheet);
  const done = (request.data ?? []).flatMap((one, index) =>
    within(`data[${index}]`, () =>
      rangesOfFilter(changed, one.dataFilter ?? {}).map((asked) => ({
        one,
        written: writeValues(asked, one, enter),
      })),
    ),
  );
  const responses = done.map(({ one, written }) => {
    const { spreadsheetId: _, ...answer } = writtenAnswer(changed, written, responseOptions(request, one));
    return { ...answer, dataFilter: one.dataFilter };
  });
  const written = done.map((one) => one.written);
  return { changed, answer: { spreadsheetId: spreadsheet.spreadsheetId, ...totals(written), responses } };
}

export function appendToValues(spreadsheet: Spreadsheet, { params, body }: Message): Outcome {
  const valueRange = body as sheets_v4.Schema$ValueRange;
  const enter = enterFor(params.valueInputOption);
  const changed = fork(spreadsheet);
  const asked = resolveA1(changed, String(params.range));
  const appended = appendValues(changed, asked, {
    values: valueRange,
    enter,
    insertDataOption: params.insertDataOption,
  });
  return {
    changed,
    answer: {
      spreadsheetId: spreadsheet.spreadsheetId,
      ...(appended.table && { tableRange: rangeName(appended.sheet, appended.table) }),
      updates: writtenAnswer(changed, appended, responseOptions(params, valueRange)),
    },
  };
}

export function clearRange(spreadsheet: Spreadsheet, { params }: Message): Outcome {
  const changed = fork(spreadsheet);
  const clearedRange = clearAsked(resolveA1(changed, String(params.range)));
  return { changed, answer: { spreadsheetId: spreadsheet.spreadsheetId, clearedRange } };
}

export function batchClearValues(spreadsheet: Spreadsheet, { body }: Message): Outcome {
  const changed = fork(spreadsheet);
  const ranges = (body as sheets_v4.Schema$BatchClearValuesRequest).ranges ?? [];
  const clearedRanges = ranges.map((range, index) =>
    within(`ranges[${index}]`, () => clearAsked(resolveA1(changed, range))),
  );
  return { changed, answer: { spreadsheetId: spreadsheet.spreadsheetId, clearedRanges } };
}

export function batchClearValuesByDataFilter(spreadsheet: Spreadsheet, { body }: Message): Outcome {
  const changed = fork(spreadsheet);
  const filters = (body as sheets_v4.Schema$BatchClearValuesByDataFilterRequest).dataFilters ?? [];
  const clearedRanges = filters.flatMap((filter, index) =>
    within(`dataFilters[${index}]`, () => rangesOfFilter(changed, filter).map(clearAsked)),
  );
  return { changed, answer: { spreadsheetId: spreadsheet.spreadsheetId, clearedRanges } };
}

export function getDeveloperMetadata(spreadsheet: Spreadsheet, { params }: Message): Outcome {
  const metadata = spreadsheet.developerMetadata.find((one) => one.metadataId === params.metadataId);
  if (metadata === undefined) {
    throw new GoogleError({
      code: 404,
      status: 'NOT_FOUND',
      message: `No developer metadata found with id: ${params.metadataId}`,
    });
  }
  return { answer: metadata };
}

export function searchDeveloperMetadata(spreadsheet: Spreadsheet, { body }: Message): Outcome {
  const filters = (body as sheets_v4.Schema$SearchDeveloperMetadataRequest).dataFilters ?? [];
  const found = new Map<number, { developerMetadata: object; dataFilters: object[] }>();
  for (const [index, filter] of filters.entries()) {
    for (const metadata of within(`dataFilters[${index}]`, () => findMetadata(spreadsheet, filter))) {
      const match = found.get(metadata.metadataId) ?? { developerMetadata: metadata, dataFilters: [] };
      match.dataFilters.push(filter);
      found.set(metadata.metadataId, match);
    }
  }
  return { answer: found.size === 0 ? {} : { matchedDeveloperMetadata: [...found.values()] } };
}

function clearAsked(asked: RequestedRange): string {
  const rectangle = clip(asked);
  clearValues(asked.sheet, rectangle);
  return rangeName(asked.sheet, rectangle);
}

interface ResponseOptions {
  readonly includeValuesInResponse?: unknown;
  readonly responseValueRenderOption?: unknown;
  readonly responseDateTimeRenderOption?: unknown;
  readonly majorDimension?: unknown;
}

function responseOptions(
  options: ResponseOptions,
  valueRange: { majorDimension?: unknown },
): ResponseOptions {
  return { ...options, majorDimension: valueRange.majorDimension };
}

function writtenAnswer(
  spreadsheet: Spreadsheet,
  written: Written,
  options: ResponseOptions,
): sheets_v4.Schema$UpdateValuesResponse {
  const { sheet, rectangle, rows, columns, cells } = written;
  return {
    spreadsheetId: spreadsheet.spreadsheetId,
    updatedRange: rangeName(sheet, rectangle),
    ...(cells > 0 && { updatedRows: rows, updatedColumns: columns, updatedCells: cells }),
    ...(options.includeValuesInResponse === true && {
      updatedData: readRectangle(
        { sheet, rectangle },
        renderingOf({
          majorDimension: options.majorDimension,
          valueRenderOption: options.responseValueRenderOption,
          dateTimeRenderOption: options.responseDateTimeRenderOption,
        }),
        createEvaluator(spreadsheet),
      ),
    }),
  };
}

function totals(written: readonly Written[]): object {
  const cells = written.reduce((sum, one) => sum + one.cells, 0);
  if (cells === 0) return {};
  return {
    totalUpdatedRows: written.reduce((sum, one) => sum + one.rows, 0),
    totalUpdatedColumns: written.reduce((sum, one) => sum + one.columns, 0),
    totalUpdatedCells: cells,
    totalUpdatedSheets: new Set(written.map((one) => one.sheet)).size,
  };
}
