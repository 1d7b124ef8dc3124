import { randomUUID } from 'node:crypto';
import { type ActionContext, createAction } from 'trellis';
import { z } from 'zod';
import { columnLetters, quotedTitle } from '../sheet/a1.ts';
import { spreadsheets } from '../sheet/api.ts';
import type { RawCell } from '../sheet/cells.ts';
import { matchColumns, readColumns } from '../sheet/columns.ts';
import { fault, sourceFault, withActionErrors } from '../sheet/faults.ts';
import {
  cellsOf,
  type Grid,
  kindsOf,
  type Mark,
  readGrid,
  sampleRows,
  wholeCellFields,
} from '../sheet/grid.ts';
import { readValues } from '../sheet/read.ts';
import { farthestHeader, headerIndexOf, isBlank } from '../sheet/table.ts';
import { lookUpTab } from '../sheet/take.ts';
import { type Target, targetOf } from '../sheet/target.ts';
import { cellLine, isOutcomeUnknown, lineOf, valuesLine, type Writable } from '../sheet/write.ts';

const writable = z.union([z.string().max(50_000), z.number(), z.boolean(), z.null()]);
const Input = z.object({
  variant: z.string().default('base'),
  rows: z.array(z.record(z.string(), writable)).min(1).max(1_000).describe('Values by field name'),
  input: z.enum(['RAW', 'USER_ENTERED']).default('RAW').describe('USER_ENTERED: parsed like typed text'),
});
const Output = z.object({
  appended: z.int(),
  /** Confirmed by Google's response, or by a second request after a lost response. */
  confirmed_by: z.enum(['answer', 'reread']),
});

/** The key of metadata that an append adds to the tab, to find out after a lost response whether the rows arrived. */
const sentKey = 'trellis.sent';
const marksKeptMs = 10 * 60_000;
/** The pauses before each search for the metadata of an append without a response. */
const waitsMs = [500, 2_000];

export default createAction({
  description:
    'Appends rows to a tab. An append with an unknown outcome is not repeated: the error says what was tried, and whether ' +
    'the rows were found.',
  version: '1.0.0',
  input: Input,
  output: Output,
  once: true,
  exec: (trellis, { variant, rows, input: entering }) =>
    withActionErrors(trellis, async () => {
      const target = await targetOf(trellis, variant);
      const head = await headOf(trellis, target);
      const lines = rows.map((values) => lineOf(values, { ...head, entering }));
      if (lines.some((line) => line.every(isBlank))) {
        throw fault('refused', 'An empty row cannot be appended. Nothing was written.');
      }
      if (entering === 'RAW') return appendMarked(trellis, { target, head, lines });
      return appendTyped(trellis, { target, head, lines });
    }),
});

type Head = Awaited<ReturnType<typeof headOf>>;
type Lines = (Writable | undefined)[][];

/** Columns, formats and metadata of the tab, read from its first rows. */
async function headOf(trellis: ActionContext, { settings, rights, state }: Target) {
  const { title } = await lookUpTab(trellis, { settings, rights });
  // Starts at the top unless the header is far below: rows may have been inserted above the header.
  const start = settings.headerRow <= farthestHeader ? 0 : settings.headerRow - 1;
  const rows = { start, end: Math.max(farthestHeader, sampleRows(settings.headerRow - 1).end) };
  const grid: Grid | undefined = await readGrid(trellis, {
    ...{ settings, rights, title, rows },
    fields: wholeCellFields,
  });
  if (grid === undefined) {
    throw fault('sheet_moving', 'The tab was renamed during the append. Nothing was written. Try again.');
  }
  const cells: RawCell[][] = cellsOf(grid.grid);
  const headerIndex = start === 0 ? headerIndexOf(cells, { settings, state }) : start;
  const header = cells[headerIndex - start] ?? [];
  if (header.every(isBlank)) {
    throw fault('header_row_missing', `The header row ${settings.headerRow} is empty. Nothing was written.`);
  }
  const { columns } = matchColumns(state.columns, readColumns(header, cells.slice(headerIndex - start + 1)));
  const { timeZone, marks, tab } = grid;
  return { columns, kinds: kindsOf(grid.grid, headerIndex), timeZone, marks, title: tab.title };
}

async function appendMarked(
  trellis: ActionContext,
  { target, head, lines }: { target: Target; head: Head; lines: Lines },
): Promise<z.infer<typeof Output>> {
  const { settings, rights } = target;
  const { sheetId, spreadsheetId } = settings;
  const token = `${Date.now()}.${randomUUID()}`;
  const requests = [
    { appendCells: { sheetId, rows: lines.map(cellLine), fields: 'userEnteredValue' } },
    {
      createDeveloperMetadata: {
        developerMetadata: {
          ...{ metadataKey: sentKey, metadataValue: token },
          ...{ visibility: 'DOCUMENT', location: { sheetId } },
        },
      },
    },
  ];
  const endpoint = `${spreadsheets}/${spreadsheetId}:batchUpdate`;
  try {
    await trellis.post({ endpoint, data: { requests } });
  } catch (error) {
    if (!isOutcomeUnknown(error)) throw sourceFault(error, rights.account);
    if (await isMarkFound(trellis, { spreadsheetId, token })) {
      return { appended: lines.length, confirmed_by: 'reread' };
    }
    throw outcomeUnknown(lines, 'not_seen');
  }
  await dropOldMarks(trellis, { endpoint, marks: head.marks });
  return { appended: lines.length, confirmed_by: 'answer' };
}

