/**
 * Writing to rows that others may move meanwhile: each gets a mark, which goes where the row goes; what stands there is
 * looked at through the marks; and the values are written through them.
 */
import { randomInt } from 'node:crypto';
import type { ActionContext } from 'trellis';
import { type Rights, spreadsheets } from './api.ts';
import type { RawCell } from './cells.ts';
import { fault, sourceFault } from './faults.ts';
import { mark } from './row-metadata.ts';
import type { SheetSettings } from './settings.ts';
import { type Entering, isOutcomeUnknown, valuesLine, type Writable } from './write.ts';

const anchorKey = 'trellis.at';
/** As metadata ids are: positive, 32 bits. */
const maxId = 2 ** 31 - 1;

type At = { settings: SheetSettings; rights: Rights };

/** Marks rows by their index; answers the mark of each. */
export async function anchorRows(
  trellis: ActionContext,
  { settings, rights, rows }: At & { rows: readonly number[] },
): Promise<number[]> {
  const ids = rows.map(() => randomInt(1, maxId));
  const at = { settings, rights };
  const requests = rows.map((index, place) =>
    mark(settings.sheetId, { index, key: anchorKey, metadataId: ids[place]! }),
  );
  try {
    await edit(trellis, { ...at, requests });
  } catch (error) {
    if (isOutcomeUnknown(error)) await dropAnchors(trellis, { ...at, anchors: ids });
    throw error;
  }
  return ids;
}

/** Takes marks away, as far as that can be done. */
export async function dropAnchors(
  trellis: ActionContext,
  { settings, rights, anchors }: At & { anchors: readonly number[] },
): Promise<void> {
  const requests = anchors.map((metadataId) => ({
    deleteDeveloperMetadata: { dataFilter: { developerMetadataLookup: { metadataId } } },
  }));
  await edit(trellis, { settings, rights, requests }).catch((error: Error) =>
    trellis.log(`Marks were left on rows: ${error.message}`, { level: 'warn' }),
  );
}

async function edit(trellis: ActionContext, { settings, rights, requests }: At & { requests: object[] }) {
  await trellis
    .post({ endpoint: `${spreadsheets}/${settings.spreadsheetId}:batchUpdate`, data: { requests } })
    .catch((error: unknown) => {
      throw sourceFault(error, rights.account);
    });
}

const filterOf = (metadataId: number) => ({ developerMetadataLookup: { metadataId } });

/** The cells of marked rows, in the order of the marks; undefined where a row is gone. */
export async function readAnchored(
  trellis: ActionContext,
  { settings, rights, anchors }: At & { anchors: readonly number[] },
): Promise<(RawCell[] | undefined)[]> {
  type Found = {
    valueRange: { values?: RawCell[][] };
    dataFilters: { developerMetadataLookup: { metadataId: number } }[];
  };
  const { data } = await trellis
    .post<{ valueRanges?: Found[] }>({
      endpoint: `${spreadsheets}/${settings.spreadsheetId}/values:batchGetByDataFilter`,
      data: {
        dataFilters: anchors.map(filterOf),
        ...{
          majorDimension: 'ROWS',
          valueRenderOption: 'UNFORMATTED_VALUE',
          dateTimeRenderOption: 'SERIAL_NUMBER',
        },
      },
    })
    .catch((error: unknown) => {
      throw sourceFault(error, rights.account);
    });
  const rows = new Map<number, RawCell[]>();
  for (const { valueRange, dataFilters } of data.valueRanges ?? []) {
    for (const { developerMetadataLookup } of dataFilters) {
      rows.set(developerMetadataLookup.metadataId, valueRange.values?.[0] ?? []);
    }
  }
  return anchors.map((anchor) => rows.get(anchor));
}

export type Line = { anchor: number; line: readonly (Writable | undefined)[] };

/**
 * Writes to marked rows, all or none. Where it is not known whether that was done, the rows are read again: it returns if
 * they hold what was written, and throws `outcome_unknown` if they do not.
 */
export async function writeAnchored(
  trellis: ActionContext,
  { settings, rights, lines, entering }: At & { lines: readonly Line[]; entering: Entering },
): Promise<void> {
  try {
    await trellis.post({
      endpoint: `${spreadsheets}/${settings.spreadsheetId}/values:batchUpdateByDataFilter`,
      data: {
        valueInputOption: entering,
        data: lines.map(({ anchor, line }) => ({
          dataFilter: filterOf(anchor),
          majorDimension: 'ROWS',
          values: [valuesLine(line)],
        })),
      },
    });
  } catch (error) {
    if (!isOutcomeUnknown(error)) throw sourceFault(error, rights.account);
    const anchors = lines.map(({ anchor }) => anchor);
    const rows = await readAnchored(trellis, { settings, rights, anchors }).catch(() => []);
    const isThere = lines.every(({ line }, at) => rows[at] !== undefined && isWritten(rows[at], line));
    if (isThere && rows.length > 0) return;
    // What was typed may show as something else.
    const isSeen = rows.length > 0 && entering === 'RAW';
    throw fault('outcome_unknown', 'Google did not answer, and the rows do not hold what was sent.', {
      tried: 'update',
      arrived: isSeen ? 'not_seen' : 'unknown',
    });
  }
}

function isWritten(row: readonly RawCell[], line: Line['line']): boolean {
  return line.every((value, at) => value === undefined || (row[at] ?? '') === (value ?? ''));
}
