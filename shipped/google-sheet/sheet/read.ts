/**
 * Reads the values of a tab with as few requests as possible: Google allows 60 reads a minute for an account, over all of its
 * connections.
 *
 * A tab is identified by its `gid`. If the connection may write, values are requested by `gid`, and the title does not matter.
 * Otherwise they are requested by title, and accepted once the title is confirmed to be that of the tab.
 */
import { hash } from 'node:crypto';
import { quotedTitle, rowsRange, titleOf } from './a1.ts';
import { type Api, jsonOf, retries, type SheetAccess, spreadsheets } from './api.ts';
import { readBook, tabOf } from './book.ts';
import type { RawCell } from './cells.ts';
import { fault, sourceFault } from './faults.ts';

/** A larger tab is read in pieces. */
const maxCellsAtOnce = 1_500_000;
/** The limit for the responses of a tab, which must fit into the memory of a function. */
const maxBytes = 100 * 1024 * 1024;
/** Readings in pieces until two agree; the pauses between people's edits are usually long enough. */
const maxTries = 3;

export type Values = { title: string; digest: string; cells: () => RawCell[][] };

/**
 * All values of the tab at one moment. `digest` is the hash of the response, so that an unchanged sheet is not parsed.
 * `title` is the last known title, `cellCount` the approximate number of cells.
 */
export async function readValues(
  trellis: Api,
  of: SheetAccess & { title: string; cellCount: number },
): Promise<Values> {
  if (of.cellCount > maxCellsAtOnce) return readInPieces(trellis, of);
  const bytes = await requestValues(trellis, { ...of, rows: undefined });
  return valuesOf([bytes], of.title);
}

/** The pieces are read at different moments, so all of them are read until two readings agree. */
async function readInPieces(
  trellis: Api,
  of: SheetAccess & { title: string; cellCount: number },
): Promise<Values> {
  let before: string | undefined;
  for (let left = maxTries; left > 0; left--) {
    const tab = tabOf(
      await readBook(trellis, { spreadsheetId: of.settings.spreadsheetId, rights: of.rights }),
      of.settings.sheetId,
    );
    const step = Math.max(1, Math.floor(maxCellsAtOnce / 2 / Math.max(1, tab.columns)));
    const pieces: Buffer[] = [];
    for (let start = 0; start < tab.rows; start += step) {
      const rows = { start, end: Math.min(tab.rows, start + step) };
      pieces.push(await requestValues(trellis, { ...of, title: tab.title, rows }));
      if (pieces.reduce((sum, { length }) => sum + length, 0) > maxBytes) {
        throw fault(
          'sheet_too_large',
          'The tab has more than 100 MB of values, which is the limit for a sync. Split the tab.',
        );
      }
    }
    const values = valuesOf(pieces, tab.title, step);
    if (values.digest === before) return values;
    before = values.digest;
  }
  throw fault('sheet_moving', 'The sheet changed while it was read. The next run reads it again.');
}

function valuesOf(pieces: readonly Buffer[], title: string, step = 0): Values {
  const whole = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
  const ranges = () => pieces.map((bytes) => rangeOf(jsonOf<ValuesJson>(bytes)));
  // The response names the title in its range, near the beginning. Parsing the whole response for it would be slow.
  const [, range] = /"range":\s*("(?:[^"\\]|\\.)*")/.exec(whole.toString('utf8', 0, 4_096)) ?? [];
  return {
    title: range === undefined ? title : titleOf(JSON.parse(range) as string),
    digest: hash('sha256', whole, 'base64url'),
    cells: () =>
      ranges().flatMap(({ values = [] }, at, all) => {
        // Google omits empty rows at the end of a piece.
        const missing = at < all.length - 1 ? step - values.length : 0;
        return missing > 0 ? [...values, ...Array.from({ length: missing }, () => [])] : values;
      }),
  };
}

type RangeJson = { range?: string; values?: RawCell[][] };
type ValuesJson = RangeJson & { valueRanges?: { valueRange: RangeJson }[] };

/** Throws `upstream_unreadable` if the response has no range: the response for an empty tab has one. */
function rangeOf(json: ValuesJson): RangeJson {
  const found = json.valueRanges === undefined ? json : json.valueRanges[0]?.valueRange;
  if (typeof found?.range === 'string') return found;
  throw fault(
    'upstream_unreadable',
    'Google returned a response without the values of the tab. Nothing was changed.',
  );
}

export const rendering = { valueRenderOption: 'UNFORMATTED_VALUE', dateTimeRenderOption: 'SERIAL_NUMBER' };

async function requestValues(
  trellis: Api,
  of: SheetAccess & { title: string; rows: { start: number; end: number } | undefined },
): Promise<Buffer> {
  const { settings, rights, title, rows } = of;
  const { spreadsheetId, sheetId } = settings;
  try {
    if (rights.canWrite) {
      const gridRange = { sheetId, ...(rows && { startRowIndex: rows.start, endRowIndex: rows.end }) };
      const { data } = await trellis.post<Buffer>({
        endpoint: `${spreadsheets}/${spreadsheetId}/values:batchGetByDataFilter`,
        params: { prettyPrint: false },
        data: { dataFilters: [{ gridRange }], majorDimension: 'ROWS', ...rendering },
        responseType: 'arraybuffer',
      });
      return data;
    }
    const range = rows === undefined ? quotedTitle(title) : rowsRange(title, rows);
    const { data } = await trellis.get<Buffer>({
      endpoint: `${spreadsheets}/${spreadsheetId}/values/${encodeURIComponent(range)}`,
      params: { prettyPrint: false, ...rendering },
      responseType: 'arraybuffer',
      retries,
    });
    return data;
  } catch (error) {
    throw sourceFault(error, rights.account);
  }
}
