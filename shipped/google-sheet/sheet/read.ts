/**
 * Reading the values of a tab with as few requests as it takes: Google counts 60 reads a minute for all connections of an
 * account.
 *
 * Owns: the requests, and the checks before their values are accepted. A tab is identified by its `gid`. If the connection may
 * write, values are requested by `gid`, and the title does not matter. Otherwise they are requested by title, and accepted once
 * the title is confirmed to be that of the tab.
 */
import { hash } from 'node:crypto';
import { quotedTitle, rowsRange, titleOf } from './a1.ts';
import { type Api, jsonOf, type Rights, retries, spreadsheets } from './api.ts';
import { readBook, tabOf } from './book.ts';
import type { RawCell } from './cells.ts';
import { fault, sourceFault } from './faults.ts';
import type { SheetSettings } from './settings.ts';

/** Beyond it a tab is read in pieces. */
const maxCellsAtOnce = 1_500_000;
/** As Google answers them: beyond it a tab does not fit the memory of a function. */
const maxBytes = 100 * 1024 * 1024;
/** A sheet that people work on is between two of their edits at one of these. */
const maxTries = 3;

export type Values = { title: string; digest: string; cells: () => RawCell[][] };

/**
 * All values of the tab as of one moment. `digest` is that of the answer, so that an unchanged sheet need not be parsed.
 * `title` is what the tab was called when it was read last, `cellCount` about how many it has.
 */
export async function readValues(
  trellis: Api,
  of: { settings: SheetSettings; rights: Rights; title: string; cellCount: number },
): Promise<Values> {
  if (of.cellCount > maxCellsAtOnce) return readInPieces(trellis, of);
  const bytes = await askValues(trellis, { ...of, rows: undefined });
  return valuesOf([bytes], of.title);
}

/** Pieces are of different moments: they are read until two readings agree. */
async function readInPieces(
  trellis: Api,
  of: { settings: SheetSettings; rights: Rights; title: string; cellCount: number },
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
      pieces.push(await askValues(trellis, { ...of, title: tab.title, rows }));
      if (pieces.reduce((sum, { length }) => sum + length, 0) > maxBytes) {
        throw fault(
          'sheet_too_large',
          'The tab holds more than 100 MB of values, which is more than can be read.',
        );
      }
    }
    const values = valuesOf(pieces, tab.title, step);
    if (values.digest === before) return values;
    before = values.digest;
  }
  throw fault(
    'sheet_moving',
    'The sheet is changed faster than it can be read; it is read again at the next time.',
  );
}

function valuesOf(pieces: readonly Buffer[], title: string, step = 0): Values {
  const whole = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
  const ranges = () => pieces.map((bytes) => rangeOf(jsonOf<ValuesJson>(bytes)));
  // Google answers the title in the range, near the beginning; parsing all of it for that is not worth it.
  const [, range] = /"range":\s*("(?:[^"\\]|\\.)*")/.exec(whole.toString('utf8', 0, 4_096)) ?? [];
  return {
    title: range === undefined ? title : titleOf(JSON.parse(range) as string),
    digest: hash('sha256', whole, 'base64url'),
    cells: () =>
      ranges().flatMap(({ values = [] }, at, all) => {
        // A piece ends with its last row that holds something.
        const missing = at < all.length - 1 ? step - values.length : 0;
        return missing > 0 ? [...values, ...Array.from({ length: missing }, () => [])] : values;
      }),
  };
}

type RangeJson = { range?: string; values?: RawCell[][] };
type ValuesJson = RangeJson & { valueRanges?: { valueRange: RangeJson }[] };

/** Throws `upstream_unreadable`: an answer that names no range is not that of an empty tab. */
function rangeOf(json: ValuesJson): RangeJson {
  const found = json.valueRanges === undefined ? json : json.valueRanges[0]?.valueRange;
  if (typeof found?.range === 'string') return found;
  throw fault('upstream_unreadable', 'Google answered no values of the tab; nothing was changed.');
}

const rendering = { valueRenderOption: 'UNFORMATTED_VALUE', dateTimeRenderOption: 'SERIAL_NUMBER' };

async function askValues(
  trellis: Api,
  of: {
    settings: SheetSettings;
    rights: Rights;
    title: string;
    rows: { start: number; end: number } | undefined;
  },
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