/** Google applies rows and metadata together or not at all, so the metadata proves that the rows are there. */
async function isMarkFound(
  trellis: ActionContext,
  { spreadsheetId, token }: { spreadsheetId: string; token: string },
): Promise<boolean> {
  for (const ms of waitsMs) {
    await new Promise((resolve) => setTimeout(resolve, ms));
    const found = await trellis
      .post<{ matchedDeveloperMetadata?: unknown[] }>({
        endpoint: `${spreadsheets}/${spreadsheetId}/developerMetadata:search`,
        data: {
          dataFilters: [{ developerMetadataLookup: { metadataKey: sentKey, metadataValue: token } }],
        },
      })
      .catch(() => undefined);
    if ((found?.data.matchedDeveloperMetadata ?? []).length > 0) return true;
  }
  return false;
}

/** Removes the metadata of old appends, in batches of at least 20 to save calls. */
async function dropOldMarks(
  trellis: ActionContext,
  { endpoint, marks }: { endpoint: string; marks: readonly Mark[] },
): Promise<void> {
  const before = Date.now() - marksKeptMs;
  const old = marks.filter(
    ({ metadataKey, metadataValue = '' }) =>
      metadataKey === sentKey && Number.parseInt(metadataValue, 10) < before,
  );
  if (old.length < 20) return;
  const requests = old.map(({ metadataId }) => ({
    deleteDeveloperMetadata: { dataFilter: { developerMetadataLookup: { metadataId } } },
  }));
  await trellis.post({ endpoint, data: { requests } }).catch(() => {});
}

async function appendTyped(
  trellis: ActionContext,
  { target, head, lines }: { target: Target; head: Head; lines: Lines },
): Promise<z.infer<typeof Output>> {
  const { settings, rights } = target;
  const start = await startOf(trellis, target);
  if (lines.some((line) => !line.slice(0, start).every(isBlank))) {
    throw fault(
      'refused',
      `Google would append the rows in column ${columnLetters(start)}, where the last table of the tab starts, and not in the columns of the header. Nothing was written.`,
    );
  }
  let range = '';
  try {
    const { data } = await trellis.post<{ updates?: { updatedRange?: string } }>({
      endpoint: `${spreadsheets}/${settings.spreadsheetId}/values/${encodeURIComponent(quotedTitle(head.title))}:append`,
      params: { valueInputOption: 'USER_ENTERED', insertDataOption: 'INSERT_ROWS' },
      data: { majorDimension: 'ROWS', values: lines.map((line) => valuesLine(line.slice(start))) },
    });
    range = data.updates?.updatedRange ?? '';
  } catch (error) {
    if (!isOutcomeUnknown(error)) throw sourceFault(error, rights.account);
    throw outcomeUnknown(lines, 'unknown');
  }
  if (firstLetters(range) === columnLetters(start)) {
    return { appended: lines.length, confirmed_by: 'answer' };
  }
  throw fault(
    'outcome_unknown',
    `Google appended the rows at ${range}, which may be the wrong columns. Check the sheet.`,
    {
      tried: 'append',
      rows: lines.length,
      arrived: 'unknown',
    },
  );
}

/** The column, from 0, where Google appends: the first column of the lowest block of cells, delimited by blank rows and columns. */
async function startOf(trellis: ActionContext, { settings, rights }: Target): Promise<number> {
  const values = await readValues(trellis, {
    ...{ settings, rights },
    ...(await lookUpTab(trellis, { settings, rights })),
  });
  const cells = values.cells();
  const isUsed = (row: number, column: number) => !isBlank(cells[row]?.[column]);
  const lowest = cells.findLastIndex((row) => !row.every(isBlank));
  if (lowest === -1) return 0;
  let [top, start] = [lowest, cells[lowest]!.findIndex((cell) => !isBlank(cell))];
  let end = start + 1;
  for (let isGrown = true; isGrown; ) {
    isGrown = false;
    while ((cells[top - 1] ?? []).slice(Math.max(0, start - 1), end + 1).some((cell) => !isBlank(cell))) {
      top -= 1;
      isGrown = true;
    }
    const isColumnUsed = (column: number) => {
      for (let row = Math.max(0, top - 1); row <= lowest; row++) if (isUsed(row, column)) return true;
      return false;
    };
    while (start > 0 && isColumnUsed(start - 1)) {
      start -= 1;
      isGrown = true;
    }
    while (isColumnUsed(end)) {
      end += 1;
      isGrown = true;
    }
  }
  return start;
}

function firstLetters(range: string): string | undefined {
  return /^[A-Z]+/.exec(range.slice(range.lastIndexOf('!') + 1))?.[0];
}

function outcomeUnknown(lines: Lines, arrived: 'not_seen' | 'unknown'): Error {
  const check = arrived === 'not_seen' ? 'A second look did not find them' : 'The sheet was not checked';
  return fault(
    'outcome_unknown',
    `Google returned no response: ${lines.length} rows may have been appended. ${check}. Check the sheet before you send them again.`,
    { tried: 'append', rows: lines.length, arrived },
  );
}
